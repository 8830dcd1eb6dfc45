"""Word similarity: correlations against scipy's, the vectors of a model as loops over words, and
static vectors beside them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from typer.testing import CliRunner

from plmctl.artifacts.loading import Loaded, load
from plmctl.cli.app import make_app
from plmctl.core.errors import DataError
from plmctl.probes.word_similarity import WordSimilarity, find_occurrences, read_states, read_table
from plmctl.training.device.precision import choose
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.vectors import make_batch

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "word_similarity"
WORDS = ["string", "list", "value", "object", "class", "name"]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in WORDS for b in WORDS if a < b]
    lines = [f"{a}\t{b}\t{score:.2f}" for (a, b), score in zip(pairs, rng.random(15), strict=True)]
    (folder / "EN-A.txt").write_text("\n".join(lines) + "\n")
    (folder / "EN-B.txt").write_text("string list 3\nvalue ☃ 2\nclass name 1\n")
    return folder


@pytest.fixture(scope="module")
def run(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "bert"
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48"]
    words += ["tokenizer.vocab_size=400", "train.steps=1", f"data.path={small_text}"]
    words += [f"run.dir={folder}", "eval.rows=8"]
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def loaded(run: Path) -> Loaded:
    return load(run)


def test_scores_are_spearmans_over_covered_pairs(lists: Path) -> None:
    task = WordSimilarity(path=str(lists))
    pairs = task.read()
    rng = np.random.default_rng(1)
    vectors = {word: rng.normal(size=4) for word in WORDS}
    scores = task.score(pairs, vectors)
    for name, own in list(pairs.items())[:1]:
        known = [pair for pair in own if {pair.first, pair.second} <= vectors.keys()]
        cosines = [
            vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])
            for a, b, _ in known
        ]
        wanted = spearmanr([score for *_, score in known], cosines).statistic
        assert scores[name] == pytest.approx(wanted, abs=1e-12)
        assert scores[f"{name} pairs"] == len(known)
    assert scores["EN-B pairs"] == 2  # one word has no vector
    assert scores["EN-B"] is None  # two pairs agree or do not
    assert scores["mean"] == scores["EN-A"]
    assert task.describe_few(scores) == (
        "1 list with fewer than 10 known pairs (EN-B 2) has no correlation and is not in the mean"
    )
    nothing = {"EN-A": None, "EN-A pairs": 0, "EN-B": None, "EN-B pairs": 0}
    assert task.score(pairs, {}) == nothing
    assert "2 lists with fewer than 10 known pairs" in task.describe_few(nothing)


def test_a_line_that_is_no_pair(tmp_path: Path) -> None:
    (tmp_path / "EN-A.txt").write_text("car\tautomobile\t3.9\ncar automobile\n")
    with pytest.raises(DataError, match=r"EN-A\.txt:2: two words and a score are needed"):
        WordSimilarity(path=str(tmp_path)).read()
    (tmp_path / "EN-A.txt").write_text("car\tautomobile\t1e295\n")
    with pytest.raises(DataError, match=r"EN-A\.txt:1: the score '1e295' is too large"):
        WordSimilarity(path=str(tmp_path)).read()


def test_occurrences() -> None:
    sentences = ["A dog, a Dog; dogs.", "No dog here", "hot-dog dog"]
    found = find_occurrences(["dog", "Dog", "cat"], sentences, most=3)
    assert [(each.word, each.text[each.start : each.end]) for each in found] == [
        *[("dog", "dog"), ("Dog", "dog"), ("dog", "Dog"), ("Dog", "Dog")],
        *[("dog", "dog"), ("Dog", "dog")],
    ]
    (far,) = find_occurrences(["dog"], ["x " * 999 + "dog" + " x" * 999], most=1)
    assert far.text[far.start : far.end] == "dog"
    assert len(far.text) == 603


def test_input_embeddings(loaded: Loaded) -> None:
    found = read_table(loaded, ["strings", "☃"])
    ids = loaded.tokenizer.encode("strings")
    table = loaded.model.backbone.token_embedding.weight.detach()
    wanted = sum(table[i] for i in ids) / len(ids)
    np.testing.assert_allclose(found["strings"], wanted.numpy(), rtol=1e-6)
    assert "☃" not in found


def test_states_in_contexts(loaded: Loaded) -> None:
    """The mean over tokens, then over occurrences, each from a pass of its own."""
    sentences = ["the strings of it", "strings", "it returns strings and strings"]
    places = find_occurrences(["strings"], sentences, most=3)
    precision = choose("fp32", torch.device("cpu"))
    found = read_states(loaded, places, layer=1, batch_size=2, precision=precision)
    vocab, wanted = loaded.vocab, []
    for place in places:
        ids, offsets = loaded.tokenizer.encode_offsets(place.text)
        row = [vocab.id("cls"), *ids, vocab.id("sep")]
        with torch.no_grad():
            hidden = loaded.model(
                make_batch([EmbeddingLine(row)]), record=frozenset({"hidden"})
            ).recorded["hidden"][1][0]
        own = [
            hidden[1 + n]
            for n, (start, end) in enumerate(offsets)
            if start < place.end and end > place.start
        ]
        wanted.append(torch.stack(own).mean(0))
    assert len(wanted) == 3
    np.testing.assert_allclose(
        found["strings"], torch.stack(wanted).mean(0).numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("vectors", ["input", "alone", "contexts"])
def test_command(run: Path, lists: Path, small_text: Path, tmp_path: Path, vectors: str) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("string 1 0\nlist 1 1\nclass 0 1\n")
    words = ["eval", f"checkpoint={run}", "task=word_similarity", f"task.path={lists}", "--json"]
    words += [f"task.vectors={vectors}", f"data.path={small_text}", f"task.static=[{glove}]"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["pairs"] == 18
    assert result["metrics"]["model"]["EN-A pairs"] == 15
    assert result["metrics"]["glove.txt"]["EN-A pairs"] == 3
    assert (result["words"], result["remarks"]["words"]) == (6, "6 of 7 have a vector")


def test_words_are_looked_up_in_a_text(run: Path, lists: Path) -> None:
    words = ["eval", f"checkpoint={run}", "task=word_similarity", f"task.path={lists}"]
    done = CliRunner().invoke(make_app(), [*words, "task.vectors=contexts"])
    assert done.exit_code == 2
    assert "data.path" in done.output


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_the_distributed_lists() -> None:
    lists = WordSimilarity(path=str(SHARED)).read()
    assert (len(lists), sum(map(len, lists.values()))) == (13, 11_768)
