"""Minimal pairs: scores of sentences as literal loops, ties, groups, and files."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.probes.likelihood import Likelihood, WordScoring, find_ways, make_scoring
from plmctl.probes.minimal_pairs import MinimalPairs, Pair
from tests.tasks.conftest import SIZE

TINY = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_layers=2"]
TEXTS = ["the souvenirs were sold", "she was", "he", "the souvenirs was sold", "你好 whatever"]


def make(recipe: str, vocab):
    """A model with random weights in float64, so that loops agree to many digits."""
    config = compose("pretrain", recipe, [*TINY, "format.max_length=32"])
    torch.manual_seed(1)
    model = build_model(config, vocab_size=vocab.size, vocab=vocab).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def score(model, way, vocab, ids, tokens=64):
    reading = make_scoring(way, model, find_ways(model, vocab)[way], vocab)
    with torch.no_grad():
        return Likelihood(model, reading, vocab.pad, torch.device("cpu"), tokens).score(ids)


def log_softmax(model, head, ids, place, **seqs):
    """[V] of one place of one row, alone."""
    seq = Seq(torch.tensor([ids]), torch.tensor([len(ids)]), {})
    read = seqs or {"text": seq.with_tracks(segment=torch.zeros(1, len(ids), dtype=torch.int64))}
    with torch.no_grad():
        states = model(Batch(torch.arange(1), read)).last[0, place]
        return model.heads[head](states[None])[0].log_softmax(-1)


def test_from_left_to_right_as_a_loop(gpt_toy) -> None:
    model, vocab = make("gpt2", gpt_toy.vocab), gpt_toy.vocab
    sentences = gpt_toy.encode_batch(TEXTS)
    expected = [
        sum(
            float(log_softmax(model, "clm", [vocab.bos, *ids[:t]], t)[token])
            for t, token in enumerate(ids)
        )
        for ids in sentences
    ]
    assert score(model, "next", vocab, sentences) == pytest.approx(expected, abs=1e-9)


def test_from_left_to_right_by_a_query_stream_as_a_loop(toy) -> None:
    vocab = replace(toy.vocab, single=("A", "sep", "cls"))
    model, sentences = make("xlnet", vocab), toy.encode_batch(TEXTS)
    expected = []
    for ids in sentences:
        total, order = 0.0, torch.tensor([[*range(1, len(ids) + 1), 0, 0]])
        for t, token in enumerate(ids):  # the token itself and later ones are not known
            unknown = [vocab.unk] * (len(ids) - t)
            row = torch.tensor([[*ids[:t], *unknown, vocab.sep, vocab.cls]])
            tracks = {"segment": torch.zeros_like(row), "order": order}
            seq = Seq(row, torch.tensor([row.shape[1]]), tracks)
            asked = {"plm": Targets(torch.tensor([t]), torch.tensor([token]), 1)}
            with torch.no_grad():
                query = model(Batch(torch.arange(1), {"text": seq}, asked)).streams["query"]
                total += float(model.heads["plm"](query)[0].log_softmax(-1)[token])
        expected.append(total)
    assert score(model, "order", vocab, sentences) == pytest.approx(expected, abs=1e-9)


def test_each_token_hidden_in_turn_as_a_loop(toy) -> None:
    model, vocab = make("bert", toy.vocab), toy.vocab
    sentences = toy.encode_batch(TEXTS)
    expected = []
    for ids in sentences:
        total = 0.0
        for t, token in enumerate(ids):
            row = [vocab.cls, *ids[:t], vocab.mask, *ids[t + 1 :], vocab.sep]
            total += float(log_softmax(model, "mlm", row, t + 1)[token])
        expected.append(total)
    found = score(model, "masks", vocab, sentences)
    assert found == pytest.approx(expected, abs=1e-9)
    # padding, batches and neighbours change nothing
    assert score(model, "masks", vocab, sentences[::-1], tokens=1)[::-1] == pytest.approx(found)


def test_later_pieces_of_a_word_are_hidden(toy) -> None:
    starts = np.zeros(SIZE, bool)
    starts[[10, 20, 30]] = True
    vocab = replace(toy.vocab, word_start=starts)
    ids = [10, 11, 12, 20, 30, 31]  # three pieces, one, two
    reading = WordScoring(None, vocab)
    hidden = [
        [place - 1 for place, token in enumerate(row.ids) if token == vocab.mask]
        for row in reading.rows(ids)
    ]
    assert hidden == [[0, 1, 2], [1, 2], [2], [3], [4, 5], [5]]
    assert [(row.places[0] - 1, row.tokens[0]) for row in reading.rows(ids)] == [*enumerate(ids)]


def test_a_pair_that_differs_in_one_token_reads_the_common_row_once(toy) -> None:
    model, read = make("bert", toy.vocab), []
    forward = model.forward
    model.forward = lambda batch: read.append(len(batch.key)) or forward(batch)
    score(model, "masks", toy.vocab, [[10, 11, 12], [10, 99, 12]])
    assert sum(read) == 2 * 3 - 1


@pytest.mark.parametrize("recipe", ["electra", "deberta_v3"])
def test_what_a_discriminator_finds_replaced(toy, recipe) -> None:
    model = make(recipe, toy.vocab)
    head = find_ways(model, toy.vocab)["replaced"]
    (ids,) = toy.encode_batch(TEXTS[:1])
    row = torch.tensor([[toy.vocab.cls, *ids, toy.vocab.sep]])
    seq = Seq(row, torch.tensor([row.shape[1]]), {"segment": torch.zeros_like(row)})
    with torch.no_grad():
        logits = model.heads[head](model(Batch(torch.arange(1), {"text": seq})).last)[0, 1:-1]
    expected = float((1 - logits.sigmoid()).log().sum())
    assert score(model, "replaced", toy.vocab, [ids])[0] == pytest.approx(expected)


def test_what_a_decoder_writes_after_a_mask(toy) -> None:
    model, vocab = make("bart", toy.vocab), toy.vocab
    (ids,) = toy.encode_batch(TEXTS[:1])

    def seq(tokens):
        return Seq(torch.tensor([tokens]), torch.tensor([len(tokens)]), {})

    source, total = seq([vocab.cls, vocab.mask, vocab.sep]), 0.0
    head = find_ways(model, vocab)["written"]
    for t, token in enumerate(ids):  # later tokens of the target are not known
        target = seq([vocab.cls, *ids[:t], vocab.unk])
        values = log_softmax(model, head, [], t + 1, source=source, target=target)
        total += float(values[token])
    assert score(model, "written", vocab, [ids])[0] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize(("ties", "value"), [("strict", 0.0), ("half", 0.5), ("official", 1.0)])
def test_equal_scores_count_by_the_rule(ties, value) -> None:
    part = MinimalPairs(path="x", ties=ties)
    same = np.full(3, -12.5)
    assert part.judge(same, same + 1e-9).tolist() == [value] * 3
    good, bad = np.array([-1.0, -3.0]), np.array([-2.0, -2.0])
    assert part.judge(good, bad).tolist() == [1, 0]
    assert part.judge(bad, good).tolist() == [0, 1]
    with pytest.raises(DataError, match="no finite score"):
        part.judge(np.array([np.nan]), np.array([1.0]))


def test_the_mean_is_over_paradigms() -> None:
    pairs = [Pair("a", "b", name, "P" if name < "c" else "Q") for name in "aaaabbcccc"]
    right = np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1.0])
    scores, intervals = MinimalPairs(path="x").summarize(pairs, right)
    assert scores == pytest.approx(
        {"accuracy": (0.75 + 0.5 + 1) / 3, "pairs": 0.8, "P": 4 / 6, "Q": 1.0}
    )
    low, high = stats.binomtest(8, 10).proportion_ci(method="wilson")
    assert intervals["pairs"] == pytest.approx((low, high))
    single = MinimalPairs(path="x").summarize(pairs[:4], right[:4])[1]
    assert single["accuracy"] == single["pairs"]  # of one paradigm
    sides = [
        stats.binomtest(k, n).proportion_ci(method="wilson") for k, n in ((3, 4), (1, 2), (4, 4))
    ]
    below = sum((p - ci.low) ** 2 for p, ci in zip((0.75, 0.5, 1), sides, strict=True)) ** 0.5 / 3
    above = sum((ci.high - p) ** 2 for p, ci in zip((0.75, 0.5, 1), sides, strict=True)) ** 0.5 / 3
    assert intervals["accuracy"] == pytest.approx((0.75 - below, 0.75 + above))
    by = MinimalPairs(path="x", by="paradigm").summarize(pairs, right)[0]
    assert {name: by[name] for name in "abc"} == {"a": 0.75, "b": 0.5, "c": 1.0}


def test_files_of_blimp_and_of_two_columns(tmp_path: Path) -> None:
    first = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "u", "linguistics_term": "t"}
    rows = [first, {**first, "sentence_bad": "a b"}, {**first, "sentence_good": " "}]
    with gzip.open(tmp_path / "u.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "own.tsv").write_text("good\tbad\n他来\t来他\n他去\t去他\n", encoding="utf-8")
    pairs, left = MinimalPairs(path=str(tmp_path)).read()
    assert left == 2
    assert pairs == [
        Pair("他来", "来他", "own", "own"),
        Pair("他去", "去他", "own", "own"),
        Pair("a b", "b a", "u", "t"),
    ]
    assert len(MinimalPairs(path=str(tmp_path), pairs=1).read()[0]) == 2


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({}, ConfigError, "a file or a folder of minimal pairs"),
        ({"path": "gone"}, DataError, "no such file"),
        ({"path": "wrong.tsv"}, DataError, r"wrong\.tsv:2.*no two sentences"),
        ({"path": "same.tsv"}, DataError, "no pair of two sentences that differ"),
        ({"path": "x", "normalise": 2.0}, ConfigError, "0 .sum. to 1"),
        ({"path": "x", "pairs": 0}, ConfigError, "1 or more"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, monkeypatch, settings, error, words) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.tsv").write_text("good\tworse\na\tb\n")
    Path("same.tsv").write_text("good\tbad\na\ta\n")
    with pytest.raises(error, match=words):
        MinimalPairs(**settings).read()


def test_a_model_is_asked_in_a_way_that_it_can_answer() -> None:
    with pytest.raises(UsageError, match="fix: # a checkpoint of pretraining"):
        MinimalPairs(path="x")._choose({})
    with pytest.raises(ConfigError, match="next: this model answers no other way"):
        MinimalPairs(path="x", score="masks")._choose({"next": "clm"})
    assert MinimalPairs(path="x")._choose({"masks": "mlm", "words": "mlm"}) == ("masks", "mlm")
