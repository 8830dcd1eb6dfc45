"""TinyBERT's data augmentation: candidates against a loop over words, copies, and the files that
the command writes.
"""

import gzip
import json
import random
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.distill.augmentation import Augmenter, ReplaceableWord, make_copies, replace_words
from plmctl.knowledge.word_vectors import Neighbours
from plmctl.storage import resumable
from plmctl.text.function_words import ENGLISH

SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=48",
    "format.max_length=48",
    "train.steps=1",
    "train.batch_size=2",
]
WORDS = ["list", "string", "return", "value", "function", "object", "method", "the", "of", "qwzxk"]


def pretrained(folder: Path, tokens: Path, recipe: str) -> str:
    done = CliRunner().invoke(
        make_app(), ["pretrain", recipe, *SMALL, f"data.path={tokens}", f"run.dir={folder}"]
    )
    assert done.exit_code == 0, done.output
    return str(folder)


@pytest.fixture(scope="module")
def run(tokens_of, tmp_path_factory) -> str:
    return pretrained(tmp_path_factory.mktemp("runs") / "bert", tokens_of("wordpiece"), "bert")


@pytest.fixture(scope="module")
def loaded(run):
    return plmctl.load(run)


def augmenter(loaded, **how) -> Augmenter:
    how = {"candidates": 8, "stop": ENGLISH, **how}
    return Augmenter(model=loaded.model, tokenizer=loaded.tokenizer, **how)


def reviews(folder: Path, rows: int = 70) -> Path:
    draw = random.Random(0)
    for split, count in (("train", rows), ("dev", 6)):
        lines = [
            f"{' '.join(draw.choices(WORDS, k=5))} .\t{draw.randint(0, 1)}" for _ in range(count)
        ]
        (folder / f"{split}.tsv").write_text(
            "\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8"
        )
    return folder


def command(*words: str) -> None:
    perform(config.compose("augment", None, list(words)))


def test_candidates_are_those_of_a_loop_over_words(loaded):
    """[CLS] text with [MASK] [SEP] text [SEP], one row a word, no padding, in float64."""
    texts = ["Return the list of a string.", "value: object of the method function"]
    model, vocab, tokenizer = loaded.model.double(), loaded.vocab, loaded.tokenizer
    slots = augmenter(loaded)(texts)
    asked = 0
    for text, found in zip(texts, slots, strict=True):
        ids, spans = tokenizer.encode_offsets(text)
        expected = {}
        for place, (start, end) in enumerate(spans):
            word = text[start:end]
            alone = (start == 0 or text[start - 1] == " ") and (
                end == len(text) or not text[end].isalpha()
            )
            if not (alone and word.isalpha()) or word.lower() in ENGLISH:
                continue
            hidden = [*ids[:place], vocab.mask, *ids[place + 1 :]]
            row = [vocab.cls, *hidden, vocab.sep, *ids, vocab.sep]
            segment = [0] * (len(ids) + 2) + [1] * (len(ids) + 1)
            seq = Seq(
                torch.tensor([row]),
                torch.tensor([len(row)]),
                {"segment": torch.tensor([segment])},
                full=True,
            )
            with torch.no_grad():
                scores = model.heads["mlm"](
                    model(Batch(torch.zeros(1), {"text": seq})).last[0, place + 1]
                )[: vocab.size]
            best = sorted(range(vocab.size), key=lambda i, scores=scores: -scores[i])[:8]
            pieces = [tokenizer.pieces([i])[0] for i in best]
            words = [piece for piece in pieces if piece.isalpha() and not piece.startswith("##")]
            if words:
                expected[start, end] = words
        assert {(slot.start, slot.end): slot.words for slot in found} == expected
        asked += len(expected)
    assert asked > 3
    loaded.model.float()


def test_only_whole_words_of_letters_that_mean_something(loaded):
    text = "Don't the well-made 3D value, VALUE of qwzxkj"
    model = augmenter(loaded, candidates=200)
    (found,) = model([text])
    assert {text[slot.start : slot.end] for slot in found} <= {"value", "VALUE"}
    assert found
    # the nonsense word stays
    assert model.seen == {"words": 3, "replaceable": len(found), "of several tokens": 1}
    vectors = Neighbours(
        ["qwzxkj", "near", "far"], np.array([[1, 0], [1, 0.1], [0, 1]], np.float32)
    )
    (found,) = augmenter(loaded, candidates=1, vectors=vectors)([text])
    assert found[-1].words == ["near"]


def test_of_a_long_text_what_is_around_the_word_is_read(loaded):
    text = "list " * 200
    row = augmenter(loaded)._row(loaded.tokenizer.encode(text), 150)
    assert len(row.ids) <= loaded.model.backbone.max_length
    assert row.ids.count(loaded.vocab.mask) == 1


def test_near_is_the_largest_cosine(tmp_path):
    draw = np.random.default_rng(0)
    words, vectors = [f"w{n}" for n in range(30)], draw.normal(size=(30, 5)).round(4)
    (tmp_path / "v.txt").write_text(
        "30 5\n"
        + "".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words, vectors, strict=True))
    )
    found = Neighbours.read(tmp_path / "v.txt").find_nearest(["w3", "W7", "nowhere"], 4)
    for word, own in (("w3", 3), ("W7", 7)):
        cosine = {
            w: v @ vectors[own] / np.linalg.norm(v) / np.linalg.norm(vectors[own])
            for w, v in zip(words, vectors, strict=True)
        }
        cosine.pop(f"w{own}")
        expected = sorted(cosine, key=cosine.__getitem__, reverse=True)[:4]
        assert found[word] == ([w.title() for w in expected] if word.istitle() else expected)
    assert "nowhere" not in found
    (tmp_path / "v.txt").write_text("a 1 2\nb 1\n")
    with pytest.raises(DataError, match=r"v.txt:2: a word and 2 numbers"):
        Neighbours.read(tmp_path / "v.txt")
    with pytest.raises(DataError, match="cannot be read"):
        Neighbours.read(tmp_path / "absent.txt")


def test_a_copy_replaces_each_word_with_its_probability():
    text, slots = (
        "ab, cd! (ef)",
        [
            ReplaceableWord(0, 2, ["x"]),
            ReplaceableWord(4, 6, ["y", "z"]),
            ReplaceableWord(9, 11, ["w"]),
        ],
    )
    draws = np.random.default_rng(0)
    assert replace_words(text, slots, rate=1.0, draws=draws) in ("x, y! (w)", "x, z! (w)")
    made_of = [replace_words(text, slots, rate=0.4, draws=draws) for _ in range(4000)]
    for what, share in (("x", 0.4), ("y", 0.2), ("z", 0.2), ("w", 0.4)):
        found = sum(what in copy for copy in made_of)
        assert abs(found - 4000 * share) < 4 * (4000 * share * (1 - share)) ** 0.5
    several = make_copies(
        {"text": text, "text2": "same"}, {"text": slots}, count=300, rate=0.5, draws=draws
    )
    # all versions but the original, once
    assert len({copy["text"] for copy in several}) == len(several) == 2 * 3 * 2 - 1
    assert {copy["text2"] for copy in several} == {"same"}
    assert make_copies({"text": text}, {"text": []}, count=5, rate=1.0, draws=draws) == []


def test_writes_the_table_with_copies_behind_each_example(run, tmp_path, capsys):
    path, out = reviews(tmp_path), tmp_path / "out"
    words = ["task=sst2", f"task.path={path}", f"checkpoint={run}", "copies=3", "candidates=30"]
    command(*words, f"out={out}")
    said = capsys.readouterr().out
    assert f"70 examples became {len((out / 'train.tsv').read_text().splitlines()) - 1}" in said
    # the command that it names works as it stands
    following = shlex.split(said.partition("next: plmctl ")[2], comments=True)
    done = CliRunner().invoke(make_app(), [*following, "--dry-run"])
    assert done.exit_code == 0, done.output
    before = [line.split("\t") for line in (path / "train.tsv").read_text().splitlines()]
    after = [line.split("\t") for line in (out / "train.tsv").read_text().splitlines()]
    assert after[0] == before[0]
    originals, copied = [], 0
    for text, label in after:
        if [text, label] == before[min(len(originals), len(before) - 1)]:
            originals.append(text)
            continue
        copied += 1
        words_of, words_in = text.split(), originals[-1].split()
        assert label == before[len(originals) - 1][1]
        assert len(words_of) == len(words_in)
        changed = {old for old, new in zip(words_in, words_of, strict=True) if old != new}
        assert changed
        assert not changed & {"the", "of", "."}
    assert len(originals) == len(before)
    assert 70 < copied <= 210
    assert (out / "dev.tsv").read_bytes() == (path / "dev.tsv").read_bytes()
    record = json.loads((out / "made.json").read_text())
    assert record["copies"] == 3
    assert record["counted"]["examples"] == 70 + copied
    command(*words, f"out={tmp_path / 'again'}", "batch_size=7")
    assert (tmp_path / "again" / "train.tsv").read_bytes() == (out / "train.tsv").read_bytes()
    command(*words, f"out={tmp_path / 'other'}", "seed=1")
    assert (tmp_path / "other" / "train.tsv").read_bytes() != (out / "train.tsv").read_bytes()


@pytest.mark.slow  # test_tokenize_resume.py stops and goes on
@pytest.mark.parametrize("packed", [False, True])
def test_listed_files_have_the_names_that_a_task_finds(run, tmp_path, packed):
    """Whatever the files are called; of a packed one, the copies are plain text."""
    (tmp_path / "in").mkdir()
    listed = []
    for file in sorted(reviews(tmp_path / "in", rows=4).iterdir(), reverse=True):  # train, dev
        named = file.with_name(f"my.{file.name}.gz" if packed else f"my.{file.name}")
        named.write_bytes(gzip.compress(file.read_bytes()) if packed else file.read_bytes())
        listed.append(str(named))
    out = tmp_path / "out"
    words = ["task=sst2", f"checkpoint={run}", "copies=1", f"out={out}"]
    command(*words, f"task.path=[{','.join(listed)}]")
    dev = "dev.tsv.gz" if packed else "dev.tsv"
    assert {file.name for file in out.iterdir()} == {"train.tsv", dev, "made.json"}
    assert (out / "train.tsv").read_text().startswith("sentence\tlabel\n")
    assert (out / dev).read_bytes() == Path(listed[1]).read_bytes()


def test_goes_on_where_it_was_stopped(run, tmp_path, monkeypatch, capsys):
    path = reviews(tmp_path, rows=140)
    words = ["task=sst2", f"task.path={path}", f"checkpoint={run}", "copies=1"]
    command(*words, f"out={tmp_path / 'whole'}")
    monkeypatch.setattr(resumable, "_COMMIT", 0.0)
    whole, calls = Augmenter.__call__, []

    def stopped(self, texts, stay):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, texts, stay)

    monkeypatch.setattr(Augmenter, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        command(*words, f"out={tmp_path / 'parts'}")
    assert not (tmp_path / "parts").exists()
    monkeypatch.setattr(
        Augmenter,
        "__call__",
        lambda self, *given: (calls.append(len(given[0])), whole(self, *given))[1],
    )
    command(*words, f"out={tmp_path / 'parts'}")
    assert calls == [64, 64, 12, 12]
    assert "going on from there" in capsys.readouterr().err
    for name in ("train.tsv", "made.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "columns", "sign"),
    [
        ("train.jsonl", "text", ","),
        ("train.csv", "text", ","),
        ("train.csv", "text", ";"),
        ("train.tsv", "0", ","),
    ],
)
def test_other_layouts_stay_what_they_are(run, tmp_path, name, columns, sign):
    (tmp_path / "in").mkdir()
    texts, label = ['a "list", of value', "return value"], "label" if columns == "text" else "1"
    content = {
        "train.jsonl": "".join(
            json.dumps({"id": n, "text": t, "label": n}) + "\n" for n, t in enumerate(texts)
        ),
        "train.csv": f'text{sign}label\n"a ""list"", of value"{sign}0\nreturn value{sign}1\n',
        "train.tsv": f"{texts[0]}\t0\n{texts[1]}\t1\n",
    }[name]
    (tmp_path / "in" / name).write_text(content)
    words = [
        "task=classification",
        f"task.columns.text={columns}",
        f"task.columns.label={label}",
        f"checkpoint={run}",
    ]
    command(
        *words,
        f"task.path={tmp_path / 'in'}",
        "copies=4",
        "rate=1.0",
        "candidates=40",
        f"out={tmp_path / 'out'}",
    )
    from plmctl.config.build import build

    cfg = config.compose("augment", None, [*words, f"task.path={tmp_path / 'out'}", "out=x"])
    examples = build(cfg.task, {"pooling": "first"}, path="task").read("train")
    assert [e.fields["text"] for e in examples if e.fields["text"] in texts] == texts
    assert len(examples) > 4
    if name == "train.csv":
        written = (tmp_path / "out" / name).read_text().splitlines()
        assert {*content.splitlines()} <= {*written}
    first = [e for e in examples if e.label == "0"]
    assert all('"' in e.fields["text"] and e.fields["text"].startswith("a ") for e in first)


NAMED = [
    ("The", "O"),
    ("list", "B-PER"),
    ("value", "I-PER"),
    ("method", "O"),
    ("of", "O"),
    ("object", "O"),
    (".", "O"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "between"), [("train.txt", " "), ("train.txt", "\t"), ("train.jsonl", "")]
)
@pytest.mark.parametrize("everything", [False, True])
def test_tags_stay_and_so_do_tagged_words_unless_asked(run, tmp_path, name, between, everything):
    words, tags = map(list, zip(*NAMED, strict=True))
    block = "".join(f"{word}{between}x{between}{tag}\n" for word, tag in NAMED)
    content = (
        f"-DOCSTART- -X- O\n\n{block}\n{block}"
        if between
        else (json.dumps({"tokens": words, "tags": tags}) + "\n") * 2
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(content)
    (tmp_path / "in" / name.replace("train", "dev")).write_text(content)
    given = [
        "task=tagging",
        f"checkpoint={run}",
        "copies=6",
        "rate=1.0",
        "candidates=60",
        f"tagged_words={everything}",
    ]
    command(*given, f"task.path={tmp_path / 'in'}", f"out={tmp_path / 'out'}")
    from plmctl.config.build import build

    cfg = config.compose("augment", None, [*given, f"task.path={tmp_path / 'out'}", "out=x"])
    examples = build(cfg.task, {"pooling": "first"}, path="task").read("train")
    assert all(example.label == tags for example in examples)
    assert [example.fields["words"] for example in examples].count(words) == 2
    assert (
        len(examples)
        == json.loads((tmp_path / "out/made.json").read_text())["counted"]["examples"]
        > 6
    )
    changed = {
        old
        for example in examples
        for old, new in zip(words, example.fields["words"], strict=True)
        if old != new
    }
    assert changed == (
        {"list", "value", "method", "object"} if everything else {"method", "object"}
    )
    assert (tmp_path / "out" / name.replace("train", "dev")).read_text() == content
    lines = (tmp_path / "out" / name).read_text().splitlines()
    assert not between or (
        lines[:2] == ["-DOCSTART- -X- O", ""] and all(not x or between in x for x in lines[2:])
    )


def test_where_every_word_has_a_tag_it_is_said_how_they_are_replaced(run, tmp_path):
    (tmp_path / "train.txt").write_text("list NOUN\nvalue NOUN\n\nmethod NOUN\n")
    words = ["task=tagging", f"task.path={tmp_path / 'train.txt'}", f"checkpoint={run}", "copies=1"]
    with pytest.raises(
        UsageError, match=r"no word of the 2 examples could be replaced(?s:.*)tagged_words=true"
    ):
        command(*words, f"out={tmp_path / 'out'}")
    with pytest.raises(ConfigError, match="the words of this task have no tags"):
        command(
            "task=sst2",
            f"task.path={reviews(tmp_path)}",
            *words[2:],
            "tagged_words=true",
            f"out={tmp_path / 'o'}",
        )


def test_refusals_come_before_work(run, tokens_of, tmp_path):
    path = reviews(tmp_path)
    words = [f"task.path={path}", f"checkpoint={run}", f"out={tmp_path / 'out'}"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(ConfigError, match="is there already, and not empty"):
        command("task=sst2", *words[:2], f"out={tmp_path / 'full'}")
    with pytest.raises(ConfigError, match="only tasks of this kind"):
        command("task=swag", *words)
    with pytest.raises(ConfigError, match="whose training set is it"):
        command(*words[1:])
    with pytest.raises(DataError, match="no such file"):
        command("task=sst2", *words, f"task.path={tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match=r"absent.txt: no such file or directory; there is .*full"):
        command("task=sst2", *words, f"vectors={tmp_path / 'absent.txt'}")
    with pytest.raises(DataError, match=r"full: cannot be read: Is a directory"):
        command("task=sst2", *words, f"vectors={tmp_path / 'full'}")
    gpt = pretrained(tmp_path / "gpt", tokens_of("byte_bpe", "tokenizer.specials=gpt2"), "gpt")
    with pytest.raises(UsageError, match="by a masked language model"):
        command("task=sst2", words[0], f"checkpoint={gpt}", words[2])
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
