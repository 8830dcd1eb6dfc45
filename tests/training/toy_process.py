"""One process of test_distributed: `python -m toy_process <folder> <steps> <micro-batch>
[resume] [signal=<step>] [full] [kill=<step>] [hang=<step>] [timeout=<seconds>]
[end=<step>:<how>]`.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import PlmctlError
from plmctl.training.evaluation import measure
from plmctl.training.processes.watch import watching
from plmctl.training.processes.world import World, join, leave
from plmctl.training.stages import Stage
from plmctl.training.trainer import Trainer
from tests.training.toy import ToyBatches, ToyObjective, make_trainer


def full(folder: Path) -> None:
    raise OSError(28, "No space left on device")


def end(how: str, trainer: Trainer) -> None:
    """End as a cluster ends a job, whose task is the parent of this process."""
    task = os.getppid()
    if how == "preempt":
        os.kill(task, signal.SIGUSR2)
    if how == "exit":
        os._exit(9)
    if how == "node":
        controller = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])
        for process in (controller, task, os.getpid()):
            os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while trainer.stop._heard is None and time.monotonic() < deadline:
        time.sleep(0.05)


def main(folder: str, steps: str, micro: str, *options: str) -> int:
    timeout = next((float(o.partition("=")[2]) for o in options if "timeout=" in o), 60.0)
    world = join("cpu", timeout=timeout)
    Path(folder).mkdir(exist_ok=True)
    with watching(Path(folder), rank=world.rank, size=world.size, timeout=timeout):
        return train(world, folder, steps, micro, *options)


def train(world: World, folder: str, steps: str, micro: str, *options: str) -> int:
    seen: list[int] = []

    class Watched(ToyBatches):
        def __next__(self) -> list[Batch]:
            micro_batches = super().__next__()
            seen.extend(int(key) for batch in micro_batches for key in batch.key)
            return micro_batches

    class Objective(ToyObjective):
        def after_step(self, model, step):
            for option in options:
                if option.startswith(f"end={step}:") and not Path(folder, "ended").exists():
                    Path(folder, "ended").touch()
                    end(option.partition(":")[2], trainer)
            if world.rank == 0:
                return
            if f"signal={step}" in options:  # only one of them hears it
                os.kill(os.getpid(), signal.SIGTERM)
            if f"hang={step}" in options:
                time.sleep(60)
            lost = Path(folder, "lost")
            if f"kill={step}" in options and not lost.exists():  # in its first start
                lost.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    def evaluate(model, progress):
        return measure(model, trainer.objective, next(ToyBatches(8, 2, world)), world=world).means()

    trainer = make_trainer(
        Path(folder),
        steps=int(steps),
        dropout=0.0,
        world=world,
        objective=Objective(),
        evaluate=evaluate,
        stages=[Stage(batches=lambda: Watched(8, int(micro), world))],
        settings={"log_every": 1, "eval_every": 2, "keep_best": "loss"},
    )
    if "full" in options:
        trainer.checkpoints.extras = full
    if "resume" in options and (newest := trainer.checkpoints.newest()):
        trainer.log.go_back(int(newest.name.removeprefix("step-")))
        trainer.resume(newest)
    result = trainer.fit()
    (Path(folder) / f"rows-{world.rank}.txt").write_text(" ".join(map(str, seen)))
    return result.exit_code


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        code = main(*sys.argv[1:])
    except PlmctlError as error:  # as the command line does
        print(f"plmctl: {error}", file=sys.stderr)
        code = error.exit_code
    finally:
        leave()
    sys.exit(code)
