"""Two stacks that read one way each: the halves of every state, what neither sees, one table or
two.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.nn.tables import count

V, T = 23, 6


def made(*words: str) -> Model:
    small = [
        "size=tiny",
        "size.width=16",
        "size.inner_width=32",
        "format.max_length=8",
        "noise=[]",
        "eval.noise=null",
    ]
    cfg = compose(
        "pretrain", "bert", [*small, "format=blocks", "model=two_way", "objective=[bilm]", *words]
    )
    return build_model(cfg, vocab_size=V, seed=0).double().eval()


def batch(length: list[int]) -> Batch:
    ids = torch.randint(5, V, (len(length), T), generator=torch.Generator().manual_seed(1))
    return Batch(
        torch.arange(len(length)),
        {"text": Seq(ids, torch.tensor(length), {}, full=min(length) == T)},
    )


@torch.no_grad()
def test_a_state_is_that_of_both_stacks_side_by_side() -> None:
    model, given = made().backbone, batch([6, 4])
    hidden = model(given, record=frozenset({"hidden"}))
    ahead, behind = (
        part(given, record=frozenset({"hidden"})) for part in (model.ahead, model.behind)
    )
    torch.testing.assert_close(
        hidden.last, torch.cat([ahead.last, behind.last], -1), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(hidden.streams["forward"], ahead.last, rtol=0, atol=1e-12)
    torch.testing.assert_close(hidden.streams["backward"], behind.last, rtol=0, atol=1e-12)
    assert (model.width, hidden.last.shape[-1], len(hidden.recorded["hidden"])) == (
        32,
        32,
        model.num_layers + 1,
    )
    for layer, pair in enumerate(
        zip(ahead.recorded["hidden"], behind.recorded["hidden"], strict=True)
    ):
        torch.testing.assert_close(
            hidden.recorded["hidden"][layer], torch.cat(pair, -1), rtol=0, atol=1e-12
        )


def test_no_direction_sees_what_lies_ahead() -> None:
    """The gradient of place i by the input of place j is zero where j is not yet read, and only
    there.
    """
    model, given = made().backbone, batch([6, 4])
    x = model.embed(given).detach().requires_grad_()
    streams = model.encode(x, given).streams
    for way, (name, ahead) in enumerate(
        (("forward", lambda i, j: j > i), ("backward", lambda i, j: j < i))
    ):
        for row, n in ((0, 6), (1, 4)):
            for i in range(n):
                (grad,) = torch.autograd.grad(streams[name][row, i, 0], x, retain_graph=True)
                sees = grad.abs().sum(-1).ne(0)  # [2, B, T]
                assert not sees[1 - way].any()
                assert not sees[way, 1 - row].any()
                assert sees[way, row].tolist() == [j < n and not ahead(i, j) for j in range(T)]


@pytest.mark.parametrize("tied", [True, False])
def test_one_table_or_two_models(tied: bool) -> None:
    model = made(f"model.tied={str(tied).lower()}").backbone
    assert (model.ahead.token_embedding is model.behind.token_embedding) == tied
    one = count(made("model.tied=false").backbone)
    assert one - count(model) == (V * 16 if tied else 0)
