"""MPNet's masked and permuted prediction: what each row sees by hand, and what equals what."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Rows, Seq, Targets
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.mpnet import _see
from plmctl.noise.prediction_order import PredictionOrder
from plmctl.runs.contract.stand_in import TINY

SMALL = ["size=tiny", "size.width=16", "size.inner_width=24", "size.num_layers=2"]
SMALL += ["size.num_heads=2", "format.max_length=12", "train.steps=1", "data.path=x"]
MASK = TINY.mask


def make_model(*words: str) -> Model:
    cfg = compose("pretrain", "mpnet", [*SMALL, *words])
    made = build_model(cfg, vocab_size=13, vocab=TINY, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return made


def make_batch(clean: Tensor, shown: Tensor, order: Tensor, length: list[int]) -> Batch:
    """A batch with one spare slot."""
    index = torch.cat([(order > 0).flatten().nonzero()[:, 0], torch.zeros(1, dtype=torch.long)])
    ids = clean.flatten()[index]
    ids[-1] = IGNORE
    seq = Seq(shown, torch.tensor(length), {"order": order})
    targets = {"mlm": Targets(index, ids, len(index) - 1)}
    return Batch(torch.arange(len(clean)), {"text": seq}, targets)


# two rows of 6 tokens, the second one of 5; predicted 3 and 2 of them
CLEAN = torch.tensor([[7, 8, 9, 10, 11, 12], [7, 9, 8, 12, 10, 0]])
ORDER = torch.tensor([[0, 2, 0, 1, 3, 0], [0, 0, 2, 1, 0, 0]])
SHOWN = torch.where(ORDER > 0, MASK, CLEAN)
SHOWN[0, 4] = 5  # a random token instead of a mask
SHOWN[1, 3] = 12  # kept
LENGTH = [6, 5]


def test_the_three_kinds_of_rows_see_what_the_paper_says() -> None:
    order, asked = torch.tensor([[0, 2, 0, 1, 3, 0]]), torch.tensor([[2, 1, 3, 0]])
    real = torch.tensor([[True, True, True, False]])
    found = _see(order, asked, real)[0, 0].int().tolist()
    #        x_0 x_1 x_2 x_3 x_4 x_5  masks of 1, 3, 4, spare; queries
    plain = [1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert [found[row] for row in (0, 2, 5, 6, 7, 8)] == [plain] * 6
    assert found[3] == [1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0]  # x_3, the first
    assert found[1] == [1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]  # x_1, the second
    assert found[4] == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]  # x_4, the last
    assert found[11] == [1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0]  # the query of x_3
    assert found[10] == [1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0]  # of x_1
    assert found[12] == [1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]  # of x_4


def permute_literally(made: Model, row: int) -> dict[int, Tensor]:
    """{order: the state that predicts} of one row as the paper lays it out: the permuted tokens,
    masks, and a second stream of queries, layer by layer.
    """
    length = LENGTH[row]
    clean, order, shown = (x[row, :length] for x in (CLEAN, ORDER, SHOWN))
    plain, tail = (order == 0).nonzero()[:, 0], order.argsort(stable=True)[(order == 0).sum() :]
    c, p = len(plain), len(tail)
    places = torch.cat([plain, tail, tail])
    ids = torch.cat([clean[plain], clean[tail], shown[tail]])
    backbone, stack = made.backbone, made.backbone.stack
    embedding, position = backbone.embedding, backbone.position

    def embed(ids: Tensor, places: Tensor) -> Tensor:
        return embedding.norm(embedding.token(ids) + position.table(places))[None]

    content, query = embed(ids, places), embed(shown[tail], tail)
    see = torch.zeros(c + 2 * p, c + 2 * p, dtype=torch.bool)  # the content stream
    see[:, :c] = True
    see[:c, c + p :] = see[c + p :, c + p :] = True
    ask = torch.zeros(p, c + 2 * p, dtype=torch.bool)
    ask[:, :c] = True
    for t in range(p):
        for j in range(p):
            see[c + t, c + j], see[c + t, c + p + j] = j <= t, j > t
            ask[t, c + j], ask[t, c + p + j] = j < t, j >= t
    for layer in range(2):
        attention, inner = (stack.blocks[letter][layer] for letter in "af")
        keys, new = content, []
        for stream, mask, own in ((content, see, places), (query, ask, tail)):
            cell = attention.cell
            width = cell.head_width
            q, k, v = (cell.qkv(x).unflatten(-1, (3, 2, width)) for x in (stream, keys, keys))
            scores = torch.einsum("bqhd,bkhd->bhqk", q[:, :, 0], k[:, :, 1]) / width**0.5
            bucket = position.buckets.bucket(places[None, :] - own[:, None])
            scores = scores + position.buckets.table(bucket).permute(2, 0, 1)
            probabilities = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            seen = torch.einsum("bhqk,bkhd->bqhd", probabilities, v[:, :, 2]).flatten(2)
            x = attention.norm_sum(stream + cell.out(seen))
            new.append(inner.norm_sum(x + inner.cell(*_as_stream(x))))
        content, query = new
    return {int(order[place]): query[0, t] for t, place in enumerate(tail)}


def _as_stream(x: Tensor) -> tuple[dict[str, Tensor], None]:
    return {"text": x}, None


@torch.no_grad()
def test_queries_are_those_of_the_permuted_rows() -> None:
    made = make_model()
    batch = make_batch(CLEAN, SHOWN, ORDER, LENGTH)
    found = made(batch).streams["predicted"]
    for row in range(2):
        for order, wanted in permute_literally(made, row).items():
            place = row * 6 + int((ORDER[row] == order).nonzero()[0, 0])
            slot = batch.targets["mlm"].index.tolist().index(place)
            torch.testing.assert_close(found[slot], wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_query_knows_no_token_of_its_order_or_later() -> None:
    made = make_model()
    before = made(make_batch(CLEAN, SHOWN, ORDER, LENGTH)).streams["predicted"]
    slots = {1: 1, 2: 0, 3: 2}  # the slot of each order in the first row
    for order in (1, 2, 3):
        other = CLEAN.clone()
        other[0, ORDER[0] >= order] = 6
        after = made(make_batch(other, SHOWN, ORDER, LENGTH)).streams["predicted"]
        assert all(after[slots[t]].equal(before[slots[t]]) for t in range(1, order + 1))
        assert all(not after[slots[t]].equal(before[slots[t]]) for t in range(order + 1, 4))


@torch.no_grad()
def test_without_predicted_tokens_it_is_the_plain_encoder() -> None:
    made, plain = (
        make_model(),
        make_model(
            "model=encoder",
            "model.embedding.segments=0",
            "objective=[mlm]",
            "noise=[token_mask]",
            "eval.noise=null",
        ),
    )
    plain.load_state_dict(made.state_dict())
    none = make_batch(CLEAN, CLEAN, ORDER * 0, LENGTH)
    alone = Batch(none.key, {"text": Seq(CLEAN, torch.tensor(LENGTH), {})})
    wanted = plain(alone).last
    real = torch.arange(6) < torch.tensor(LENGTH)[:, None]
    torch.testing.assert_close(made(none).last[real], wanted[real], rtol=1e-12, atol=1e-12)
    assert made(alone).last.equal(wanted)


def test_the_loss_is_that_of_the_queries_and_reaches_every_weight() -> None:
    made = make_model()
    cfg = compose("pretrain", "mpnet", SMALL)
    objective = build_objective(cfg.objective, made, vocab_size=13, seed=0)
    batch = make_batch(CLEAN, SHOWN, ORDER, LENGTH)
    batch.counts["mlm"] = 5
    (term,) = objective(made, batch).terms.values()
    states = [permute_literally(made, row) for row in range(2)]
    rows = [(row, order) for row in range(2) for order in states[row]]
    logits = made.heads["mlm"](torch.stack([states[row][order] for row, order in rows]))
    ids = torch.tensor([int(CLEAN[row][ORDER[row] == order]) for row, order in rows])
    wanted = torch.nn.functional.cross_entropy(logits, ids, reduction="sum")
    torch.testing.assert_close(term.total, wanted.to(term.total.dtype), rtol=1e-6, atol=1e-6)
    term.total.backward()
    assert all(weight.grad is not None for weight in made.parameters())


def test_every_order_is_as_likely_as_any_other() -> None:
    targets = np.tile([[IGNORE, 5, 6, IGNORE, 7]], (6000, 1))
    seq = Seq(np.ones((6000, 5), np.int32), np.full(6000, 5))
    rows = Rows(np.arange(6000), {"text": seq}, targets={"mlm": targets})
    order = PredictionOrder()(rows, Draws(0, 0)).seqs["text"].tracks["order"]
    assert (order[:, [0, 3]] == 0).all()
    found, counts = np.unique(order[:, [1, 2, 4]], axis=0, return_counts=True)
    assert sorted(map(tuple, found.tolist())) == [
        (1, 2, 3),
        (1, 3, 2),
        (2, 1, 3),
        (2, 3, 1),
        (3, 1, 2),
        (3, 2, 1),
    ]
    assert abs(counts - 1000).max() < 120


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="by the pattern alone, unlike s"):
        make_model(
            "model.stack.layout=saf*2",
            "+model.stack.cells.s={_target_:plmctl.nn.cells.convolution.DepthwiseConvolution,"
            "_partial_:true,kernel:3,causal:false}",
        )
    made = make_model("model=encoder", "objective=[mlm]", "noise=[token_mask]", "eval.noise=null")
    cfg = compose("pretrain", "mpnet", SMALL)
    with pytest.raises(ConfigError, match="model=mpnet"):
        build_objective(cfg.objective, made, vocab_size=13, seed=0)
