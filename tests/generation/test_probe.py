"""A cell of a plug-in that ignores the cache is found before anything is written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from plmctl.core.errors import UsageError
from plmctl.core.parts import part_of
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.models.base import Model
from plmctl.nn.cells.base import Cell
from plmctl.nn.env import Env, Streams
from tests.generation.test_reading import DECODER, TWO, VOCAB, made, prompts, together


@part_of("cells")
class Running(Cell):
    """Every token reads the mean of those up to it; what came before in a cache is ignored."""

    computes = "attention"
    ahead = False

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        count = torch.arange(1, x.shape[1] + 1)[:, None]
        return self.projection(x.cumsum(1) / count)


@part_of("cells")
class Remembered(Running):
    """The same, which keeps what came before."""

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = seen = streams["text"]
        if env.slot is not None:
            seen = env.slot.extend(x[:, None])[0][:, 0]
        count = torch.arange(1, seen.shape[1] + 1)[:, None]
        return self.projection((seen.cumsum(1) / count)[:, -x.shape[1] :])


@part_of("cells")
class Alone(Running):
    """Reads no other token: there is nothing to keep."""

    def forward(self, streams: Streams, env: Env) -> Tensor:
        return self.projection(streams["text"])


@part_of("cells")
class Stated(Alone):
    """Says that it cannot."""

    cached = False


def with_cell(words: list[str], cell: type[Cell]) -> Model:
    """A model whose first stack that writes has this cell behind its attention."""
    model = made(words)
    stack = getattr(model.backbone, "decoder", model.backbone).stack
    block = stack.blocks["a"][0]
    block.cell = cell(width=16).double()
    return model


@pytest.mark.parametrize("words", [DECODER, TWO], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (Running, "token by token, states are"),
        (Stated, "a cell states cached = False"),
        (Remembered, ""),
        (Alone, ""),
    ],
)
def test_a_cell_that_ignores_the_cache_writes_nothing(
    words: list[str], cell: type[Cell], why: str
) -> None:
    model = with_cell(words, cell)
    batch = together(prompts(), "text" if words is DECODER else "source")
    if not why:
        assert len(generate(model, batch, search=Greedy(), vocab=VOCAB, max_new=3)) == 5
        return
    with pytest.raises(UsageError, match=rf"{cell.__name__}: cannot read from a cache.*{why}"):
        generate(model, batch, search=Greedy(), vocab=VOCAB, max_new=3)


def test_the_random_numbers_and_the_mode_of_the_model_stay() -> None:
    model, before = with_cell(DECODER, Remembered), torch.get_rng_state()
    generate(model, together(prompts()), search=Greedy(), vocab=VOCAB, max_new=1)
    assert torch.equal(before, torch.get_rng_state())
    assert not model.training
