"""What attention leaves behind: against loops from the definition, and nothing at all where
nobody asks.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Batch, Seq
from plmctl.models.encoder import Encoder
from plmctl.models.encoder_decoder import EncoderDecoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.convolution import Convolution
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import ALiBi, NoPosition
from plmctl.nn.recorder import ATTENTION, Recorder
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack

W, H, D, LENGTHS = 8, 2, 4, (5, 3)


def encoder(layout="af*2", pattern=None, position=None, **cells):
    torch.manual_seed(0)
    norm = partial(layer_norm, width=W, eps=1e-12)
    cells = {
        "a": partial(Attention, width=W, num_heads=H, dropout=0.5),
        "f": partial(FeedForward, width=W, inner_width=16, activation="gelu"),
        **cells,
    }
    made = Encoder(
        embedding=Embedding(vocab_size=20, width=W, dropout=0.0, norm=norm),
        position=position or NoPosition(),
        pattern=pattern or Full(),
        stack=Stack(layout=layout, cells=cells, residual=PostNorm(norm=norm, dropout=0.0)),
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double().eval()


def batch(**more):
    ids, length = (
        torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0)),
        torch.tensor(LENGTHS),
    )
    return Batch(torch.arange(2), {name: Seq(ids, length) for name in ("text", *more)})


@pytest.mark.parametrize("causal", [False, True])
def test_scores_probabilities_and_vectors_are_those_of_the_definition(causal):
    model, given = (
        encoder(pattern=Causal() if causal else None, position=ALiBi(num_heads=H)),
        batch(),
    )
    model.requires_grad_(False)
    found = model(given, record=ATTENTION | {"hidden"}).recorded
    assert {name: len(layers) for name, layers in found.items()} == {
        **dict.fromkeys(ATTENTION, 2),
        "hidden": 3,
    }
    x, cell = found["hidden"][0], model.stack.blocks["a"][0].cell
    made = (x @ cell.qkv.weight.T + cell.qkv.bias).view(2, 5, 3, H, D)
    for name, place in (("queries", 0), ("keys", 1), ("values", 2)):
        assert torch.allclose(found[name][0], made[:, :, place].transpose(1, 2), atol=1e-12)
    lowest = torch.finfo(torch.float64).min
    for b, h, i in [
        (row, head, i) for row in range(2) for head in range(H) for i in range(LENGTHS[row])
    ]:
        scores = []
        for j in range(5):
            dot = sum(
                float(made[b, i, 0, h, d] * made[b, j, 1, h, d]) for d in range(D)
            ) / math.sqrt(D)
            seen = j < LENGTHS[b] and (j <= i or not causal)
            scores.append(dot - 2.0 ** (-8 * (h + 1) / H) * abs(i - j) if seen else lowest)
        assert torch.allclose(
            found["scores"][0][b, h, i], torch.tensor(scores, dtype=torch.float64), atol=1e-10
        )
        whole = sum(math.exp(s) for s in scores if s > lowest)
        shares = [math.exp(s) / whole if s > lowest else 0.0 for s in scores]
        assert torch.allclose(
            found["attention"][0][b, h, i], torch.tensor(shares, dtype=torch.float64), atol=1e-10
        )


def test_probabilities_are_what_the_layer_does_with_its_values():
    model, given = encoder(), batch()
    cell, made = model.stack.blocks["a"][0].cell, []
    cell.register_forward_hook(lambda module, given, result: made.append(result))
    found = model(given, record=frozenset({"attention", "values"})).recorded
    again = cell.out((found["attention"][0] @ found["values"][0]).transpose(1, 2).flatten(2))
    assert torch.allclose(again, made[0], atol=1e-10)


def test_nothing_is_recorded_or_computed_unless_asked(monkeypatch):
    model, given = encoder(), batch()
    monkeypatch.setattr(Recorder, "vectors", lambda *_: pytest.fail("asked for nothing"))
    monkeypatch.setattr(Recorder, "products", lambda *_: pytest.fail("asked for nothing"))
    assert model(given).recorded == {}
    assert list(model(given, record=frozenset({"hidden"})).recorded) == ["hidden"]


def test_recording_changes_no_state_and_draws_nothing():
    model, given = encoder().train(), batch()
    last = []
    for record in (frozenset(), ATTENTION):
        torch.manual_seed(0)
        last.append((model(given, record=record).last, torch.rand(1)))
    assert torch.equal(last[0][0], last[1][0])
    assert torch.equal(last[0][1], last[1][1])


def test_a_stack_says_whether_every_layer_has_one_attention():
    convolution = partial(Convolution, width=W, hidden_width=W, kernel=3, causal=False)
    assert encoder("af@3").records == ATTENTION | {"hidden"}
    assert (
        encoder("af kf", k=convolution).records == encoder("aaf*2").records == frozenset({"hidden"})
    )


def test_an_encoder_decoder_records_the_decoders_own_attention():
    cross = partial(CrossAttention, width=W, num_heads=H, dropout=0.0)
    decoder = encoder("acf*3", Causal(), c=cross)
    model = EncoderDecoder(encoder=encoder(), decoder=decoder, start=1).double().eval()
    found = model(batch(source=1, target=1), record=frozenset({"scores", "hidden"})).recorded
    assert len(found["scores"]) == 3
    assert len(found["hidden"]) == 4
    assert (found["scores"][0][0].triu(1) < -1e300).sum() == H * 10  # causal: not the encoder's
    assert {"scores", "source", "hidden"} <= model.records
