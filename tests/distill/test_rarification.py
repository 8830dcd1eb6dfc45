"""Dataset rarification against its definition, with a model that goes by one word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import DataError
from plmctl.distill.rarification import rarify, replace_share, replace_words
from plmctl.knowledge.substitutes import (
    Substitute,
    find_synonyms,
    misspell,
    read_substitutes,
    spell_substitutes,
)
from plmctl.knowledge.words import WordCounts

KNOWN = {
    "good": (Substitute("swell", "synonym", 12), Substitute("godo", "misspelling", 0)),
    "film": (Substitute("flick", "synonym", 40),),
}


def test_synonyms_are_rare_and_words_frequent():
    counts = {"film": 500, "flick": 99, "movie": 100, "pic": 9, "picture": 10}
    pairs = [("flick", "film"), ("film", "movie"), ("film", "pic"), ("picture", "film")]
    pairs += [("moving picture", "film"), ("movie", "flick"), ("picture", "film")]
    found = find_synonyms(pairs, counts, least=10, below=100)
    assert {word: [(s.word, s.count) for s in own] for word, own in found.items()} == {
        "film": [("flick", 99), ("picture", 10)],
        "movie": [("flick", 99)],
    }


def test_misspellings_are_one_slip_away():
    draws = np.random.default_rng(0)
    slips = misspell("film", 99, {"flim"}, draws)
    assert slips == sorted(
        {"iflm", "fiml", "flm", "fim", "fil", "ffilm", "fiilm", "fillm", "filmm"}
    )
    assert len(misspell("film", 2, set(), draws)) == 2


def predict(texts):
    """Positive where the first known word of the text is good; hidden words say nothing."""
    return ["1" if "good" in own["text"].lower().split() else "0" for own in texts]


def test_kept_are_those_whose_hidden_word_decides():
    examples = [
        {"text": "a Good film"},  # good decides
        {"text": "a film of note"},  # no word decides: always 0
        {"text": "good", "text2": "film"},  # good decides
        {"text": "film , good"},  # film is hidden first, then good: both
        {"text": "nothing"},  # no known word
        {"text": "good good fun"},  # labelled otherwise: the model is wrong
    ]
    labels = ["1", "0", "1", "1", "0", "0"]
    made = rarify(examples, labels, predict, KNOWN, hidden="[MASK]", most=5, seed=0)
    assert [one.number for one in made] == [0, 2, 3]
    assert sorted(made[0].substitutes) == ["good"]
    assert made[0].texts["text"] in ("a swell film", "a godo film")
    assert made[1].texts["text2"] == "film"
    assert sorted(made[2].substitutes) == ["film", "good"]
    assert made[2].texts["text"].startswith("flick , ")
    again = rarify(examples, labels, predict, KNOWN, hidden="[MASK]", most=5, seed=0)
    assert [one.texts for one in again] == [one.texts for one in made]
    fewer = rarify(examples, labels, predict, KNOWN, hidden="[MASK]", most=1, seed=0)
    assert [one.number for one in fewer] == [0, 2]


def test_words_are_replaced_and_nothing_else():
    assert replace_words({"text": "Film, films; film's FILM"}, {"film": "flick"}) == {
        "text": "flick, films; film's flick"
    }
    texts = {"text": "good film " * 500}
    draws = np.random.default_rng(0)
    hidden = replace_share(texts, KNOWN, 0.1, draws, "[MASK]")["text"]
    assert 70 <= hidden.count("[MASK]") <= 130
    assert hidden.replace("[MASK]", "X").split()[0] in ("good", "X")
    swapped = replace_share(texts, KNOWN, 1.0, draws, None)["text"].split()
    assert set(swapped) == {"swell", "godo", "flick"}
    assert 150 <= swapped.count("swell") <= 350


def test_tables_of_substitutes(tmp_path: Path):
    (tmp_path / "s.tsv").write_text(spell_substitutes(KNOWN))
    read = read_substitutes(tmp_path / "s.tsv", {"swell": 12, "flick": 40})
    assert read == KNOWN
    (tmp_path / "s.tsv").write_text("film\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"s.tsv:1: 'film' is no word with its substitute"):
        read_substitutes(tmp_path / "s.tsv", {})


def plmctl(*given: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(given))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.slow  # test_help_examples.py runs the command
def test_both_calls(tmp_path: Path):
    data, out, run = tmp_path / "data", tmp_path / "out", tmp_path / "run"
    data.mkdir()
    rows = [f"{n % 2}\tit was a {'good' if n % 2 else 'dull'} film number {n}" for n in range(120)]
    (data / "train.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "s.tsv").write_text("good\tswell\nfilm\tflick\ndull\tdreary\n", encoding="utf-8")
    task = ["task=classification", f"task.path={data}", "task.columns.text=text"]
    asked = ["data", "rarify", *task, f"out={out}", "misspellings=1"]
    assert "says which words are rare" in plmctl(*asked, code=2)
    shares = ["hidden_share=0.5", "replaced_share=0.5", "--json"]
    said = plmctl(*asked, f"substitutes={tmp_path / 's.tsv'}", *shares)
    counts = json.loads(said.splitlines()[-1])
    counted = {"training": 60, "candidates": 60, "words with substitutes": 3}
    assert counts == {"out": str(out), **counted}
    sizes = {
        name: len((out / f"{name}.tsv").read_text(encoding="utf-8").splitlines()) - 1
        for name in ("baseline/train", "tested/train", "candidates")
    }
    assert sizes == dict.fromkeys(sizes, 60)
    texts = (out / "baseline/train.tsv").read_text(encoding="utf-8")
    assert 30 <= texts.count("[MASK]") <= 90
    tested = (out / "tested/train.tsv").read_text(encoding="utf-8")
    assert "[MASK]" not in tested
    assert "flick" in tested
    kinds = {line.split("\t")[2] for line in (out / "substitutes.tsv").read_text().splitlines()}
    assert kinds == {"synonym", "misspelling"}
    small = ["size=tiny", "size.width=32", "size.inner_width=64", "task.max_length=16"]
    plmctl(
        *("finetune", *task[:1], f"task.path={out / 'baseline'}", "task.columns.text=text"),
        *("checkpoint=null", *small, f"run.dir={run}", "train.epochs=15", "train.batch_size=8"),
        *("tokenizer=word", "tokenizer.vocab_size=60", "optim.lr=5e-3", "train.keep_best=false"),
    )
    said = plmctl("data", "rarify", f"checkpoint={run}", f"out={out}", "--json")
    counts = json.loads(said.splitlines()[-1])
    dev = (out / "tested/dev.tsv").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in (out / "rarified.jsonl").read_text().splitlines()]
    assert dev[0] == "label\ttext"
    assert len(dev) - 1 == len(records) == counts["rarified"] > 0
    assert counts["share"] == pytest.approx(len(records) / 60, abs=1e-6)
    for line, record in zip(dev[1:], records, strict=True):
        assert all(other in line for other in record["words"].values())
    missing = plmctl("data", "rarify", f"checkpoint={run}", f"out={tmp_path / 'no'}", code=3)
    assert "no candidates here" in missing


def test_counts_come_from_contexts(tmp_path: Path):
    WordCounts(("good", "swell"), (200, 12)).write(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_text("label\ttext\n0\ta\n1\tb\n", encoding="utf-8")
    words = ["task=classification", f"task.path={data}", f"counts={tmp_path}", "wordnet=/none"]
    output = plmctl("data", "rarify", *words, f"out={tmp_path / 'out'}", code=3)
    assert "WordNet" in output or "wordnet" in output
