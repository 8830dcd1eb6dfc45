"""A trace of some updates: what ran when, on the processor and on the graphics card."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from plmctl.core.terminal import remark
from plmctl.storage.gate import admit, open_file, own

ROWS = 8  # operators of the table
FOLDER = "profile"  # in the run directory


class Profiler:
    """Records the updates from `first` to `last` by torch's profiler, for Perfetto and TensorBoard.

    Nothing is recorded, and no update is slower, before the first one and after the last one. Every
    process writes a file of its own: `updates-20-22.rank0.pt.trace.json`.

    Args:
        updates: The first and the last update, counted from 1; () for none.
        folder: The folder of the files.
        device: The device of this process.
        rank: Its rank.
        say: Shows a line.
    """

    def __init__(
        self,
        updates: tuple[int, ...] = (),
        *,
        folder: Path = Path(FOLDER),
        device: torch.device | None = None,
        rank: int = 0,
        say: Callable[[str], None] = remark,
    ) -> None:
        self.updates, self.folder, self.rank, self.say = updates, folder, rank, say
        self._on_card = device is not None and device.type == "cuda"
        self._running: Any = None
        self._begun = 0  # the first update that is in the trace

    @contextmanager
    def watch(self, step: int) -> Iterator[None]:
        """The time of the update `step`."""
        if self.updates and self._running is None and self.updates[0] <= step <= self.updates[1]:
            self._start(step)
        named = torch.profiler.record_function(f"update {step}") if self._running else nullcontext()
        with named:
            yield
        if self._running and step >= self.updates[1]:
            self.close(step)

    def _start(self, step: int) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self._on_card:
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._running, self._begun = torch.profiler.profile(activities=kinds), step
        with _silence():
            self._running.start()

    def close(self, step: int) -> None:
        """Write the trace, where one is recorded, whose last update is `step`; say where none was,
        though one was wanted.
        """
        if self._running is None:
            if self.updates and step < self.updates[0]:
                wanted = f"train.profile=[{self.updates[0]},{self.updates[1]}]"
                self.say(f"{wanted}: no trace, the run ended after update {step}")
            return
        trace, self._running = self._running, None
        with _silence():
            trace.stop()
        admit(own(self.folder)).mkdir(parents=True, exist_ok=True)
        file = self.folder / f"updates-{self._begun}-{step}.rank{self.rank}.pt.trace.json"
        trace.export_chrome_trace(str(admit(file)))
        self.say(
            "\n".join([*self._list_dearest(trace), f"  trace: {file} (https://ui.perfetto.dev)"])
        )

    def _list_dearest(self, trace: Any) -> list[str]:
        """A table of the operators whose own time is longest."""
        kind = "self_device_time_total" if self._on_card else "self_cpu_time_total"
        events = [e for e in trace.key_averages() if not e.key.startswith("update ")]
        total = sum(getattr(e, kind) for e in events) or 1.0
        events.sort(key=lambda e: -getattr(e, kind))
        place = "the GPU" if self._on_card else "the CPU"
        lines = [f"operators by their own time on {place}, ms ({total / 1e3:,.1f} in all):"]
        for event in events[:ROWS]:
            own = getattr(event, kind)
            lines.append(f"  {own / 1e3:10,.1f} {own / total:6.1%} {event.count:7,} x {event.key}")
        return lines


@contextmanager
def _silence() -> Iterator[None]:
    """A time in which the profiler's library writes nothing to the terminal, whatever its level."""
    kept = os.dup(2)
    try:
        with open_file(Path(os.devnull), "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
