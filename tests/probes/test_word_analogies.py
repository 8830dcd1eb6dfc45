"""Analogies: answers as a loop over all words, sections and coverage, and files of vectors in place
of a model, in `eval` and `embed`.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.subwords import Ngrams, Subwords
from plmctl.knowledge.vector_files import write_static
from plmctl.probes.word_analogies import WordAnalogies

WORDS = [f"w{n}" for n in range(30)]
TABLE = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
QUESTIONS = """: capital-common
w0 w1 w2 w3
W4 w5 w6 w7
w8 nowhere w9 w10

: gram1-adverb
w1 w2 w3 w4
w9 w8 w7 w6
: gram2-none
nowhere w1 w2 w3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "questions-words.txt"
    place.write_text(QUESTIONS)
    return place


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def answer(question: list[str], by: str) -> str:
    """The best word, by one formula of cosines for each."""
    a, b, c = (TABLE[WORDS.index(word)] for word in question[:3])
    scores = {}
    for word, x in zip(WORDS, TABLE, strict=True):
        if word in question[:3]:
            continue
        if by == "add":
            scores[word] = cosine(x, b) - cosine(x, a) + cosine(x, c)
        else:
            up = (1 + cosine(x, b)) / 2 * (1 + cosine(x, c)) / 2
            scores[word] = up / ((1 + cosine(x, a)) / 2 + 0.001)
    return max(scores, key=scores.__getitem__)


@pytest.mark.parametrize("by", ["add", "mul"])
def test_answers_are_those_of_a_loop(by: str, tmp_path: Path) -> None:
    """Questions whose answers the loop says are all right; with others, none is."""
    draw = np.random.default_rng(1)
    asked = [[WORDS[n] for n in draw.permutation(30)[:3]] for _ in range(300)]
    place = tmp_path / "q.txt"
    place.write_text("".join(f"{' '.join([*each, answer(each, by)])}\n" for each in asked))
    task = WordAnalogies(path=str(place), by=by, words=100)  # type: ignore[arg-type]
    scores = task.score(task.read(), StaticVectors(WORDS, TABLE))
    assert scores["q"] == scores["all"] == scores["meaning"] == scores["covered"] == 1
    place.write_text("".join(f"{' '.join([*each, each[0]])}\n" for each in asked))
    assert task.score(task.read(), StaticVectors(WORDS, TABLE))["all"] == 0


def test_sections_and_coverage(file: Path) -> None:
    task = WordAnalogies(path=str(file))
    sections = task.read()
    assert {name: len(each) for name, each in sections.items()} == {
        **{"capital-common": 3, "gram1-adverb": 2, "gram2-none": 1}
    }
    scores = task.score(sections, StaticVectors(WORDS, TABLE))
    assert scores["capital-common covered"] == pytest.approx(2 / 3)
    assert scores["gram2-none covered"] == 0
    assert "gram2-none" not in scores
    assert scores["covered"] == pytest.approx(4 / 6)
    right = [answer(q.lower().split(), "add") == q.split()[3] for q in QUESTIONS.splitlines()[1:3]]
    assert scores["capital-common"] == scores["meaning"] == np.mean(right)
    few = WordAnalogies(path=str(file), words=8).score(sections, StaticVectors(WORDS, TABLE))
    assert few["covered"] == pytest.approx(3 / 6)  # answers among the first words alone


def test_of_words_that_differ_by_their_case_the_first_counts(tmp_path: Path) -> None:
    """A twin of the right answer, or of a word of the question, is no answer of its own."""
    words = ["Oslo", "a", "b", "c", "B", "oslo"]
    table = np.array([[1, 2], [1, 0], [1, 1], [1, 0.9], [1, 2.1], [1, 2]], np.float32)
    place = tmp_path / "q.txt"
    place.write_text("a b c oslo\n")
    task = WordAnalogies(path=str(place))
    assert task.score(task.read(), StaticVectors(words, table))["all"] == 1


def test_a_line_that_is_no_question(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(": a\nw0 w1 w2 w3\nw0 w1 w2\n")
    with pytest.raises(DataError, match=r"q\.txt:3: four words are needed"):
        WordAnalogies(path=str(tmp_path / "q.txt")).read()
    (tmp_path / "q.txt").write_text(": a\n")
    with pytest.raises(DataError, match="no questions"):
        WordAnalogies(path=str(tmp_path / "q.txt")).read()


def plmctl(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_static(StaticVectors(WORDS, TABLE), tmp_path / "v.bin")
    return tmp_path / "v.bin"


def test_eval_takes_a_file_of_vectors(vectors: Path, file: Path, tmp_path: Path) -> None:
    given = ["eval", f"checkpoint={vectors}", "--json"]
    told = json.loads(plmctl(*given, "task=word_analogies", f"task.path={file}"))
    assert told["questions"] == 6
    assert told["metrics"]["v.bin"]["covered"] == pytest.approx(4 / 6, abs=1e-4)
    (tmp_path / "EN-A.txt").write_text("w0\tw1\t1\nW2\tw3\t2\nw4 none 3\n")
    similar = ["task=word_similarity", f"task.path={tmp_path / 'EN-A.txt'}"]
    told = json.loads(plmctl(*given, *similar))
    assert told["metrics"]["v.bin"]["EN-A pairs"] == 2
    assert (told["words"], told["remarks"]["words"]) == (5, "5 of 6 have a vector")
    wrong = plmctl(*given, "task=sst2", "task.path=x", code=2)
    assert "word_similarity or word_analogies" in wrong
    assert "task=word_similarity task.path=LISTS" in plmctl(*given, code=2)


def test_a_model_is_refused_with_the_command_that_makes_vectors() -> None:
    opened: Any = SimpleNamespace(checkpoint="runs/x")
    with pytest.raises(ConfigError, match="fix: plmctl vectors method=distilled checkpoint=runs/x"):
        WordAnalogies(path="x").measure(opened)


def test_vectors_of_other_words_are_no_result(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("a b c d\n")
    (tmp_path / "list.txt").write_text("a b 1\n")
    for task, name in (("word_analogies", "none.txt"), ("word_similarity", "list.txt")):
        words = [f"checkpoint={vectors}", f"task={task}", f"task.path={tmp_path / name}"]
        assert "has a vector in it" in plmctl("eval", *words, code=3)


def test_embed_writes_bags_of_vectors(vectors: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("w0 (W1), none\nnothing here\n")
    given = ["embed", f"checkpoint={vectors}", f"input={lines}"]
    told = plmctl(*given, f"out={tmp_path / 'a.npz'}")
    assert "2 lines, 2 of 5 words have a vector" in told
    with np.load(tmp_path / "a.npz") as made:
        np.testing.assert_allclose(made["hidden_0"], TABLE[:2].mean(0)[None], rtol=1e-6)
        assert not made["hidden_1"].any()
    counts = plmctl(*given, f"out={tmp_path / 'b.npz'}", "normalize=true", "--json")
    numbers = {"lines": 2, "words": 5, "with a vector": 2, "lines without": 1}
    numbers["width"] = TABLE.shape[1]
    assert json.loads(counts.splitlines()[-1]) == {"out": f"{tmp_path / 'b.npz'}", **numbers}
    with np.load(tmp_path / "b.npz") as made:
        assert np.linalg.norm(made["hidden_0"]) == pytest.approx(1)
    wrong = plmctl(*given, f"out={tmp_path / 'c.npz'}", "layers=-1", code=2)
    assert "a line is the mean of the vectors of its words" in wrong


def test_marks_go_from_the_ends_of_a_word_before_n_grams_are_asked(tmp_path: Path) -> None:
    subwords = Subwords(Ngrams(3, 3, 7), np.arange(28, dtype=np.float32).reshape(7, 4))
    write_static(StaticVectors(WORDS, TABLE, subwords), tmp_path / "v.safetensors")
    (tmp_path / "lines.txt").write_text("(w0 W1,\n(unseen)\n")
    given = [f"checkpoint={tmp_path}/v.safetensors", f"input={tmp_path}/lines.txt"]
    told = plmctl("embed", *given, f"out={tmp_path / 'a.npz'}")
    assert "3 of 3 words have a vector" in told
    with np.load(tmp_path / "a.npz") as made:
        np.testing.assert_allclose(made["hidden_0"], TABLE[:2].mean(0)[None], rtol=1e-6)
        np.testing.assert_allclose(made["hidden_1"], subwords.make("unseen")[None], rtol=1e-6)
