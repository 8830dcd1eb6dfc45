"""What encoder-decoders become at the ends: a language model where the source says nothing, a
norm at the end of each stack.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.models.base import Model
from plmctl.nn.norm import rms_norm
from plmctl.objectives.seq2seq import ConditionalLM
from plmctl.runs.contract.stand_in import TINY

SIZE = [
    "size.num_layers=2",
    "size.width=32",
    "size.num_heads=4",
    "size.inner_width=48",
    "data.path=x",
]
V, MASK = 60, 4


def made(recipe: str, *settings: str) -> Model:
    cfg = compose("pretrain", recipe, [*SIZE, *settings])
    return build_model(cfg, vocab_size=V, vocab=TINY, seed=0).double().eval()


def seq(ids: torch.Tensor, **tracks: torch.Tensor) -> Seq:
    return Seq(ids, torch.full((len(ids),), ids.shape[1]), tracks, full=True)


def batch(source: torch.Tensor, target: Seq) -> Batch:
    flat = target.ids.flatten()
    asked = {"seq2seq": Targets(torch.arange(len(flat)), flat, len(flat))}
    return Batch(
        torch.arange(len(source)),
        {"source": seq(source), "target": target},
        asked,
        counts={"seq2seq": len(flat)},
    )


def language_model(model: Model, text: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Summed loss of the decoder alone, one token after the other, its cross-attention reading a
    source that says nothing.
    """
    found = torch.zeros((), dtype=torch.float64)
    for row in text:
        for t in range(len(row)):
            read = batch(source[:1], seq(row[None, : t + 1]))
            logits = model.heads["seq2seq"](model(read).last[0, t])
            found = found - torch.log_softmax(logits, -1)[row[t]]
    return found


@torch.no_grad()
def test_bart_with_everything_masked_is_a_language_model() -> None:
    """The source of every text is the same, so that the loss is that of the decoder alone."""
    torch.manual_seed(0)
    model, text = made("bart", "format.max_length=16"), torch.randint(7, V, (3, 9))
    hidden = torch.full_like(text, MASK)
    hidden[:, 0], hidden[:, -1] = TINY.cls, TINY.sep
    loss = ConditionalLM()(model, batch(hidden, seq(text))).terms["seq2seq"].total
    torch.testing.assert_close(loss, language_model(model, text, hidden), rtol=1e-10, atol=1e-10)
    other = ConditionalLM()(model, batch(hidden, seq(text.flip(0)))).terms["seq2seq"].total
    # which text belongs to which source makes no difference
    torch.testing.assert_close(loss, other, rtol=1e-10, atol=1e-10)
    seen = ConditionalLM()(model, batch(text, seq(text))).terms["seq2seq"].total
    swapped = ConditionalLM()(model, batch(text.flip(0), seq(text))).terms["seq2seq"].total
    assert (seen - swapped).abs() > 1e-3  # with the text in view it does


def mass_batch(text: torch.Tensor, places: list[int]) -> Batch:
    source = text.clone()
    source[:, places] = MASK
    before = torch.tensor(places) - 1
    target = seq(text[:, places], previous=text[:, before], position=before.repeat(len(text), 1))
    return batch(source, target)


def test_mass_of_one_token_sees_both_sides_and_nothing_hidden() -> None:
    """k = 1: the state depends on every token of the text but the hidden one, as in masked
    language modelling.
    """
    torch.manual_seed(0)
    model, text, place = made("mass", "format.max_length=16"), torch.randint(7, V, (1, 8)), 3
    with torch.no_grad():
        state = model(mass_batch(text, [place])).last
        for other in range(8):
            changed = text.clone()
            changed[0, other] = 6 if text[0, other] != 6 else 7
            moved = (model(mass_batch(changed, [place])).last - state).abs().max()
            assert (moved == 0) == (other == place)


def test_mass_of_all_tokens_is_causal() -> None:
    """k = m: the encoder sees no word; state t depends on the words before t and on no other."""
    torch.manual_seed(0)
    model, text, places = (
        made("mass", "format.max_length=16"),
        torch.randint(7, V, (1, 8)),
        list(range(1, 7)),
    )
    with torch.no_grad():
        states = model(mass_batch(text, places)).last[0]
        for other in places:
            changed = text.clone()
            changed[0, other] = 6 if text[0, other] != 6 else 7
            moved = (model(mass_batch(changed, places)).last[0] - states).abs().amax(-1)
            # state i has read the words up to place i, and is asked for the next
            assert (moved[:other] == 0).all()
            assert (moved[other:] > 0).all()


def test_the_decoder_of_mass_sees_nothing_but_the_span_and_the_shown_states() -> None:
    model = made("mass", "format.max_length=16")
    text = torch.randint(7, V, (2, 8), generator=torch.Generator().manual_seed(0))
    given = mass_batch(text, [3, 4, 5])
    with torch.no_grad():
        read = model.backbone.fresh_cache(given).source
        assert read.op.plan.mask[:, 0, 0].tolist() == 2 * [
            [True, True, True, False, False, False, True, True]
        ]
        states = read.states.clone()
        states[:, 3:6] = 100.0
        cache = model.backbone.fresh_cache(given)
        cache.source = type(read)(states, read.op)
        target = given.seqs["target"]
        step = seq(target.tracks["previous"], position=target.tracks["position"])
        torch.testing.assert_close(
            model(Batch(given.key, {"target": step}), cache).last, model(given).last
        )
        everything = (
            made("mass", "format.max_length=16", "model.unread=null")
            .backbone.fresh_cache(given)
            .source
        )
        assert everything.op.plan.mask is None


@pytest.mark.parametrize("recipe", ["transformer", "bart"])
def test_norms_first_end_with_a_norm_in_both_stacks(recipe: str) -> None:
    model = made(recipe, "model.decoder.stack.residual._target_=plmctl.nn.residual.PreNorm")
    source, target = torch.randint(7, V, (2, 5)), torch.randint(7, V, (2, 4))
    with torch.no_grad():
        hidden = model(batch(source, seq(target)))
    for states in (hidden.last, hidden.streams["encoder"]):
        torch.testing.assert_close(
            states.mean(-1), torch.zeros_like(states[..., 0]), atol=1e-8, rtol=0
        )
        torch.testing.assert_close(
            states.var(-1, correction=0), torch.ones_like(states[..., 0]), atol=1e-2, rtol=0
        )
    after = made(recipe)
    assert not list(after.backbone.encoder.stack.final_norm.parameters())
    assert isinstance(
        made("t5").backbone.decoder.stack.final_norm, type(rms_norm(width=2, eps=0.1))
    )  # type: ignore[union-attr]


def test_what_the_noise_does_not_ask_is_not_counted() -> None:
    torch.manual_seed(0)
    model, text = made("bart", "format.max_length=16"), torch.randint(7, V, (2, 6))
    whole = batch(text, seq(text))
    flat = text.flatten().clone()
    flat[::2] = IGNORE
    part = Batch(
        whole.key,
        whole.seqs,
        {"seq2seq": Targets(torch.arange(12), flat, 6)},
        counts={"seq2seq": 6},
    )
    found = ConditionalLM(smoothing=0.1)(model, part)
    losses = torch.log_softmax(model.heads["seq2seq"](model(whole).last), -1).flatten(0, 1)
    plain = -losses[torch.arange(12), text.flatten()][1::2]
    smooth = -losses.mean(-1)[1::2]
    torch.testing.assert_close(found.terms["seq2seq"].total, (0.9 * plain + 0.1 * smooth).sum())
    torch.testing.assert_close(found.logs["nll/seq2seq"][0], plain.sum())
