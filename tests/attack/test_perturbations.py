"""Perturbed texts, and their table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.attack.perturbations import (
    MissingWords,
    NoPunctuation,
    OtherCase,
    OtherOrder,
    Perturbation,
    Typos,
    slip,
)
from plmctl.attack.slips import KEYS
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError
from tests.command import plmctl

TEXT = "It's a well-made film, and I (really) liked it 100 times."
CHINESE = "这部电影很好看，我非常喜欢。"


def list_slips(word: str) -> set[str]:
    """Every slip of a word, by definition."""
    found = {word[:n] + word[n + 1] + word[n] + word[n + 2 :] for n in range(len(word) - 1)}
    for n, letter in enumerate(word):
        found |= {word[:n] + word[n + 1 :], word[: n + 1] + word[n:]}
        found |= {word[:n] + key + word[n + 1 :] for key in KEYS.get(letter.lower(), "")}
        found |= {word[:n] + key.upper() + word[n + 1 :] for key in KEYS.get(letter.lower(), "")}
    return found


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_as_many_words_as_asked_have_a_slip(rate: float) -> None:
    plain = "It was a very good film, and I (really) liked it 100 times."
    first, now = WordText.of(plain), WordText.of(Typos(rate=rate)(plain))
    able = [n for n in range(len(first)) if not first.word(n).isdigit()]
    changed = first.differing(now)
    assert set(changed) <= set(able)
    assert all(now.word(n) in list_slips(first.word(n)) for n in changed)
    count = max(1, round(rate * len(able)))
    # two equal letters that change places are no change
    assert count - 2 <= len(changed) <= count
    assert first.pieces[::2] == now.pieces[::2]


def test_slips_are_of_the_kinds_that_are_named() -> None:
    draws = np.random.default_rng(0)
    found = {slip("film", draws) for _ in range(400)}
    lower = {each for each in list_slips("film") if each.islower()}
    assert found <= lower
    assert len(found) > len(lower) / 2
    assert {slip("a", draws) for _ in range(100)} == {"aa", *KEYS["a"]}


def test_what_is_drawn_follows_from_the_seed_and_the_text() -> None:
    makes: list[Callable[[int], Perturbation]] = [
        lambda seed: Typos(rate=0.5, seed=seed),
        lambda seed: MissingWords(rate=0.5, seed=seed),
    ]
    for make in makes:
        for text in (TEXT, CHINESE):
            assert make(1)(text) == make(1)(text) != text
            assert len({make(seed)(text) for seed in range(8)}) > 2


def test_words_or_sentences_stand_in_another_order() -> None:
    first = WordText.of(TEXT)
    for seed in range(5):
        now = WordText.of(OtherOrder(of="words", seed=seed)(TEXT))
        assert now.pieces[::2] == first.pieces[::2]  # marks and spaces stay
        words = [[text.word(n) for n in range(len(text))] for text in (first, now)]
        assert sorted(words[0]) == sorted(words[1])
        assert words[0] != words[1]
    for text, sentences in (
        ("Is it 3.5? Yes.  Go!", {"Is it 3.5?", "Yes.", "Go!"}),
        ("很好。我喜欢！你呢？", {"很好。", "我喜欢！", "你呢？"}),
    ):
        made = {OtherOrder(of="sentences", seed=seed)(text) for seed in range(60)}
        assert len(made) == 6  # every order of three
        for each in made:
            assert len(each) == len(text)
            assert all(sentence in each for sentence in sentences)
    assert OtherOrder(of="sentences")("one alone") == "one alone"


def test_chinese_characters_change_places_or_are_missing() -> None:
    for seed in range(10):
        now = Typos(rate=0.2, seed=seed)(CHINESE)
        assert now != CHINESE
        assert not set(now) - set(CHINESE)
        assert len(CHINESE) - 3 <= len(now) <= len(CHINESE)
    assert len(MissingWords(rate=0.5)(CHINESE)) == len(CHINESE) - 6


def test_case_and_punctuation() -> None:
    assert OtherCase(to="upper")("A film.") == "A FILM."
    assert OtherCase(to="lower")("A Film.") == "a film."
    assert OtherCase(to="title")("a film.") == "A Film."
    assert NoPunctuation()(TEXT) == "Its a well made film and I really liked it 100 times"
    assert NoPunctuation()(CHINESE) == "这部电影很好看 我非常喜欢"
    assert MissingWords(rate=0.5)("one two three four").count(" ") == 1
    for part in (Typos(rate=1.0), OtherCase(to="upper"), NoPunctuation(), MissingWords(rate=1.0)):
        assert part("") == ""
    assert len(WordText.of(MissingWords(rate=1.0)("one two three"))) == 1
    with pytest.raises(ConfigError, match="rate"):
        Typos(rate=0.0)


def evaluate(run: Path, out: Path, *words: str) -> dict[str, Any]:
    said = plmctl("eval", f"checkpoint={run}", f"out={out}", "--json", *words)
    metrics: dict[str, Any] = json.loads(said)["metrics"]
    return metrics


def test_the_table_has_a_column_for_each_perturbation(run: Path, tmp_path: Path) -> None:
    asked = ["perturb=[typos,missing]", "perturb.missing.rate=0.6", "perturb.typos.rate=1.0"]
    table = evaluate(run, tmp_path, *asked)
    plain = evaluate(run, tmp_path)["dev"]
    assert list(table) == ["dev", "typos", "missing"]
    for kind in ("typos", "missing"):
        own = table[kind]
        assert own["difference"] == pytest.approx(own["accuracy"] - plain["accuracy"], abs=1e-4)
        assert 0 <= own["calibration error"] <= 1
    assert table["dev"]["accuracy"] == plain["accuracy"]
    assert table["typos"]["difference"] < 0
    assert evaluate(run, tmp_path, *asked) == table
    for kind in ("typos", "missing"):
        answers = [json.loads(line) for line in (tmp_path / f"dev-{kind}.jsonl").open()]
        right = sum(answer["gold"] == answer["guess"] for answer in answers) / len(answers)
        assert right == pytest.approx(table[kind]["accuracy"], abs=1e-4)
        lines = (run.parent / "dev.tsv").read_text().splitlines()[1:]
        assert [answer["text"] for answer in answers] != [line.split("\t")[0] for line in lines]
    # the same scores as those of a file with the changed texts
    lines = (run.parent / "dev.tsv").read_text().splitlines()
    change = Typos(rate=1.0, seed=0)
    rows = [line.split("\t") for line in lines[1:]]
    folder = tmp_path / "typos"
    folder.mkdir()
    content = "\n".join([lines[0], *(f"{change(a)}\t{b}" for a, b in rows)]) + "\n"
    (folder / "dev.tsv").write_text(content)
    other = evaluate(run, tmp_path / "x", "task=classification", f"task.path={folder}")["dev"]
    assert other["accuracy"] == table["typos"]["accuracy"]
    assert other["loss"] == pytest.approx(table["typos"]["loss"], rel=1e-3)


def test_what_changes_nothing_says_so(run: Path, tmp_path: Path) -> None:
    asked = ["perturb=[punctuation,case]", "perturb.case.to=upper"]
    said = json.loads(plmctl("eval", f"checkpoint={run}", f"out={tmp_path}", "--json", *asked))
    assert said["remarks"]["punctuation"] == "changes no text of dev: its column is that of dev"
    assert said["remarks"]["case"] == "changes texts, and no token of them that the model reads"
    assert said["metrics"]["punctuation"]["difference"] == 0
    assert said["metrics"]["punctuation"]["loss"] == said["metrics"]["dev"]["loss"]


def test_texts_without_labels_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("this fine film is great\n")
    words = [f"input={tmp_path / 'lines.txt'}", "perturb=[case]"]
    said = plmctl("eval", f"checkpoint={run}", *words, code=2)
    assert "without labels there is no score" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["checkpoint=[{run},{run}]"], "several checkpoints"),
        (["checkpoint={run}", "--submission"], "a leader board"),
        (["checkpoint={run}", "task=lm", "data.path={run}"], "only texts of a task of fine-tuning"),
    ],
)
def test_what_has_no_table_of_perturbations_is_refused(
    run: Path, words: list[str], reason: str
) -> None:
    given = [word.format(run=run) for word in words]
    said = plmctl("eval", *given, "perturb=[case]", code=2)
    assert reason in " ".join(said.split())
