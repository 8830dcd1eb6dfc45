"""Classification by the word in a gap, against its definition."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.config import compose as config
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.batches import collate
from plmctl.tasks.cloze import Cloze, spell_words
from plmctl.tasks.inference import run
from plmctl.tasks.layouts.demonstrations import Demonstrations
from plmctl.tasks.layouts.templates import Piece, split_template
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tokenizer import Tokenizer
from tests.command import plmctl

WORDS = {"bad": "terrible", "good": ["great", "nice"]}


def make(**settings: Any) -> Cloze:
    known: dict[str, Any] = {
        "name": "cloze",
        "reader": Table(splits={"train": ["train.*"], "dev": ["dev.*"], "test": []}),
        "columns": {"text": "text", "label": "label"},
        "max_length": 32,
        "metrics": ["accuracy"],
        "template": "{text} It was {mask}.",
        "label_words": WORDS,
    }
    return Cloze(**(known | settings))


@pytest.mark.parametrize(
    ("template", "pieces"),
    [
        (
            "{text} It was {mask}.",
            [Piece("", "text"), Piece(" It was"), Piece(" ", "mask"), Piece(".")],
        ),
        ("{mask} news: {text}", [Piece("", "mask"), Piece(" news:"), Piece(" ", "text")]),
    ],
)
def test_a_template_in_pieces(template: str, pieces: list[Piece]) -> None:
    assert split_template(template, {"text": 0}) == pieces


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{text} good", "{mask} once"),
        ("{text} {mask} {mask}", "2 times"),
        ("{tex} {mask}", "did you mean 'text'"),
        ("{mask}", "{text} once"),
    ],
)
def test_a_wrong_template_is_told(template: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(template=template)
    assert told in str(error.value)
    assert paste(str(error.value)).template == "{text} It was {mask}."


def paste(message: str) -> Any:
    """The task that a command has with the fix of a message, as a shell reads it."""
    (word,) = shlex.split(message.partition("fix: ")[2].splitlines()[0])
    return config.compose(
        "finetune", None, ["task=cloze", "task.path=x", "checkpoint=null", word]
    ).task


def test_fixes_of_label_words_can_be_pasted() -> None:
    words = {"bad": ["it's", "null"], "very good": ["great", "so: nice"], "1": []}
    fix = spell_words(words)
    own = paste(f"fix: {fix.replace('<a word>', 'fine')}").label_words
    found = {str(label): value for label, value in own.items()}
    assert found == {"bad": ("it's", "null"), "very good": ("great", "so: nice"), "1": "fine"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a masked language model of it, and a table of labels."""
    folder = tmp_path_factory.mktemp("cloze")
    said = {"terrible": "awful", "great": "fine", "nice": "fine"}
    lines = [
        f"A {said[word]} film {n}. It was {word}." for n in range(60) for word in said
    ]  # fmt: skip
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    rows = [f"A {'awful' if n % 2 else 'fine'} film {n}.\t{'bad' if n % 2 else 'good'}"
        for n in range(24)]  # fmt: skip
    (folder / "data").mkdir()
    for name, part in (("train", rows[:8]), ("dev", rows[8:])):
        (folder / "data" / f"{name}.tsv").write_text("\n".join(["text\tlabel", *part]) + "\n")
    words = ["tokenizer=wordpiece", "tokenizer.vocab_size=105", f"out={folder}/tokens"]
    plmctl("tokenize", f"data.path={folder}/text.txt", *words)
    train = ["train.steps=3", "train.precision=fp32", "train.threads=1", "train.batch_size=8"]
    given = [f"data.path={folder}/tokens", f"run.dir={folder}/model", "format.max_length=32"]
    plmctl("pretrain", "roberta", "size=tiny", *train, *given)
    return folder


@pytest.mark.parametrize(("left", "right"), [(" It was ", "."), (" (", ")")])
def test_scores_are_those_of_the_words_at_the_gap(folder: Path, left: str, right: str) -> None:
    """A loop over examples: the whole text with [MASK] in it, and the logits of the words there."""
    loaded = load(folder / "model")
    tokenizer, vocab = loaded.tokenizer, loaded.tokenizer.vocab
    task = make(path=str(folder / "data"), template=f"{{text}}{left}{{mask}}{right}")
    task.fit_labels(examples := task.read("train"))
    rows = task.encode(examples, tokenizer)
    with torch.no_grad():
        found, _ = run(loaded.model, task, rows, batch_size=3, device=torch.device("cpu"))
    for row, example in enumerate(examples):
        before = tokenizer.encode(f"{example.fields['text']}{left.rstrip()}")
        ids = [vocab.cls, *before, vocab.mask, *tokenizer.encode(right), vocab.sep]
        assert list(rows.seqs["text"].ids[row, : len(ids)]) == ids
        batch = collate(rows, np.array([row]))
        with torch.no_grad():
            states = loaded.model(batch).last[0, 1 + len(before)]
            logits = loaded.model.heads["mlm"](states[None])[0]
        (terrible,), (great,), (nice,) = (
            tokenizer.encode(w) for w in ("terrible", "great", "nice")
        )
        expected = [logits[terrible], (logits[great] + logits[nice]) / 2]
        assert found["class"][row] == pytest.approx([float(e) for e in expected], abs=1e-5)


def test_the_text_is_cut_and_the_template_is_not(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder / "tokens")
    task = make(max_length=12)
    task.label_names = ["bad", "good"]
    long = Example("0", {"text": "A fine film 1. " * 9}, "good")
    rows = task.encode([long], tokenizer)
    ids = list(rows.seqs["text"].ids[0])
    ending = [*tokenizer.encode("It was"), tokenizer.vocab.mask, *tokenizer.encode(".")]
    assert len(ids) == 12
    assert ids[-len(ending) - 1 : -1] == ending
    assert rows.values["cut"][0] == len(tokenizer.encode(long.fields["text"])) - (12 - 2 - 4)
    assert ids[rows.anchors[0, 1]] == tokenizer.vocab.mask


def test_from_the_command_line_with_the_head_of_pretraining(folder: Path) -> None:
    given = [f"task.path={folder}/data", f"checkpoint={folder}/model", f"run.dir={folder}/tuned"]
    short = ["train.epochs=null", "train.steps=4", "train.least_steps=0", "task.max_length=32"]
    words = "task.label_words={bad: terrible, good: [great, nice]}"
    plmctl("finetune", "task=cloze", words, *given, *short, "train.threads=1", "optim.lr=0")
    before, after = load(folder / "model").model, load(folder / "tuned").model
    assert list(after.heads) == ["mlm"]
    assert torch.equal(before.heads["mlm"].bias, after.heads["mlm"].bias)
    out = folder / "out.jsonl"
    plmctl("eval", f"checkpoint={folder}/tuned", f"out={out}")
    assert len(out.read_text().splitlines()) == 16


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("{bad: terrible}", "'good' has none"),
        ("{bad: terrible, good: greatest of all}", "one token"),
        ("{bad: terrible, good: zzz}", "zzz"),
    ],
)
def test_label_words_that_do_not_fit_are_told(folder: Path, words: str, told: str) -> None:
    given = [
        f"task.path={folder}/data",
        f"checkpoint={folder}/model",
        f"run.dir={folder}/none",
        "task.max_length=32",
    ]
    output = plmctl("finetune", "task=cloze", f"task.label_words={words}", *given, code=2)
    assert told in output
    assert "<a word>" in "".join(shlex.split(output.partition("fix: ")[2].splitlines()[0]))
    assert not (folder / "none").exists()


def test_labels_that_are_left_out_of_train_are_not_shown(folder: Path) -> None:
    given = [f"task.path={folder}/data", f"checkpoint={folder}/model", f"run.dir={folder}/none"]
    words = "task.label_words={bad: terrible, good: great}"
    more = ["task.demonstrations=1", "train.share=0.5", "task.max_length=32"]
    told = plmctl("finetune", "task=cloze", words, *given, *more, code=2)
    assert "train.share=0.5: 1, since rows show labels of all training examples" in told
    assert "fix: train.share=1  # or task.demonstrations=0" in told
    assert not (folder / "none").exists()


@pytest.mark.parametrize("part", ["features=mix", "head_encoder=bilstm"])
def test_nothing_stands_before_a_head_over_the_vocabulary(folder: Path, part: str) -> None:
    given = [f"task.path={folder}/data", f"checkpoint={folder}/model", f"run.dir={folder}/none"]
    words = "task.label_words={bad: terrible, good: great}"
    told = plmctl("finetune", "task=cloze", words, *given, "task.max_length=32", part, code=2)
    assert "null: heads over the vocabulary, which this task asks, read the last states" in told
    assert not (folder / "none").exists()


def test_without_label_words_labels_are_the_words(folder: Path) -> None:
    task = make(label_words=None, path="x")
    task.fit_labels([Example(str(n), {"text": "a"}, label) for n, label in enumerate("ba")])
    assert task.label_words == {"a": ["a"], "b": ["b"]}
    again = make(label_words=None, label_names=["film", "great"], path="x")  # as an evaluation has
    rows = again.encode([Example("0", {"text": "a"})], load(folder / "model").tokenizer)
    assert again.label_words == {"film": ["film"], "great": ["great"]}
    assert len(rows.key) == 1


def test_two_labels_with_one_word_are_told() -> None:
    task = make(label_words={"bad": "film", "good": ["fine", "film"]}, path="x")
    with pytest.raises(ConfigError, match="that of two"):
        task.fit_labels([Example(str(n), {"text": "a"}, label) for n, label in enumerate(WORDS)])


def test_it_is_asked_twice(folder: Path) -> None:
    given = [f"task.path={folder}/data", f"checkpoint={folder}/model", f"run.dir={folder}/twice"]
    short = ["train.epochs=null", "train.steps=1", "train.least_steps=0", "task.max_length=32"]
    words = "task.label_words={bad: terrible, good: [great, nice]}"
    plmctl("finetune", "task=cloze", words, *given, *short, "stabiliser=[r_drop]")


POOL = [
    Example(str(n), {"text": f"{word} film {n}"}, label)
    for n, (word, label) in enumerate(
        [("dull", "bad"), ("slow", "bad"), ("fine", "good"), ("warm", "good"), ("long", "bad")]
    )
]


def test_each_class_is_shown_by_another_example() -> None:
    shown = Demonstrations(POOL, ["bad", "good"], similar=1.0, seed=3)
    seen = set()
    for _ in range(2):
        sets = shown.draw(POOL[0], 40)
        assert all([each.label for each in own] == ["bad", "good"] for own in sets)
        seen |= {tuple(each.id for each in own) for own in sets}
    assert seen == {(bad, good) for bad in "14" for good in "23"}  # never itself; the same again
    other = Demonstrations(POOL, ["bad", "good"], similar=1.0, seed=4)
    assert shown.draw(POOL[0], 9) == shown.draw(POOL[0], 9) != other.draw(POOL[0], 9)
    with pytest.raises(DataError, match="no other training example of the label 'bad'"):
        Demonstrations(POOL[1:4], ["bad", "good"], similar=1.0, seed=0).draw(POOL[1], 1)


def test_similar_examples_are_those_with_the_same_rare_words() -> None:
    """The cosine of `count log(M / m)` by its formula; a word of all examples weighs nothing."""
    shown = Demonstrations(POOL, ["bad", "good"], similar=0.4, seed=0)
    asked = Example("x", {"text": "a film as slow and warm as 3"})
    assert {tuple(each.id for each in own) for own in shown.draw(asked, 20)} == {("1", "3")}
    weights = shown.weights
    assert weights["film"] == 0
    assert weights["slow"] == pytest.approx(math.log(5))


@pytest.mark.parametrize("length", [64, 26])
def test_rows_are_the_text_and_what_is_shown(folder: Path, length: int) -> None:
    """`[CLS] T(x) [SEP] T'(x_1) [SEP] T'(x_2) [SEP]`, and the mean score of all sets."""
    loaded = load(folder / "model")
    tokenizer, vocab = loaded.tokenizer, loaded.tokenizer.vocab
    task = make(
        path=str(folder / "data"), demonstrations=2, max_length=length, demonstration_seed=1
    )
    task.fit_labels(examples := task.read("train"))
    rows = task.encode(examples, tokenizer)
    assert list(rows.values["example"]) == [n for n in range(8) for _ in "ab"]
    assert list(rows.labels["class"][::2]) == [task.names.index(str(e.label)) for e in examples]
    pool = Demonstrations(examples, task.names, similar=1.0, seed=1)
    ending = tokenizer.encode("It was")
    words = {label: tokenizer.encode(word)[0] for label, word in
             (("bad", "terrible"), ("good", "great"))}  # fmt: skip
    most = length - 2 - 3 * (len(ending) + 2) - 2  # of texts
    for n, example in enumerate(examples):
        for k, own in enumerate(pool.draw(example, 2)):
            texts = [tokenizer.encode(e.fields["text"]) for e in (example, *own)]
            shown = [text[: most // 3] for text in texts[1:]]  # each at most an equal part
            first = texts[0][: most - sum(map(len, shown))]
            ids = [vocab.cls, *first, *ending, vocab.mask, *tokenizer.encode("."), vocab.sep]
            for text, other in zip(shown, own, strict=True):
                ids += [*text, *ending, words[str(other.label)], *tokenizer.encode("."), vocab.sep]
            row = rows.seqs["text"]
            assert list(row.ids[2 * n + k, : row.length[2 * n + k]]) == ids
            assert rows.anchors is not None
            assert rows.anchors[2 * n + k, 1] == 1 + len(first) + len(ending)
    with torch.no_grad():
        found, _ = run(loaded.model, task, rows, batch_size=3, device=torch.device("cpu"))
    said = task.predict(found, rows, examples)
    assert len(said) == 8
    for n, each in enumerate(said):
        mean = (found["class"][2 * n] + found["class"][2 * n + 1]) / 2
        p = np.exp(mean) / np.exp(mean).sum()
        assert [each["probabilities"][name] for name in task.names] == pytest.approx(list(p))
    task.max_length = 14
    with pytest.raises(ConfigError, match="with 2 demonstrations alone takes"):
        task.encode(examples, tokenizer)


@pytest.mark.slow  # the next tests have one pattern
def test_a_classifier_learns_from_an_ensemble_of_patterns(folder: Path) -> None:
    """PET from the command line: patterns, soft labels of new texts, a classifier of them."""
    short = ["train.epochs=null", "train.steps=2", "train.least_steps=0", "task.max_length=32"]
    given = [f"checkpoint={folder}/model", "train.threads=1"]
    words = "task.label_words={bad: terrible, good: [great, nice]}"
    for name, more in (
        ("a", ["task.demonstrations=2"]),
        ("b", ['task.template="It was {mask}. {text}"']),
    ):
        run_dir = f"run.dir={folder}/{name}"
        plmctl(
            "finetune",
            "task=cloze",
            f"task.path={folder}/data",
            words,
            *given,
            *short,
            *more,
            run_dir,
        )
    (folder / "new.txt").write_text("".join(f"A fine film {n}.\n" for n in range(50, 60)))
    soft = [
        f"checkpoint=[{folder}/a,{folder}/b]",
        "weights=[1,2]",
        "temperature=2",
        "labelled=false",
    ]
    plmctl("data", "label", *soft, f"input={folder}/new.txt", f"out={folder}/soft")
    columns = "task.columns.probabilities=probabilities"
    plmctl("finetune", "task=classification", f"task.path={folder}/soft", columns, *given,
           *short, "task.label_names=[bad,good]", f"run.dir={folder}/student")  # fmt: skip
    assert (folder / "student" / "result.json").exists()
