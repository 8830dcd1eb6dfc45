"""Supersense tagging: STREUSLE's two layouts, words without a sense, the score of rare words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.scores.class_counts import ClassMean
from plmctl.tasks.scores.resampling import Whole, find_forms
from plmctl.tasks.supersense import Supersense
from plmctl.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "supersense" / "streusle"
ROWS = [  # word, lemma, part of speech, tag, sense
    ("Have", "have", "VERB", "B-social", "social"),
    ("a", "a", "DET", "o", ""),
    ("rock", "rock", "NOUN", "o-NATURAL OBJECT", "NATURAL OBJECT"),
    ("near", "near", "ADP", "O-Locus", "Locus"),
    ("me", "me", "PRON", "O-`i", "`i"),
]


def tags(sentences: list[list[tuple[str, ...]]]) -> str:
    """The layout `.tags`."""
    blocks = [
        "".join(
            "\t".join([str(n), *row[:4], "0", "", row[4], "ewtb.1"]) + "\n"
            for n, row in enumerate(rows, start=1)
        )
        for rows in sentences
    ]
    return "\n".join(blocks) + "\n"


def conllulex(rows: list[tuple[str, str]]) -> str:
    lines = ["# sent_id = 1", "1-2\t" + "\t".join("_" * 18)]
    for n, (word, sense) in enumerate(rows, start=1):
        cells = [str(n), word, *"_" * 11, sense, *"_" * 5]
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n\n"


def task_of(path: Path, *words: str) -> Supersense:
    given = ["task=supersense", f"task.path={path}", "checkpoint=null", *words]
    return build(compose("finetune", None, given).task, path="task")


def test_both_layouts_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS, ROWS[:1]]))
    senses = ["v.social", "_", "n.NATURALOBJECT", "p.Locus", "`i"]
    rows = [(row[0], sense) for row, sense in zip(ROWS, senses, strict=True)]
    (tmp_path / "dev.conllulex").write_text(conllulex(rows))
    task = task_of(tmp_path)
    first, second = task.read("train")
    assert first.fields["words"] == ["Have", "a", "rock", "near", "me"]
    assert first.label == ["v.social", "_", "n.NATURALOBJECT", "_", "_"]
    assert second.place.endswith("train.tags:7")
    (dev,) = task.read("dev")
    assert (dev.fields, dev.label) == (first.fields, first.label)


CORPUS = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="semcor">
<text id="d000">
<sentence id="d000.s000">
<wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="art" pos="NOUN">art</instance>
<instance id="d000.s000.t001" lemma="new_york" pos="NOUN">New_York</instance>
<wf lemma="&amp;" pos="CONJ">&amp;</wf>
</sentence>
<sentence id="d000.s001"><instance id="d000.s001.t000" lemma="go" pos="VERB">Go</instance>
</sentence>
</text>
</corpus>
"""
KEYS = """d000.s000.t000 art%1:06:00:: art%1:04:00::
d000.s000.t001 new_york%1:15:00::
d000.s001.t000 go%2:38:00::
"""


def test_a_corpus_of_word_senses(tmp_path: Path) -> None:
    """The lexicographer files 06, 15 and 38 are noun.artifact, noun.location and verb.motion
    (lexnames(5WN)).
    """
    (tmp_path / "semcor.data.xml").write_text(CORPUS)
    task = task_of(tmp_path)
    with pytest.raises(DataError, match=r"semcor\.gold\.key\.txt: the senses of semcor"):
        task.read("train")
    keys = tmp_path / "semcor.gold.key.txt"
    keys.write_text(KEYS)
    first, second = task.read("train")
    assert first.fields["words"] == ["The", "art", "New York", "&"]
    assert first.label == ["_", "noun.artifact", "noun.location", "_"]
    assert (second.id, second.label) == ("d000.s001", ["verb.motion"])
    assert second.place.endswith("semcor.data.xml:10")
    for text, problem in (
        ("d000.s000.t000 art%1:99:00::\n", r"key\.txt:1: not the name of a word"),
        ("d000.s000.t000\n", r"key\.txt:1: not the name"),
        (
            KEYS.rpartition("d000.s001")[0],
            r"data\.xml:10: 'd000\.s001\.t000' has no sense in semcor\.gold",
        ),
    ):
        keys.write_text(text)
        with pytest.raises(DataError, match=problem):
            task.read("train")
    (tmp_path / "semcor.data.xml").write_text(CORPUS.partition("</sentence>")[0])
    keys.write_text(KEYS)
    with pytest.raises(DataError, match="a sentence without its end"):
        task.read("train")


def test_another_layout_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text("1\tword\tlemma\n")
    with pytest.raises(DataError, match=r"train\.tags:1: 3 columns parted by tabs, not 9 \(tags\)"):
        task_of(tmp_path).read("train")


def test_other_columns_are_read_or_named_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS]))
    (example,) = task_of(tmp_path, "task.columns.tokens=2").read("train")
    assert example.fields["words"][0] == "have"  # the lemma
    for column in ("99", "-10", "sense"):
        wanted = (
            rf"train\.tags:1: no column {column}: there are 9, from 0\n  fix: .*columns\.tags: "
        )
        with pytest.raises(DataError, match=wanted):
            task_of(tmp_path, f"task.columns.tags={column}").read("train")


@pytest.mark.parametrize("piece", ["first", "last"])
def test_only_annotated_words_have_a_label(tmp_path: Path, piece: str, small_text: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS]))
    task = task_of(tmp_path, f"task.piece={piece}")
    examples = task.read("train")
    task.fit_labels(examples)
    assert task.names == ["n.NATURALOBJECT", "v.social"]
    cfg = compose("tokenize", None, ["tokenizer=wordpiece", "tokenizer.vocab_size=120", "out=x"])
    recipe = build(cfg.tokenizer, path="tokenizer")
    tokenizer = Tokenizer.learn(small_text.read_text().splitlines()[:50], recipe)
    rows = task.encode(examples, tokenizer)
    _, start, pieces, _ = rows.spans["word"].T
    assert (pieces > 1).any()
    wanted = np.full(rows.seqs["text"].ids.shape, IGNORE)
    at = start if piece == "first" else start + pieces - 1
    wanted[0, at[0]], wanted[0, at[2]] = 1, 0
    assert np.array_equal(rows.targets["tag"], wanted)
    logits = np.zeros((*wanted.shape, 2))
    logits[0, at[2], 0] = 1
    logits[0, at[0], 1] = 1
    (prediction,) = task.predict({"tag": logits}, rows, examples)
    assert [prediction["guess"][n] for n in (0, 2)] == ["v.social", "n.NATURALOBJECT"]
    assert task.score([prediction])["accuracy"] == 1


def test_scores_by_hand(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS, ROWS[:1]]))
    task = task_of(tmp_path)
    predictions = [
        {"gold": ["a", "_", "b"], "guess": ["a", "b", "a"], "seen": [9, 0, 1]},
        {"gold": ["b", "a"], "guess": ["b", "a"], "seen": [2, 0]},
    ]
    scores = task.score(predictions)
    assert scores["accuracy"] == 3 / 4
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert scores["rare_accuracy"] == 1 / 2  # the words with 1 and 0 occurrences
    assert scores["rare_words"] == 2
    assert scores["majority"] == 1 / 2
    with pytest.raises(ConfigError, match="did you mean 'rare_accuracy'"):
        task_of(tmp_path, "task.metrics=[rare_acuracy]")


def test_how_often_training_has_a_word(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS, ROWS[:1]]))
    task = task_of(tmp_path)  # of an evaluation: nothing was fitted
    task.label_names = ["n.NATURALOBJECT", "v.social"]
    examples = task.read("train")

    rows = SimpleNamespace(
        spans={"word": np.array([*([0, n, 1, n] for n in range(5)), [1, 0, 1, 0]])},
        values={"example": np.array([0, 1])},
    )
    first, second = task.predict({"tag": np.zeros((2, 5, 2))}, rows, examples)
    assert first["seen"] == [2, 1, 1, 1, 1]
    assert second["seen"] == [2]
    assert first["asked"] == [True, False, True, False, False]
    assert (first["rare"], second["rare"]) == ([False, False, True, False, False], [False])


def test_means_over_classes_are_drawn_by_their_counts(tmp_path: Path) -> None:
    (tmp_path / "train.tags").write_text(tags([ROWS]))
    task = task_of(tmp_path, "task.rare=3")
    draw, names = np.random.default_rng(0), [*"abcd"]
    predictions = []
    for _ in range(40):
        n = int(draw.integers(2, 7))
        gold = [[*names, "_"][k] for k in draw.integers(0, 5, n)]
        guess = [g if g in names and draw.random() < 0.6 else names[draw.integers(4)] for g in gold]
        seen = draw.integers(0, 9, n).tolist()
        asked = [tag != "_" for tag in gold]
        rare = [a and s <= 3 for a, s in zip(asked, seen, strict=True)]
        predictions.append(
            {"gold": gold, "guess": guess, "seen": seen, "asked": asked, "rare": rare}
        )
    asked_for = ["accuracy", "macro_f1", "rare_accuracy", "rare_macro_f1", "rare_matthews"]
    task.metrics = asked_for
    forms = find_forms(predictions, task.score, asked_for)
    assert not [name for name, form in forms.items() if isinstance(form, Whole)]
    assert isinstance(forms["macro_f1"], ClassMean)
    form = forms["rare_macro_f1"]
    assert isinstance(form, ClassMean)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_the_distributed_files() -> None:
    task = task_of(SHARED)
    train, dev = task.read("train"), task.read("dev")
    assert (len(train), len(dev)) == (2723, 554)
    task.fit_labels(train)
    assert 35 <= len(task.names) <= 42
    again = task.splits.reader.read_file(SHARED / "streusle.ud_dev.conllulex", {})
    assert len(again) == 554
    pairs = [
        (one, two)
        for e, f in zip(dev, again, strict=True)
        if e.fields == f.fields
        for one, two in zip(e.label, f.label, strict=True)
        if "_" not in (one, two)
    ]
    assert sum(a == b for a, b in pairs) >= 0.9 * len(pairs)
