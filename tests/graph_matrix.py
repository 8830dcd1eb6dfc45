"""Every task on a backbone, one update each, as a file of ONNX Runtime and of OpenVINO:
`python -m tests.graph_matrix out [--tasks ...] [--backbones ...]`.

A cell is written with the answers of PyTorch, is refused with a sentence, or has FAILED. The files
of tests/task_matrix.py have the cells.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from plmctl.use.deploying import deploy
from tests.task_matrix import Matrix
from tests.task_samples import list_tasks

FORMATS = ("onnx", "openvino")


class GraphMatrix(Matrix):
    """A matrix whose cells are files of graphs."""

    def _score(self, task: str, checkpoint: Path, strategy: str, run: Path) -> str:
        tuned = self._tune(task, checkpoint, "full", run)
        target = self.folder / "graph"
        shutil.rmtree(target, ignore_errors=True)
        deploy(tuned, target, to=strategy)
        return "written"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--backbones", nargs="+", default=["bert"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["PLMCTL_CACHE"] = str(args.out.resolve() / "cache")
    matrix = GraphMatrix(args.out, args.tasks)
    wanted = [task for task, sample in matrix.samples.items() if sample.verb == "finetune"]
    try:
        matrix.try_cells(wanted, args.backbones, FORMATS)
    finally:
        print(matrix.write())
    return int(any(cell.state == "FAILED" for cell in matrix.cells.values()))


if __name__ == "__main__":
    sys.exit(main())
