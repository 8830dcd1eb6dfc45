"""A run that ends for lack of memory: what it needs, and the settings with which it fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import torch

from plmctl.artifacts.activations import count_activations
from plmctl.core.errors import PlmctlError
from plmctl.core.machine import find_memory
from plmctl.nn.stack import Stack, checkpoint_stacks
from plmctl.runs.memory import NUMBER, divide
from plmctl.runs.session import Session, quoted
from plmctl.storage.gate import admit
from plmctl.training.trainer import Trainer

ROOM = 0.9  # the share of a device's memory that training may plan with
# the words of errors of memory of the host, which have no class of their own
HOST = ("can't allocate memory", "not enough memory", "Cannot allocate memory")


class Way(NamedTuple):
    """Settings, and the bytes that training takes with them."""

    words: str
    needs: float


@contextmanager
def explain_lack_of_memory(session: Session, trainer: Trainer, rows: int) -> Iterator[None]:
    """Turn an error of memory inside into one that says which settings would fit.

    Args:
        rows: The rows of one backward pass.

    Raises:
        PlmctlError: The memory was not enough.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not _is_lack(error):
            raise
        place, update = session.world.device, trainer.progress.step + 1
        has = _find_size(place)
        needs, ways = _find_ways(session, trainer, rows, has)
        taken = f"about {_spell_size(needs)}" if needs else "more"
        lines = [
            f"out of memory on {place} in update {update}: a pass of {rows} rows takes {taken},"
            f" {_spell_size(has)} are there{_write_snapshot(session)}",
            f"  fix: {_spell(session, trainer, ways, rows)}",
        ]
        raise PlmctlError("\n".join(lines)) from None


def _is_lack(error: BaseException) -> bool:
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in HOST)


def _find_size(device: torch.device) -> int:
    """Bytes of memory of a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return find_memory()


def _find_ways(session: Session, trainer: Trainer, rows: int, has: int) -> tuple[float, list[Way]]:
    """The bytes of the run as it is (0: not known), and ways to train it in less, the fastest
    first.
    """
    outline = trainer.model, trainer.objective
    held = _count_held(trainer)
    now = _predict(session, trainer, held, rows)
    if now is None:
        return 0.0, []
    # it did not fit: where the prediction says that it should, all predictions are as much too low
    factor = max(1.0, has / sum(now.values()))
    smaller = [rows >> times for times in range(1, rows.bit_length())]
    ways = []
    stacks = [p for part in outline for p in part.modules() if isinstance(p, Stack)]
    again = bool(stacks) and not any(stack.checkpointed for stack in stacks)
    for checkpointed in (False, True)[: 1 + again]:
        if checkpointed:
            checkpoint_stacks(*outline)
        for count in [rows, *smaller] if checkpointed else smaller:
            memory = _predict(session, trainer, held, count) or now
            words = [f"train.micro_batch_size={count}"] if count < rows else []
            words += ["train.checkpoint_activations=true"] if checkpointed else []
            ways.append(Way(" ".join(words), factor * sum(memory.values())))
            if session.spec.train.get("parallel") == "replicated" and session.world.all.size > 1:
                shares = divide(memory, outline, session.world.all.size)
                words = [*words, "train.parallel=sharded"]
                ways.append(Way(" ".join(words), factor * sum(shares.values())))
    # few rows a pass cost more time than layers that run again, and those more than shares
    ways.sort(key=lambda way: (_count_rows(way, rows) * 8 < rows, way.words.count("=")))
    return factor * sum(now.values()), ways


def _count_rows(way: Way, rows: int) -> int:
    """The rows of a pass of a way."""
    first = way.words.partition("micro_batch_size=")[2].split()
    return int(first[0]) if first else rows


def _count_held(trainer: Trainer) -> dict[str, float]:
    """Bytes that stay from pass to pass: weights, their gradients, the optimizer's state."""
    weights = [weight for _, weight in trainer.parameters]
    trained = sum(weight.numel() for weight in weights if weight.requires_grad)
    return {
        "weights": float(NUMBER * sum(weight.numel() for weight in weights)),
        "gradients": float(NUMBER * trained),
        "optimizer": float(2 * NUMBER * trained),
    }


def _predict(
    session: Session, trainer: Trainer, held: dict[str, float], rows: int
) -> dict[str, float] | None:
    """The bytes of training so many rows at once."""
    model, longest = trainer.model, max((s.lengths for s in trainer.stages), key=sum)
    kept = count_activations(
        model,
        trainer.objective,
        rows=rows,
        lengths=longest if sum(longest) else (model.backbone.max_length or 128, 0),
        predicted=dict.fromkeys(model.heads, 1.0),
        precision=session.precision.name,
    )
    return None if kept is None else {**held, "activations": float(kept)}


def _spell(session: Session, trainer: Trainer, ways: list[Way], rows: int) -> str:
    """The first way that fits, as words to paste; the one with the least need where none does."""
    has = ROOM * _find_size(session.world.device)
    found = next((way for way in ways if way.needs <= has), None)
    if found is None:
        least = min(ways, key=lambda way: way.needs, default=None)
        words = least.words if least else f"train.micro_batch_size={max(1, rows // 2)}"
        needs = f" ({_spell_size(least.needs)} still)" if least else ""
        return f"{words}  # or a smaller model{needs}"
    needs = f"  # about {_spell_size(found.needs)}"
    given, newest = session.spec.provenance, trainer.checkpoints.newest()
    if newest is None or given.within:
        return f"{found.words}{needs}"
    return f"plmctl {given.command} --resume run.dir={quoted(session.folder)} {found.words}{needs}"


def _spell_size(size: float) -> str:
    """`12.3 GB`, or `4 MB` of little."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _write_snapshot(session: Session) -> str:
    """Where the allocations of a GPU lie as a file; "" on a CPU. It lies outside of the run, which
    may begin again.
    """
    if session.world.device.type != "cuda":
        return ""
    name = f"{session.folder.name}.memory.rank{session.world.all.rank}.pickle"
    file = Path(session.folder).with_name(name)
    with suppress(Exception):  # nothing may hide the first error
        torch.cuda.memory._dump_snapshot(str(admit(file)))
        return f"; its allocations: {file} (https://pytorch.org/memory_viz)"
    return ""
