"""Schemes of entity tags, against spellings by loops and against seqeval."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.readers.schemes import LETTERS, canonical, iob1_to_iob2, spell
from plmctl.tasks.scores.metrics import entities, entity_scores

SPLITS = {"train": ["train.*"], "dev": ["dev.*"], "test": ["test.*"]}
COLUMNS = {"tokens": 0, "tags": -1}
Spans = list[tuple[str, int, int]]


def draw_spans(draw: random.Random, length: int) -> Spans:
    spans, at = [], 0
    while at < length:
        size = min(draw.choice([1, 1, 2, 3]), length - at)
        if draw.random() < 0.6:
            spans.append((draw.choice(["A", "B-C"]), at, at + size - 1))
        at += size
    return spans


def write(spans: Spans, length: int, scheme: str) -> list[str]:
    """The definition of each scheme (Ramshaw and Marcus, 1995; Tjong Kim Sang and Veenstra, 1999;
    Ratinov and Roth, 2009), word by word.
    """
    known = {"bioes": "BIES", "bmes": "BMES", "bmewo": "BMEW", "bilou": "BILU"}
    letters = known.get(scheme, "BIIB")
    tags = ["O"] * length
    for kind, first, last in spans:
        for word in range(first, last + 1):
            if first == last:
                letter = letters[3]
            else:
                letter = letters[0 if word == first else 2 if word == last else 1]
            if scheme == "iob1" and word == first:
                touches = any(k == kind and end == first - 1 for k, _, end in spans)
                letter = "B" if touches else "I"
            tags[word] = f"{letter}-{kind}"
    return tags


def write_file(folder: Path, sentences: list[list[str]], kind: str = "txt") -> Path:
    file = folder / f"train.{kind}"
    lines = ["\n".join(f"w {tag}" for tag in tags) + "\n" for tags in sentences]
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("scheme", LETTERS)
def test_every_scheme_is_told_from_its_tags(scheme: Any, tmp_path: Path) -> None:
    draw = random.Random(scheme)
    spans = [draw_spans(draw, 12) for _ in range(30)]
    file = write_file(tmp_path, [write(own, 12, scheme) for own in spans])
    reader = Columns(splits=SPLITS, scheme="auto")
    found = [example.label for example in reader.read_file(file, COLUMNS)]
    same = {"iob1": "iob2", "bmes": "bioes", "bmewo": "bioes", "bilou": "bioes"}
    wanted = same.get(scheme, scheme)
    assert found == [write(own, 12, wanted) for own in spans]
    assert f"as {scheme} " in reader.notes[str(file)]
    assert found == [
        example.label for example in Columns(splits=SPLITS, scheme=scheme).read_file(file, COLUMNS)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", LETTERS)
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_seqeval(scheme: str, seed: int) -> None:
    """On well-formed tags in its strict mode, which knows the scheme."""
    metrics = pytest.importorskip("seqeval.metrics")
    known = __import__("seqeval.scheme", fromlist=["IOB2"])
    official = {"iob1": known.IOB1, "iob2": known.IOB2, "bilou": known.BILOU}.get(
        scheme, known.IOBES
    )
    draw = random.Random(seed)
    both = []
    for _ in range(25):
        gold, guess = draw_spans(draw, 9), draw_spans(draw, 9)
        guess = [span for span in gold if draw.random() < 0.5] or guess
        both.append([write(spans, 9, scheme) for spans in (gold, guess)])
    # seqeval has neither BMES nor BMEWO: IOBES with M for I and W for S
    others = {"bmes": {"M-": "I-"}, "bmewo": {"M-": "I-", "W-": "S-"}}.get(scheme, {})
    letters = [
        [[others.get(tag[:2], tag[:2]) + tag[2:] for tag in side] for side in pair] for pair in both
    ]
    golds, guesses = ([pair[n] for pair in letters] for n in (0, 1))
    ours = entity_scores(*([iob1_to_iob2(canonical(pair[n])) for pair in both] for n in (0, 1)))
    for name, score in ours.items():
        function = getattr(metrics, f"{name}_score")
        assert score == pytest.approx(function(golds, guesses, mode="strict", scheme=official))


@pytest.mark.parametrize("seed", range(10))
def test_ill_formed_tags_count_as_conlleval_counts_them(seed: int) -> None:
    """seqeval's default mode is conlleval with S- (Tjong Kim Sang and Buchholz, 2000)."""
    metrics = pytest.importorskip("seqeval.metrics")
    draw = random.Random(seed)
    known = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in "XY")]
    gold, guess = ([[draw.choice(known) for _ in range(12)] for _ in range(50)] for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = {
            name: getattr(metrics, f"{name}_score")(gold, guess)
            for name in ("f1", "precision", "recall")
        }
    assert entity_scores(gold, guess) == pytest.approx(wanted)


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_entities_are_spelled_and_found_again(scheme: Any) -> None:
    draw = random.Random(scheme)
    for _ in range(200):
        spans = draw_spans(draw, 10)
        tags = spell(spans, 10, scheme)
        assert tags == write(spans, 10, scheme)
        assert entities(tags) == set(spans)
    assert spell([("", 1, 2)], 4, "bioes") == ["O", "B", "E", "O"]  # without types


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        (["NN", "I", "VB"], ["NN", "I", "VB"]),  # parts of speech
        (["N", "S", "I"], ["N", "S", "I"]),
        (["S[dcl]\\NP", "N/N", "O"], ["S[dcl]\\NP", "N/N", "O"]),  # categories of CCG
        (["B", "M", "E", "O", "S"], ["B", "M", "E", "O", "S"]),  # words of Chinese, without types
        (["O", "O"], ["O", "O"]),
    ],
)
def test_other_tags_are_left_alone(tags: list[str], wanted: list[str], tmp_path: Path) -> None:
    file = write_file(tmp_path, [tags])
    assert Columns(splits=SPLITS, scheme="auto").read_file(file, COLUMNS)[0].label == wanted


@pytest.mark.parametrize(
    ("sentences", "scheme", "message"),
    [
        (
            [["B-A", "I-A"], ["O", "I-A"]],
            "auto",
            r"train.txt:4: I-A at the begin of a sentence or after O \(in the sentence of line 4\)"
            r" is IOB1, B-A at the begin .* is IOB2.*\n.*scheme=iob1",
        ),
        ([["B-A", "M-A", "I-A"]], "auto", "begin with B, I, M and O: no scheme"),
        ([["B-A", "E-A"], ["U-A"]], "auto", "begin with B, E, U and O: no scheme"),
        ([["I-A", "E-A"]], "auto", "begin with E, I and O: no scheme"),
        ([["O"], ["B-A", "E-A"]], "iob2", "train.txt:3: iob2 has O, B-, I- .* not E-A"),
        ([["NN"]], "bioes", "train.txt:1: bioes has O, B-, I-, E-, S- .* not NN"),
    ],
)
def test_tags_of_no_scheme(
    sentences: list[list[str]], scheme: Any, message: str, tmp_path: Path
) -> None:
    file = write_file(tmp_path, sentences)
    with pytest.raises(DataError, match=message):
        Columns(splits=SPLITS, scheme=scheme).read_file(file, COLUMNS)


def make_task(path: Path, *words: str, name: str = "tagging") -> Any:
    spec = config.compose(
        "finetune", None, [f"task={name}", f"task.path={path}", "checkpoint=null", *words]
    )
    return build(spec.task, {"pooling": "first"}, path="task")


def test_a_task_spells_entities_as_it_is_told(tmp_path: Path) -> None:
    write_file(tmp_path, [["I-A", "I-A", "B-A", "O", "I-B"]])
    labels = {}
    for scheme in ("null", "iob1", "iob2", "bioes"):
        task = make_task(tmp_path, f"task.scheme={scheme}")
        task.fit_labels(examples := task.read("train"))
        labels[scheme] = examples[0].label
        assert {tag[0] for tag in task.names} <= {"O", *LETTERS.get(scheme, "BI")}
    assert labels == {
        "null": ["B-A", "I-A", "B-A", "O", "B-B"],
        "iob1": ["I-A", "I-A", "B-A", "O", "I-B"],
        "iob2": ["B-A", "I-A", "B-A", "O", "B-B"],
        "bioes": ["B-A", "E-A", "S-A", "O", "S-B"],
    }


def test_files_for_eval_are_spelled_alike(tmp_path: Path) -> None:
    task = make_task(tmp_path, "task.scheme=bioes")
    file = tmp_path / "new.jsonl"
    file.write_text('{"tokens": ["a", "b"], "tags": ["B-A", "I-A"]}\n')
    assert task.splits.read_file(file, COLUMNS)[0].label == ["B-A", "E-A"]


def test_parts_of_speech_have_no_scheme(tmp_path: Path) -> None:
    write_file(tmp_path, [["NN", "VB"]])
    with pytest.raises(ConfigError, match=r"task.scheme='bioes': null: the tags at .*train.txt:1"):
        make_task(tmp_path, "task.scheme=bioes").read("train")
    with pytest.raises(ConfigError, match=r"task.scheme='bio'"):
        make_task(tmp_path, "task.scheme=bio")
    with pytest.raises(ConfigError, match=r"task.reader.scheme='bieos'.*bioes"):
        make_task(tmp_path, "task.reader.scheme=bieos")


@pytest.mark.parametrize(("first", "second"), [("iob2", "bioes"), ("bilou", "iob1")])
def test_splits_in_two_schemes_are_spelled_as_the_first(
    first: str, second: str, tmp_path: Path
) -> None:
    draw = random.Random(first)
    spans = [draw_spans(draw, 12) for _ in range(20)]
    task = make_task(tmp_path)
    found = {}
    for split, scheme in (("train", first), ("dev", second)):
        file = write_file(tmp_path, [write(own, 12, scheme) for own in spans])
        found[split] = [example.label for example in task.splits.read_file(file, COLUMNS)]
    assert found["dev"] == found["train"]
    assert found["train"] == [
        write(own, 12, "iob2" if first == "iob2" else "bioes") for own in spans
    ]


def test_a_split_is_spelled_as_the_known_labels(tmp_path: Path) -> None:
    spans = [[("A", 0, 0), ("A", 2, 4)]]
    task = make_task(tmp_path, "task.label_names=[O,B-A,I-A,E-A,S-A]")
    file = write_file(tmp_path, [write(own, 6, "iob2") for own in spans])
    (example,) = task.splits.read_file(file, COLUMNS)
    assert example.label == write(spans[0], 6, "bioes")
