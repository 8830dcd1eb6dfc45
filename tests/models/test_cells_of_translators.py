"""The recipes of translators whose decoders have convolutions: what they write token by token is
what they compute all at once, for sources of unequal length, also after beams change places.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.runs.contract.stand_in import TINY

LENGTH = 20  # longer than the windows
SMALL = ["size=tiny", "size.width=16", "size.inner_width=32", "data.path=a", "data.target_path=b"]


def make_batch(**sequences: Seq) -> Batch:
    return Batch(torch.arange(2), sequences)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("lite_transformer", []),
        ("lite_transformer", ["model.decoder.stack.by_layer.y.kernel=[31,2]"]),
        ("evolved_transformer", ["size.num_layers=4"]),
        ("evolved_transformer", ["size.num_layers=3", "model.decoder.stack.sandwich=1"]),
        # cells as data
        ("evolved_transformer", ["model.decoder.stack.layout=o*2"]),
    ],
)
@torch.no_grad()
def test_token_by_token_equals_all_at_once(recipe: str, words: list[str]) -> None:
    cfg = compose("pretrain", recipe, [*SMALL, *words])
    model = build_model(cfg, vocab_size=40, vocab=TINY, seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 40, (2, LENGTH), generator=generator)
    lengths = torch.tensor([9, 6])
    source = Seq(torch.randint(10, 40, (2, 9), generator=generator), lengths)
    target = Seq(ids, torch.full((2,), LENGTH), full=True)
    whole = model(make_batch(source=source, target=target)).last
    state = model.backbone.fresh_cache(make_batch(source=source))
    start = torch.full((2, 1), model.backbone.start)  # type: ignore[union-attr]
    read = torch.cat([start, ids[:, :-1]], 1)
    for t in range(LENGTH):
        token = Seq(read[:, t : t + 1], torch.ones(2, dtype=torch.long), full=True)
        step = model(make_batch(target=token), state).last
        torch.testing.assert_close(step[:, 0], whole[:, t], rtol=1e-9, atol=1e-9)
        if t == 7:
            state.select(torch.tensor([1, 0]))
            read, whole = read.flip(0), whole.flip(0)
