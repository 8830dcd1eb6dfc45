"""Masked next-token prediction: labels and losses as loops, blind causal rows, both scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.objectives.masked_next import MaskedNext
from plmctl.use.likelihood import Likelihood, find_ways, make_scoring
from tests.tasks.conftest import toy

__all__ = ["toy"]

WORDS = [
    *("size=tiny", "size.width=16", "size.inner_width=32", "size.num_layers=2"),
    *("format=blocks", "format.max_length=32", "noise=[token_mask,causal_rows]"),
    *("objective=[masked_next]", "pattern=two_modes", "model.embedding.segments=0"),
    "eval.noise='${noise}'",
]


def make(vocab):
    config = compose("pretrain", "bert", WORDS)
    model = build_model(config, vocab_size=vocab.size, vocab=vocab).double().eval()
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    objective = build_objective(config.objective, model, vocab, seed=0)
    return model, objective


def make_rows() -> Rows:
    """A row with masks and one without, of two documents each, the second one padded."""
    ids = np.arange(20, 36).reshape(2, 8)
    length, mlm = np.array([8, 6]), np.full((2, 8), IGNORE)
    mlm[0, [0, 2, 3, 5]] = [1, 2, 3, 4]  # the first one has no state before it, nor has the last
    document = np.array([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, -1, -1]])
    tracks = {"document": document, "segment": np.array([[0] * 8, [2] * 8])}
    seq = Seq(ids, length, tracks)
    causal = np.array([False, True])
    return Rows(np.arange(2), {"text": seq}, {"mlm": mlm}, values={"causal": causal})


def test_labels_are_those_of_the_next_token():
    rows = make_rows()
    labels = MaskedNext(masked_weight=0.5).labels(rows)
    masked, causal = np.full((2, 8), IGNORE), np.full((2, 8), IGNORE)
    text = rows.seqs["text"]
    for b in range(2):
        for t in range(int(text.length[b]) - 1):
            if text.tracks["document"][b, t] != text.tracks["document"][b, t + 1]:
                continue
            if rows.values["causal"][b]:
                causal[b, t] = text.ids[b, t + 1]
            elif rows.targets["mlm"][b, t + 1] != IGNORE:
                masked[b, t] = rows.targets["mlm"][b, t + 1]
    assert np.array_equal(labels["masked"], masked)
    assert np.array_equal(labels["causal"], causal)
    assert labels["masked"][0].tolist() == [IGNORE, 2, 3, *[IGNORE] * 5]


def batch_of(rows: Rows, objective) -> Batch:
    return collate(rows.with_targets(**objective.labels(rows)), {})


def test_the_loss_is_that_of_a_loop_over_rows(toy):
    model, objective = make(toy.vocab)
    rows = make_rows()
    batch = batch_of(rows, objective)
    out = objective(model, batch)
    weights = {"masked": 0.9375, "causal": 0.0625}
    assert {name: term.weight for name, term in out.terms.items()} == pytest.approx(weights)
    assert objective.counts(batch) == {"masked": 2, "causal": 4}
    labels = objective.labels(rows)
    for name, row in (("masked", 0), ("causal", 1)):
        states = model(batch).last[row]
        total = 0.0
        for t, label in enumerate(labels[name][row].tolist()):
            if label != IGNORE:
                logits = model.heads["masked_next"](states[t])
                total -= float(logits.log_softmax(-1)[label])
        assert float(out.terms[name].total) == pytest.approx(total, rel=1e-9)


def test_causal_rows_are_blind_to_later_tokens_and_rows_with_masks_are_not(toy):
    model, objective = make(toy.vocab)
    rows = make_rows()
    text = rows.seqs["text"].with_tracks(document=np.zeros((2, 8), int))
    rows = rows.with_seq("text", text)
    batch = batch_of(rows, objective)
    before = model(batch).last
    ids = text.ids.copy()
    ids[:, 4] += 5
    changed = model(batch_of(rows.with_seq("text", Seq(ids, text.length, text.tracks)), objective))
    same = torch.isclose(before, changed.last, atol=1e-12, rtol=0).all(-1)
    assert same[1, :4].all()
    assert not same[1, 4:6].any()
    assert not same[0].any()


def test_minimal_pairs_in_both_modes_as_loops(toy):
    model, _ = make(toy.vocab)
    vocab, sentences = toy.vocab, toy.encode_batch(["she was", "the souvenirs were sold", "he"])
    ways = find_ways(model, vocab)
    assert list(ways) == ["next", "shifted"]

    def logp(ids, segment, place, token):
        row = torch.tensor([ids])
        seq = Seq(row, torch.tensor([len(ids)]), {"segment": torch.full_like(row, segment)})
        state = model(Batch(torch.arange(1), {"text": seq})).last[0, place]
        return float(model.heads["masked_next"](state).log_softmax(-1)[token])

    expected = {"next": [], "shifted": []}
    for ids in sentences:
        row = [vocab.cls, *ids, vocab.sep]
        expected["next"].append(sum(logp(row[: t + 1], 2, t, ids[t]) for t in range(len(ids))))
        hidden = [[*row[: t + 1], vocab.mask, *row[t + 2 :]] for t in range(len(ids))]
        expected["shifted"].append(sum(logp(hidden[t], 0, t, ids[t]) for t in range(len(ids))))
    for way, values in expected.items():
        scoring = make_scoring(way, model, ways[way], toy)
        with torch.no_grad():
            found = Likelihood(model, scoring, torch.device("cpu"), 64).score(sentences)
        assert found == pytest.approx(values, abs=1e-9)
