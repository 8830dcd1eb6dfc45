"""XLNet's two streams and memory: what leaks, what equals what, what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import cost
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.core.errors import ConfigError, UsageError
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.models.base import Hidden, Model
from plmctl.models.segment_memory import Memory
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.carried_states import CarriedStates

PLM = [
    "model=xlnet",
    "position=none",
    "noise=[factorization_order]",
    "objective=[plm]",
    "eval.noise=${noise}",
]
CLM = [
    "model=xlnet",
    "position=none",
    "noise=[]",
    "eval.noise=null",
    "objective=[clm]",
    "pattern=causal",
    "model.two_streams=false",
]
SMALL = [
    "size=tiny",
    "size.width=16",
    "size.inner_width=24",
    "train.steps=1",
    "train.batch_size=2",
    "data.path=x",
]
STREAMS = ["format=stream_pair", "format.max_length=12", "format.reuse_length=6"]


def model(*words: str) -> Model:
    cfg = compose("pretrain", None, [*SMALL, *STREAMS, *(words or PLM)])
    made = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    return made


def batch(
    ids: Tensor,
    *,
    order: Tensor | None = None,
    asked: Tensor | None = None,
    spare: int = 0,
    continues: Any = None,
    length: list[int] | None = None,
    values: dict[str, Tensor] | None = None,
    **tracks: Tensor,
) -> Batch:
    """`asked [B, T]` True where a token is predicted; its targets have `spare` slots more."""
    tracks |= {} if order is None else {"order": order}
    real = torch.full((len(ids),), ids.shape[1]) if length is None else torch.tensor(length)
    targets = {}
    if asked is not None:
        index = torch.cat([asked.flatten().nonzero()[:, 0], torch.zeros(spare, dtype=torch.long)])
        found = ids.flatten()[index]
        found[len(index) - spare :] = IGNORE
        targets = {"plm": Targets(index, found, len(index) - spare)}
    given = dict(values or {})
    if continues is not None:
        given["continues"] = torch.tensor(continues)
    return Batch(
        torch.arange(len(ids)),
        {"text": Seq(ids, real, tracks, full=length is None)},
        targets,
        values=given,
    )


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(0, TINY.size, (rows, length), generator=torch.Generator().manual_seed(2))


def permuted(rows: int, length: int, predicted: int) -> tuple[Tensor, Tensor]:
    """(order, asked): so many tokens of each row in random order behind the others, which all
    have 0.
    """
    generator = torch.Generator().manual_seed(3)
    rank = torch.stack([torch.randperm(length, generator=generator) for _ in range(rows)])
    order = (rank - (length - predicted) + 1).clamp(min=0)
    return order, order > 0


def test_the_query_stream_does_not_leak() -> None:
    """Gradients are exactly zero for the token itself and all later ones, and for no earlier
    one.
    """
    made, (order, asked) = model(), permuted(2, 12, 5)
    given = batch(
        tokens(2, 12), order=order, asked=asked, segment=(torch.arange(12) > 8).long().expand(2, -1)
    )
    x = made.backbone.embed(given).detach().requires_grad_()
    hidden = made.backbone.encode(x, given)
    query, weights = hidden.streams["query"], torch.randn(16, dtype=torch.float64)
    assert query.shape == (10, 16)
    for slot, place in enumerate(given.targets["plm"].index.tolist()):
        row, column = divmod(place, 12)
        (grad,) = torch.autograd.grad(query[slot] @ weights, x, retain_graph=True)
        seen = order[row] < order[row, column]
        assert grad[1 - row].eq(0).all()
        assert grad[row, ~seen].eq(0).all()
        assert grad[row, seen].abs().amax(-1).min() > 0
        (grad,) = torch.autograd.grad(hidden.last[row, column] @ weights, x, retain_graph=True)
        assert grad[row, order[row] > order[row, column]].eq(0).all()
        assert grad[row, column].abs().max() > 0


@torch.no_grad()
def test_no_target_is_dropped_and_spare_slots_change_nothing() -> None:
    made, ids, order = model(), tokens(3, 6), torch.arange(6).expand(3, -1)
    asked = torch.zeros(3, 6, dtype=torch.bool)
    asked[0, 1:6], asked[2, 4] = True, True  # five in a row, none, one
    query = made(batch(ids, order=order, asked=asked, spare=4)).streams["query"]
    assert query.shape == (10, 16)
    assert query.isfinite().all()
    everywhere = made(batch(ids, order=order, asked=torch.ones(3, 6, dtype=torch.bool))).streams[
        "query"
    ]
    torch.testing.assert_close(query[:6], everywhere[asked.flatten()], rtol=1e-12, atol=1e-12)
    none = made(batch(ids, order=order, asked=torch.zeros_like(asked), spare=2))
    assert none.streams["query"].shape == (2, 16)
    torch.testing.assert_close(
        none.last, made(batch(ids, order=order)).last, rtol=1e-12, atol=1e-12
    )


def run(made: Model, rows: list[Tensor], **more: Any) -> list[Hidden]:
    """Each row of `rows` behind what is remembered of those before."""
    state, found = made.backbone.fresh_state(len(rows[0]), torch.device("cpu")), []
    for number, ids in enumerate(rows):
        order = (
            more["order"][:, number * ids.shape[1] : (number + 1) * ids.shape[1]]
            if "order" in more
            else None
        )
        asked = (
            more["asked"][:, number * ids.shape[1] : (number + 1) * ids.shape[1]]
            if "asked" in more
            else None
        )
        found.append(
            made(batch(ids, order=order, asked=asked, continues=[number > 0] * len(ids)), state)
        )
        state = found[-1].state
    return found


@torch.no_grad()
def test_identity_order_is_transformer_xl() -> None:
    """Without the query stream, in the order of reading: the same cells under a causal pattern,
    memory included.
    """
    xlnet, decoder = (
        model(*PLM, "model.memory=9", "model.reuse=null"),
        model(*CLM, "model.memory=9", "model.reuse=null"),
    )
    left = decoder.backbone.load_state_dict(xlnet.backbone.state_dict(), strict=False)
    assert (left.missing_keys, left.unexpected_keys) == ([], ["query"])
    rows = list(tokens(2, 18).split(6, 1))
    ours = run(xlnet, rows, order=torch.arange(18).expand(2, -1))
    theirs = run(decoder, rows)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.last, b.last, rtol=1e-12, atol=1e-12)
        for one, other in zip(a.state.layers, b.state.layers, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("residual", ["PostNorm", "PreNorm"])
def test_two_segments_with_memory_are_one_long_segment(residual: str) -> None:
    """A later section sees all of an earlier one and never the other way round: then memory
    loses nothing.
    """
    made = model(
        *PLM,
        "model.memory=12",
        "model.reuse=null",
        f"model.stack.residual._target_=plmctl.nn.residual.{residual}",
    )
    ids, (order, asked) = tokens(2, 24), permuted(4, 12, 5)
    order = torch.cat([order[:2], order[2:] + 20], 1)
    asked = torch.cat([asked[:2], asked[2:]], 1)
    parts = run(made, list(ids.split(12, 1)), order=order, asked=asked)
    whole = made(batch(ids, order=order, asked=asked))
    torch.testing.assert_close(
        torch.cat([part.last for part in parts], 1), whole.last, rtol=1e-11, atol=1e-11
    )
    query = torch.cat([part.streams["query"].view(2, 5, 16) for part in parts], 1)
    torch.testing.assert_close(query.flatten(0, 1), whole.streams["query"], rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_only_the_reused_part_is_remembered_and_only_so_much_of_it() -> None:
    made = model(*PLM, "model.memory=9")  # of each row of 12, the first 6
    rows = list(tokens(2, 36).split(12, 1))
    hidden = made(batch(rows[0]), record=frozenset({"hidden"})).recorded["hidden"]
    states = run(made, rows)
    torch.testing.assert_close(states[0].state.layers[1][:, 3:], hidden[1][:, :6])
    assert states[0].state.length.tolist() == [6, 6]
    assert states[1].state.length.tolist() == [9, 9]
    torch.testing.assert_close(states[1].state.layers[1][:, :3], states[0].state.layers[1][:, 6:])
    assert not any(layer.requires_grad for layer in states[2].state.layers)


@torch.no_grad()
def test_a_row_that_does_not_go_on_sees_nothing_of_before() -> None:
    made, ids = model(*PLM, "model.memory=9"), tokens(4, 12).split(2)
    state = run(made, [ids[0]])[0].state
    again = made(batch(ids[1], continues=[True, False]), state)
    torch.testing.assert_close(again.last[1], made(batch(ids[1])).last[1], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(again.last[0], made(batch(ids[1])).last[0])
    assert again.state.length.tolist() == [9, 6]


@torch.no_grad()
def test_a_reversed_row_reads_as_it_would_forwards() -> None:
    made, ids = model(), tokens(2, 12)
    backwards = made(batch(ids.flip(1), values={"reversed": torch.tensor([True, False])})).last
    forwards = made(batch(ids)).last
    torch.testing.assert_close(backwards[0].flip(0), forwards[0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(backwards[1].flip(0), forwards[1])


@torch.no_grad()
def test_padding_and_packed_documents_are_not_seen() -> None:
    made, ids, (order, asked) = model(), tokens(1, 12), permuted(1, 12, 5)
    document = (torch.arange(12) >= 7).long()[None]
    packed = made(batch(ids, order=order, asked=asked, document=document))
    first = made(batch(ids[:, :7], order=order[:, :7], asked=asked[:, :7]))
    torch.testing.assert_close(packed.last[:, :7], first.last, rtol=1e-12, atol=1e-12)
    count = int(asked[:, :7].sum())
    torch.testing.assert_close(
        packed.streams["query"][:count], first.streams["query"], rtol=1e-12, atol=1e-12
    )
    asked[:, 7:] = False
    padded = made(batch(ids, order=order, asked=asked, length=[7]))
    torch.testing.assert_close(
        padded.streams["query"], first.streams["query"], rtol=1e-12, atol=1e-12
    )


@torch.no_grad()
@pytest.mark.parametrize("words", [PLM, CLM], ids=["query stream", "decoder"])
@pytest.mark.parametrize("remembered", [False, True])
def test_a_cache_answers_as_the_whole_row_does(words: list[str], remembered: bool) -> None:
    """Left to right: the query stream at the next place, or the decoder's own state."""
    made = model(*words, "model.memory=9")
    before, ids = tokens(2, 12), tokens(2, 20)[:, 12:]
    segment = torch.tensor([[0] * 4 + [1] * 4, [0] * 8])
    state = run(made, [before])[0].state if remembered else None
    asked = torch.ones(2, 9, dtype=torch.bool)
    asked[:, 0] = False
    # what stands last is not seen
    longer, kinds = torch.cat([ids, ids[:, :1]], 1), torch.cat([segment, segment[:, -1:]], 1)
    whole = {"order": torch.arange(9).expand(2, -1), "asked": asked, "continues": [True, True]}
    given = batch(longer, segment=kinds, **whole)
    hidden = made(given, state)
    wanted = hidden.last[:, :8]
    if "query" in made.backbone.streams:
        wanted = hidden.streams["query"].view(2, 8, 16)
        kinds = kinds.clone()
        # the token is not known yet: asked as one of the segment of the token before
        kinds[0, 4] = 0
        wanted[0, 3] = made(batch(longer, segment=kinds, **whole), state).streams["query"][3]
    cache = partial(made.backbone.fresh_cache, given)(memory=state)
    parts = zip(ids.split([3, 1, 4], 1), segment.split([3, 1, 4], 1), strict=True)
    found = [made(batch(part, segment=kind), cache).last for part, kind in parts]
    torch.testing.assert_close(torch.cat(found, 1), wanted, rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_rows_padded_in_front_read_on_behind_memory() -> None:
    made = model(*PLM, "model.memory=9")
    state, ids = run(made, [tokens(2, 12)])[0].state, tokens(2, 5)
    real = torch.tensor([[False, False, True, True, True], [True] * 5])
    place = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    fresh = partial(made.backbone.fresh_cache, batch(ids))
    padded = made(batch(ids, length=[3, 5], real=real, position=place), fresh(memory=state))
    first = Memory(tuple(layer[:1] for layer in state.layers), state.length[:1])
    alone = made(batch(ids[:1, 2:]), fresh(memory=first))
    torch.testing.assert_close(padded.last[:1, 2:], alone.last, rtol=1e-12, atol=1e-12)


def test_memory_is_saved_and_taken_up_again() -> None:
    made = model(*PLM, "model.memory=9")
    slots = CarriedStates(made.backbone, torch.device("cpu"))
    slots.keep(
        ("text", 0),
        made(batch(tokens(2, 12), continues=[False, False]), slots.before(("text", 0), 2)).state,
    )
    other = CarriedStates(made.backbone, torch.device("cpu"))
    other.load([slots.tensors()])
    given = batch(tokens(2, 12), continues=[True, True])
    assert torch.equal(
        made(given, slots.before(("text", 0), 2)).last,
        made(given, other.before(("text", 0), 2)).last,
    )


def test_what_does_not_fit_is_named() -> None:
    def refused(*words: str) -> str:
        with pytest.raises(UsageError) as error:
            check_contract(compose("pretrain", None, [*SMALL, "format=blocks", *words]))
        return str(error.value)

    assert "'values.continues'" in refused(*PLM, "model.memory=16")  # rows are shuffled
    assert "fix: format=segments  # or format=stream_pair" in refused(*PLM, "model.memory=16")
    assert "'tracks.order'" in refused(*PLM, "noise=[token_mask]")
    assert "position=none" in refused(*PLM, "position=learned")
    assert "kernel=auto" in refused(*PLM, "kernel=banded")
    assert "0 (no memory)" in refused(*PLM, "model.memory=-1")
    assert "a backbone with a query stream" in refused(*PLM, "model.two_streams=false")
    assert "memory is the input of a layer" in refused(
        *PLM, "model.memory=4", "model.stack.layout=fa*2"
    )
    pre_norm = "model.stack.residual._target_=plmctl.nn.residual.PreNorm"
    assert "false: memory is the input of a layer, and a layer here has two" in refused(
        *PLM, "model.memory=4", "model.stack.reversible=true", pre_norm
    )


def test_rows_without_order_or_continuation_are_refused_when_read() -> None:
    made = model(*PLM, "model.memory=9")
    with pytest.raises(ConfigError, match=r"tracks\.order"):
        made(batch(tokens(2, 12), asked=torch.ones(2, 12, dtype=torch.bool)))
    with pytest.raises(ConfigError, match=r"values\.continues"):
        made(batch(tokens(2, 12)), made.backbone.fresh_state(2, torch.device("cpu")))
    with pytest.raises(ConfigError, match=r"model\.reuse"):
        made(
            batch(tokens(2, 5), continues=[False, False]),
            made.backbone.fresh_state(2, torch.device("cpu")),
        )


@torch.no_grad()
def test_it_writes_what_it_would_write_without_a_cache() -> None:
    """Greedy, two prompts of different lengths at once; without a cache the whole text is read
    again for each token.
    """
    made, prompts = model(), [[3, 1, 4], [2, 6, 5, 3, 1]]
    ids = torch.tensor([[*prompt, *[TINY.pad] * (5 - len(prompt))] for prompt in prompts])
    found = generate(
        made,
        Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([3, 5]))}),
        vocab=TINY,
        max_new=4,
        end=-1,
        search=Greedy(min_length=0, no_repeat_ngram=0, first=None),
    )
    for row, text in enumerate(prompts):
        written = list(text)
        for _ in range(4):
            longer = torch.tensor([[*written, 0]])
            asked = torch.zeros_like(longer, dtype=torch.bool)
            asked[0, -1] = True
            order = torch.arange(longer.shape[1])[None]
            state = made(batch(longer, order=order, asked=asked)).streams["query"]
            written.append(int(made.heads["plm"](state).argmax()))
        assert found[row][0].ids == written[len(text) :]


def test_what_it_costs_is_counted() -> None:
    """By hand: one layer of 16, rows of 12 behind 9, a quarter of the tokens predicted."""
    made = model(*PLM, "model.memory=9", "size.num_layers=1")
    w, inner, keys, rows = 16, 24, 12 + 9, 1.25
    # q, out and feed-forward; k and v
    matrices = rows * (w * w + w * w + 2 * w * inner) + keys / 12 * 2 * w * w
    scores = rows * (2 * keys + keys + 12) * w  # contents and values, and distances from -11 to 21
    head = 0.25 * TINY.size * w
    found = cost(made, length=12, predicted={"plm": 0.25, "mlm": 1.0})
    assert found.flops_per_token == pytest.approx(6 * (matrices + scores + head))
