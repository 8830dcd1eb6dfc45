"""The cost of a save in the background for an update: `python benchmarks/saves.py`.

One pretraining with `train.save_async=true`. Each update is timed by the clock and by the processor
time of its process, and counted as one during a save or one without. How long training waits for
the copy of a save is timed apart. The machine needs a core to spare.

    python benchmarks/saves.py --size small --steps 200 --every 20 --words train.batch_size=16
    python benchmarks/saves.py --processes 2 --words train.parallel=sharded
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIRST = 5  # updates of a run that are not counted: they allocate


def watch(file: Path) -> None:
    """Write the times of each update and save of this process into a file, at its end."""
    import atexit

    from plmctl.training.saving.saves import Saves
    from plmctl.training.trainer import Trainer

    updates: list[tuple[float, float, bool]] = []
    copies: list[float] = []

    def time_update(real: Callable[[Trainer], bool]) -> Callable[[Trainer], bool]:
        def call(trainer: Trainer) -> bool:
            place: Any = trainer.saves._place
            busy = place is not None and place.busy
            before = time.perf_counter(), time.process_time()
            done = real(trainer)
            after = time.perf_counter(), time.process_time()
            updates.append((after[0] - before[0], after[1] - before[1], busy))
            return done

        return call

    def time_copy(real: Callable[..., None]) -> Callable[..., None]:
        def call(saves: Saves, *given: Any, **named: Any) -> None:
            saves.wait()
            before = time.perf_counter()
            real(saves, *given, **named)
            copies.append(time.perf_counter() - before)

        return call

    Trainer._step = time_update(Trainer._step)  # type: ignore[method-assign]
    Saves.save = time_copy(Saves.save)  # type: ignore[method-assign]
    rank = os.environ.get("RANK", "0")
    atexit.register(
        lambda: file.with_suffix(f".{rank}").write_text(json.dumps([updates[FIRST:], copies]))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--words", nargs="*", default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times"
        words = [f"size={given.size}", f"train.steps={given.steps}", "train.save_async=true"]
        words += [f"train.save_every={given.every}", f"train.processes={given.processes}"]
        words += ["train.eval_every=0", "train.keep_best=false", f"run.dir={folder}/run"]
        # every process of the run begins with it
        (Path(folder) / "sitecustomize.py").write_text(
            f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            f"from pathlib import Path\nif 'plmctl' in sys.orig_argv:\n"
            f"    import saves\n    saves.watch(Path({str(times)!r}))\n"
        )
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "plmctl", "pretrain", "-q", *words, *given.words]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        updates, copies = json.loads(times.with_suffix(".0").read_text())
    beside = [update for update in updates if update[2]]
    alone = [update for update in updates if not update[2]]
    print(f"{'':16} {'updates':>8} {'ms by the clock':>16} {'ms of a processor':>18}")
    for name, some in (("without a save", alone), ("during a save", beside)):
        clock, processor = (
            1000 * statistics.median([each[n] for each in some]) if some else float("nan")
            for n in (0, 1)
        )
        print(f"{name:16} {len(some):8} {clock:16.2f} {processor:18.2f}")
    if copies:
        print(f"copy of a save: {1000 * statistics.median(copies):.1f} ms, of {len(copies)}")


if __name__ == "__main__":
    main()
