"""One process of test_distributed: `python -m toy_process <folder> <steps> <micro-batch>
[resume] [signal=<step>] [full]`.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import PlmctlError
from plmctl.training.evaluation import mean_losses
from plmctl.training.processes.world import join, leave
from plmctl.training.stages import Stage
from tests.training.toy import ToyBatches, ToyObjective, make_trainer


def full(folder: Path) -> None:
    raise OSError(28, "No space left on device")


def main(folder: str, steps: str, micro: str, *options: str) -> int:
    world = join("cpu")
    seen: list[int] = []

    class Watched(ToyBatches):
        def __next__(self) -> list[Batch]:
            micro_batches = super().__next__()
            seen.extend(int(key) for batch in micro_batches for key in batch.key)
            return micro_batches

    class Objective(ToyObjective):
        def after_step(self, model, step):
            if f"signal={step}" in options and world.rank == 1:  # only one of them hears it
                os.kill(os.getpid(), signal.SIGTERM)

    def evaluate(model, progress):
        return mean_losses(model, trainer.objective, next(ToyBatches(8, 2, world)), world=world)

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
    if "resume" in options:
        trainer.resume(trainer.checkpoints.newest())
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
