"""The encoder-decoder: token by token as at once, packed documents stay apart, a text alone
serves both ends.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY

SETTINGS = [
    "model=encoder_decoder",
    "noise=[text_infill]",
    "objective=[seq2seq]",
    "eval.noise=${noise}",
    "size=tiny",
    "train.steps=1",
]


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    cfg = compose(
        "pretrain", None, [*SETTINGS, "data.path=x", "size.width=32", "size.inner_width=48"]
    )
    return build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()


def seq(rows: int, length: int, real: list[int] | None = None, **tracks: torch.Tensor) -> Seq:
    ids = torch.randint(0, TINY.size, (rows, length))
    return Seq(
        ids,
        torch.full((rows,), length) if real is None else torch.tensor(real),
        tracks,
        full=real is None,
    )


def batch(**seqs: Seq) -> Batch:
    return Batch(torch.arange(len(next(iter(seqs.values())).ids)), seqs)


@torch.no_grad()
def test_token_by_token_equals_all_at_once(model: Model) -> None:
    given = batch(source=seq(3, 7, [7, 5, 3]), target=seq(3, 6))
    whole = model(given).last
    read = torch.cat([torch.full((3, 1), TINY.eos), given.seqs["target"].ids[:, :-1]], 1)
    cache = model.backbone.fresh_cache(given)
    steps = [
        model(batch(target=Seq(read[:, t : t + 1], torch.ones(3).long(), full=True)), cache).last
        for t in range(6)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_rows_of_a_cache_can_be_chosen(model: Model) -> None:
    given = batch(source=seq(2, 5, [5, 3]), target=seq(2, 3))
    cache = model.backbone.fresh_cache(given)
    ids = torch.tensor([[1], [2]])
    one = lambda ids: batch(target=Seq(ids, torch.ones(len(ids)).long(), full=True))  # noqa: E731
    model(one(ids), cache)
    cache.select(torch.tensor([1, 0, 1]))
    swapped = model(one(torch.tensor([[3], [4], [5]])), cache).last
    for row, (before, after) in {0: (1, 3), 1: (0, 4), 2: (1, 5)}.items():
        source = given.seqs["source"]
        alone = batch(source=Seq(source.ids[[before]], source.length[[before]]), target=seq(1, 2))
        fresh = model.backbone.fresh_cache(alone)
        model(one(ids[[before]]), fresh)
        torch.testing.assert_close(model(one(torch.tensor([[after]])), fresh).last[0], swapped[row])


@torch.no_grad()
def test_packed_documents_are_what_they_are_alone(model: Model) -> None:
    parts = [(4, 3), (3, 3)]  # lengths of source and target of two documents in one row
    sources, targets = [seq(1, a) for a, _ in parts], [seq(1, b) for _, b in parts]

    def packed(seqs: list[Seq]) -> Seq:
        tracks = {
            "document": torch.cat([torch.full_like(s.ids, n) for n, s in enumerate(seqs)], 1),
            "position": torch.cat([torch.arange(s.ids.shape[1])[None] for s in seqs], 1),
        }
        return Seq(
            torch.cat([s.ids for s in seqs], 1),
            torch.tensor([sum(s.ids.shape[1] for s in seqs)]),
            tracks,
            full=True,
        )

    together = model(batch(source=packed(sources), target=packed(targets))).last
    alone = [model(batch(source=a, target=b)).last for a, b in zip(sources, targets, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone, 1), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_text_without_target_is_read_at_both_ends(model: Model) -> None:
    text = seq(2, 5, [5, 4])
    torch.testing.assert_close(
        model(batch(text=text)).last, model(batch(source=text, target=text)).last
    )


def test_no_state_depends_on_the_token_it_predicts(model: Model) -> None:
    given = batch(source=seq(1, 4), target=seq(1, 5))
    x = model.backbone.embed(given).detach().requires_grad_()
    last = model.backbone.encode(x, given).last
    weights = torch.randn_like(last[0, 0])  # not a plain sum: that of a normed state is constant
    for place in range(5):
        (grad,) = torch.autograd.grad(last[0, place] @ weights, x, retain_graph=True)
        assert not grad[0, place + 1 :].any()
        assert grad[0, : place + 1].abs().amax(-1).min().item() > 0


@pytest.mark.parametrize("start", ["cls", 3])
def test_start_is_a_role_or_an_id(start: str | int) -> None:
    cfg = compose("pretrain", None, [*SETTINGS, "data.path=x", f"model.start={start}"])
    assert build_model(cfg, vocab_size=8, vocab=TINY).backbone.start == (
        TINY.cls if start == "cls" else 3
    )  # type: ignore[comparison-overlap]


def test_a_wrong_start_is_refused() -> None:
    cfg = compose("pretrain", None, [*SETTINGS, "data.path=x", "model.start=eoss"])
    with pytest.raises(ConfigError, match="did you mean"):
        build_model(cfg, vocab_size=8, vocab=TINY)
