"""Surprisals of words, and what they add to a regression on reading times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import stats

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.probes.base import Opened
from plmctl.probes.surprisal import ROWS, Surprisal, TimedWord
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.device.precision import Precision
from plmctl.use.likelihood import Likelihood, Way, find_ways, make_scoring
from tests.probes.test_minimal_pairs import make

CPU = torch.device("cpu")


@torch.no_grad()
def test_the_bits_of_a_word_are_those_of_its_pieces(gpt_toy) -> None:
    model = make("gpt2", gpt_toy.vocab)
    text = ["the", "souvenirs", "were", "sold."]
    words = [TimedWord("1", place, word) for place, word in enumerate(text, start=1)]
    words += [TimedWord("2", 1, "whatever")]
    found = Surprisal(path="x").find_surprisal(model, gpt_toy, words, "next", CPU)
    scoring = make_scoring("next", model, find_ways(model, gpt_toy.vocab)["next"], gpt_toy)
    logs = Likelihood(model, scoring, CPU).score_tokens([gpt_toy.encode(" ".join(text))])[0]
    pieces = [1, 3, 2, 3]  # of three letters, and the mark
    expected = [-part.sum() / np.log(2) for part in np.split(logs, np.cumsum(pieces)[:-1])]
    assert [word.bits for word in found[:4]] == pytest.approx(expected)
    whole = Likelihood(model, scoring, CPU).score([gpt_toy.encode("whatever")])[0]
    assert found[4].bits == pytest.approx(-whole / np.log(2))


@torch.no_grad()
@pytest.mark.parametrize("way", ["next", "bare"])
def test_each_token_has_its_log_probability(way: Way, gpt_toy) -> None:
    """By a loop over prefixes; a row of `out` for each, whose sum is that of the words."""
    model, text = make("gpt2", gpt_toy.vocab), ["the", "souvenirs", "were", "sold."]
    words = [TimedWord("1", place, word) for place, word in enumerate(text, start=1)]
    found = Surprisal(path="x").find_surprisal(model, gpt_toy, words, way, CPU)
    shown: Any = SimpleNamespace(show=lambda ids: [f"piece {ids[0]}"])
    rows = [row for word in found for row in ROWS["token"](word, shown)]
    ids = gpt_toy.encode(" ".join(text))
    assert [(row["place"], row["id"]) for row in rows] == [*enumerate(ids, start=1)]
    assert [row["token"] for row in rows] == [f"piece {number}" for number in ids]
    before = [gpt_toy.vocab.eos] if way == "next" else []
    read = torch.tensor([[*before, *ids]])
    batch = Batch(torch.arange(1), {"text": Seq(read, torch.tensor([read.shape[1]]))})
    logs = model.heads["clm"](model(batch).last)[0].log_softmax(-1)
    wanted = [float(logs[n - 1, read[0, n]]) for n in range(1, read.shape[1])]
    own = [row["log_prob"] for row in rows]
    assert own[len(ids) - len(wanted) :] == pytest.approx(wanted, abs=1e-5)
    assert own[: len(ids) - len(wanted)] == [None] * (way == "bare")
    total = sum(value for value in own if value is not None)
    assert -total / np.log(2) == pytest.approx(sum(word.bits for word in found))


def test_the_gain_as_a_loop() -> None:
    generator = np.random.default_rng(1)
    words = []
    for number in range(240):
        place, text = number % 6 + 1, "x" * int(generator.integers(1, 9))
        bits = float(generator.gamma(2, 3))
        time = 200 + 5 * len(text) + 12 * bits + float(generator.normal(0, 20))
        missing = number % 17 == 0
        words.append(TimedWord(str(number // 6), place, text, None if missing else time, bits))
    gains = Surprisal(path="x", spillover=1, folds=4).compare(words)
    used = [n for n, word in enumerate(words) if word.time is not None and word.place > 1]
    assert len(gains) == len(used)
    expected = []
    for fold in range(4):
        out = [n for i, n in enumerate(used) if i * 4 // len(used) == fold]
        rest = [n for n in used if n not in out]
        values = []
        for columns in (lambda n: base(words, n), lambda n: [*base(words, n), *bits_of(words, n)]):
            x = np.array([columns(n) for n in rest])
            y = np.array([words[n].time for n in rest])
            weights = np.linalg.solve(x.T @ x, x.T @ y)
            spread = np.sqrt(np.mean((y - x @ weights) ** 2))
            means = [float(np.array(columns(n)) @ weights) for n in out]
            times = [words[n].time for n in out]
            values.append(stats.norm.logpdf(times, means, spread))
        expected += (values[1] - values[0]).tolist()
    assert gains == pytest.approx(expected, abs=1e-8)
    assert gains.mean() > 0.5  # the times were made of surprisals
    noise = [replace(word, bits=float(generator.gamma(2, 3))) for word in words]
    assert Surprisal(path="x", folds=4).compare(noise).mean() < 0.05


def base(words: list[TimedWord], n: int) -> list[float]:
    return [1, words[n].place, len(words[n].text), len(words[n - 1].text)]


def bits_of(words: list[TimedWord], n: int) -> list[float]:
    return [words[n].bits, words[n - 1].bits]


def test_frequencies_are_counts_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("The cat. A cat sees the cat.\n", encoding="utf-8")
    words = [TimedWord("1", n, text, 1.0) for n, text in enumerate(("cat,", "the", "zebra"), 1)]
    part = Surprisal(path="x", frequencies=str(file), spillover=0)
    base, bits, times = part._predictors(words)
    often = np.log2([4, 3, 1])
    length = np.array([4, 3, 5])
    assert base == pytest.approx(
        np.stack([np.ones(3), [1, 2, 3], length, often, length * often], 1)
    )
    assert bits.shape == (3, 1)
    assert times.tolist() == [1, 1, 1]


def test_tables_and_texts(tmp_path: Path) -> None:
    table = tmp_path / "times.tsv"
    rows = ["word\tsentence\ttime", "She\ta\t210", "reads.\ta\t", "He\tb\t199.5"]
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert Surprisal(path=str(table)).read() == [
        TimedWord("a", 1, "She", 210),
        TimedWord("a", 2, "reads."),
        TimedWord("b", 1, "He", 199.5),
    ]
    text = tmp_path / "text.txt"
    text.write_text("She reads.\nHe sleeps.\n", encoding="utf-8")
    words = Surprisal(path=str(text)).read()
    assert [(word.sentence, word.place, word.text) for word in words] == [
        ("1", 1, "She"),
        ("1", 2, "reads."),
        ("2", 1, "He"),
        ("2", 2, "sleeps."),
    ]


@pytest.mark.parametrize(
    ("cells", "times"),
    [
        (["312,5", "210", ""], [312.5, 210, None]),
        (["1.312,50", "-210,5", "NA"], [1312.5, -210.5, None]),
        (["1.312,500", "7", "8"], [1312.5, 7, 8]),
        (["312", "0", "0.0"], [312, None, None]),  # skipped words
        (["-0.5", "0", "1.5"], [-0.5, 0, 1.5]),  # centred times
        (["312", "210", "-9", "250"], "a.csv:4: the time -9 is negative\n  fix: "),
        (
            ["312,5", "210.5", "3"],
            "a.csv:2: the time '312,5' is no number\n  fix: # write 312.5 in",
        ),
        (["312", "1,312", "3"], "a.csv:3.*\n  fix: # write 1.312 or 1312: the comma may be"),
        (["312,5", "1.312", "3"], "a.csv:2: .*\n  fix: # write 312.5"),
        (["312,5", "1,2,3", "3"], "a.csv:3: .*\n  fix: # write a number, or leave"),
    ],
)
def test_times_of_a_file_may_have_decimal_commas(
    tmp_path: Path, cells: list[str], times: list[float | None] | str
) -> None:
    file = tmp_path / "a.csv"
    rows = [f"w;1;{cell}" for cell in cells]
    file.write_text("\n".join(["word;sentence;time", *rows]) + "\n")
    if isinstance(times, str):
        with pytest.raises(DataError, match=times):
            Surprisal(path=str(file)).read()
    else:
        assert [word.time for word in Surprisal(path=str(file)).read()] == times


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({}, ConfigError, "a column word"),
        ({"path": "gone"}, DataError, "no such file"),
        ({"path": "wrong.tsv"}, DataError, r"(?s)wrong\.tsv:2.*no word.*task.columns.word=token"),
        (
            {"path": "other.csv"},
            DataError,
            r"(?s)no column 'sentence'.*task.columns.sentence=sent$",
        ),
        ({"path": "whole.csv"}, DataError, r"(?s)task.columns.sentence=null.*all words are one"),
        ({"path": "late.tsv", "columns": {"time": "RT"}}, DataError, r"(?s)no column 'RT'"),
        ({"path": "x", "columns": {"tme": "RT"}}, ConfigError, "did you mean 'time'"),
        ({"path": "late.tsv"}, DataError, r"late\.tsv:2.*'soon' is no number"),
        ({"path": "x", "folds": 1}, ConfigError, "2 or more"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, monkeypatch, settings, error, words) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.tsv").write_text("token\ttime\na\t1\n", encoding="utf-8")
    Path("late.tsv").write_text("word\tsentence\ttime\na\t1\tsoon\n", encoding="utf-8")
    Path("other.csv").write_text("word,sent,RT\na,1,210\n", encoding="utf-8")
    Path("whole.csv").write_text("word,time\na,210\n", encoding="utf-8")
    with pytest.raises(error, match=words):
        Surprisal(**settings).read()


def test_columns_have_other_names_in_a_file(tmp_path, caplog) -> None:
    file = tmp_path / "times.csv"
    file.write_text("token,sent,RT\nShe,1,210\nHe,2,200\n", encoding="utf-8")
    names = {"word": "token", "sentence": "sent"}
    wanted = [TimedWord("1", 1, "She", 210), TimedWord("2", 1, "He", 200)]
    assert Surprisal(path=str(file), columns={**names, "time": "RT"}).read() == wanted
    assert not caplog.messages
    bits = [replace(word, time=None) for word in wanted]
    assert Surprisal(path=str(file), columns=names).read() == bits
    assert "task.columns.time=RT" in caplog.messages[0]
    one = Surprisal(path=str(file), columns={**names, "sentence": None, "time": None}).read()
    assert [(word.place, word.time) for word in one] == [(1, None), (2, None)]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("number", "spillover"), [(8, 1), (15, 1), (8, 0)])
def test_too_few_times_are_refused(number: int, spillover: int) -> None:
    words = [TimedWord("1", n, "a", 1.0) for n in range(1, number)]
    part = Surprisal(path="x", spillover=spillover)
    with pytest.raises(DataError, match=f"{number - 1 - spillover} words with a time") as error:
        part.compare(words)
    # the setting is named where it is enough
    assert ("task.spillover=0" in str(error.value)) is (number == 15)
    lacking = int(str(error.value).rpartition(" more word")[0].rpartition(" ")[2])
    more = [TimedWord("1", n, "a" * (n % 5), 1.0 + n % 3) for n in range(1, number + lacking)]
    assert len(part.compare(more)) == number - 1 - spillover + lacking


def open_toy(tokenizer: Any, folder: Path) -> Opened:
    model, source = make("gpt2", tokenizer.vocab), SimpleNamespace(folder=folder)
    loaded = SimpleNamespace(model=model, vocab=tokenizer.vocab, tokenizer=tokenizer, source=source)
    return Opened(cast(Any, loaded), Precision("fp32", CPU), "x")


def test_the_share_of_unknown_tokens_is_told_and_most_are_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 9, kind="wordpiece", vocab_size=26)
    file = tmp_path / "text.txt"
    file.write_text("the cat sat\non the 猫 mat\n", encoding="utf-8")
    opened = open_toy(tokenizer, tmp_path)
    told = Surprisal(path=str(file)).measure(opened).to_json()
    assert told["unknown"] == pytest.approx(1 / 7, abs=1e-4)
    assert told["remarks"]["unknown"] == "14.3% of the tokens are unknown"
    assert told["remarks"]["sentences"] == "2, one a line, each read alone"
    file.write_text("今天 去 学校\nthe\n", encoding="utf-8")
    with pytest.raises(DataError, match="83% of its tokens are unknown"):
        Surprisal(path=str(file)).measure(opened)


def test_the_number_of_an_interval_is_that_of_its_words(gpt_toy, tmp_path: Path) -> None:
    file = tmp_path / "times.tsv"
    lines = [f"w\t{n // 4}\t{200 + n % 7}" for n in range(40)]
    file.write_text("\n".join(["word\tsentence\ttime", *lines]), encoding="utf-8")
    told = Surprisal(path=str(file)).measure(open_toy(gpt_toy, tmp_path)).to_json()
    assert told["sentences"] == 10
    assert told["remarks"]["sentences"] == "10, by task.columns.sentence=sentence, each read alone"
    assert told["examples"] == {"times.tsv": 30}
    assert (told["words"], told["times"]) == (40, 30)
    assert "30 words of 40; the others have too few words before" in told["remarks"]["times"]
    # length and bits of two words, the place and a constant
    few = "6 predictors are fitted to 27 words; 60 are the least"
    assert few in told["remarks"]["too few words"]


@pytest.mark.parametrize(("number", "few"), [(66, True), (67, False)])
def test_a_regression_needs_ten_words_for_each_predictor(number: int, few: bool) -> None:
    """Six predictors; of 66 words, 59 are fitted, of 67 are 60."""
    words = [TimedWord("1", n, "a" * (n % 5), 1.0 + n % 3) for n in range(1, number + 2)]
    assert bool(Surprisal(path="x")._remark_few(words)) is few
