"""Whether a model with cells of a plug-in reads token by token what it reads in a whole row."""

from __future__ import annotations

from weakref import WeakSet

import torch
from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.models.base import Model
from plmctl.models.capabilities import make_cache
from plmctl.nn.peft.base import find_cells

TOKENS, TOGETHER = 5, 2  # tokens of a row; the number that is read at once, before the others
# tolerances as shares of the largest state: for fp32, and for types that round
NEAR, ROUNDED = 1e-3, 5e-2
_HELD: WeakSet[Model] = WeakSet()  # models that were looked at


@torch.no_grad()
def check_cached(model: Model, batch: Batch, prompt: Seq, size: int) -> None:
    """Raise UsageError for a model whose own cells give other states token by token than for a
    whole row, since its text would be wrong. The cells of plmctl have tests; a model with others is
    looked at once, by a few tokens.

    Args:
        batch: The source of an encoder-decoder.
        prompt: The input; its tracks, such as segments, are those of the few tokens.
        size: Tokens of the vocabulary.
    """
    cells = [cell for cell in find_cells(model.backbone) if _is_foreign(cell)]
    if not cells or model in _HELD:
        return
    why = "a cell states cached = False"
    if all(cell.facts.cached for cell in cells):
        apart, near = _compare(model, batch, prompt, size)
        if apart <= near:
            _HELD.add(model)
            return
        why = f"token by token, states are {apart:.2g} away from those of a whole row"
    names = ", ".join(dict.fromkeys(type(cell).__name__ for cell in cells))
    raise UsageError(
        f"{names}: cannot read from a cache, so nothing is generated: {why}\n"
        "  fix: keep in env.slot what the cell needs of the tokens before (docs/extend/cell.md)"
    )


def _is_foreign(cell: object) -> bool:
    return type(cell).__module__.partition(".")[0] != "plmctl"


def _compare(model: Model, batch: Batch, prompt: Seq, size: int) -> tuple[float, float]:
    """(the largest difference of the last state, the largest that rounding explains)."""
    rows, device = len(prompt.ids), prompt.ids.device
    ids = (torch.arange(TOKENS, device=device) * 7 + 5) % size
    kept = [name for name in prompt.tracks if name not in ("real", "position", "document")]
    states: list[Tensor] = []
    for sizes in ([TOKENS], [TOGETHER, *[1] * (TOKENS - TOGETHER)]):
        cache, begin = make_cache(model.backbone, batch), 0
        for count in sizes:
            some = ids[begin : begin + count].expand(rows, -1)
            tracks = {name: prompt.tracks[name][:, -1:].expand(-1, count) for name in kept}
            length = torch.full((rows,), count, device=device)
            read = {model.backbone.writes: Seq(some, length, tracks, full=True)}
            last = model(Batch(torch.arange(rows, device=device), read), cache).last[:, -1]
            begin += count
        states.append(last)
    whole, one_by_one = (state.float() for state in states)
    near = NEAR if states[0].dtype == torch.float32 else ROUNDED
    rounded = torch.is_autocast_enabled(device.type)
    near = (ROUNDED if rounded else near) * max(1.0, whole.abs().max().item())
    return (whole - one_by_one).abs().max().item(), near
