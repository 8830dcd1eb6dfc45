"""Every task on every backbone with every strategy, one update and one score each:
`python -m tests.task_matrix out [--tasks ...] [--backbones ...] [--strategies ...]`.

A cell runs, is refused with a sentence (a PlmctlError), or has FAILED. Backbones are recipes after
one update at a tiny size, or folders of published models; tests/task_samples.py has the files.
What is known of a cell stays in out/cells.jsonl, so that the command goes on where it was;
out/matrix.md and out/matrix.json have all cells.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from plmctl.config.command import perform
from plmctl.config.compose import compose
from plmctl.config.recipes import recipe_names
from plmctl.core.errors import PlmctlError
from plmctl.core.locate import locate
from plmctl.text.corpus import extract_paragraphs, load_topics
from plmctl.text.document import Document
from tests.knowledge.tables import link_words
from tests.task_samples import find_samples, list_tasks, read_settings
from tests.tasks import clue_files

TINY = ("size=tiny", "size.width=32", "size.inner_width=64", "tokenizer.vocab_size=600",
        "format.max_length=48", "train.batch_size=4")  # fmt: skip
ONCE = ("train.steps=1", "train.eval_every=0", "train.save_every=0", "train.threads=1")
PLAIN = ("train.epochs=null", "train.batch_size=2", "train.precision=fp32")
SENTIMENT = Path(__file__).parent / "fixtures" / "sentiment.tsv"
STRATEGIES: dict[str, tuple[str, ...]] = {
    "full": (),
    "frozen": ("train.frozen=[backbone]",),
    "mix": ("features=mix", "train.frozen=[backbone]"),
    "concat": ("features=concat", "heads.features.layers=[-2,-1]", "train.frozen=[backbone]"),
    "bilstm": ("head_encoder=bilstm", "heads.encoder.hidden_width=8"),
    "gradual": ("train.stages=[{share:0.5,train.frozen:[backbone]},{share:0.5}]", "train.steps=2"),
    "layer decay": ("optim.layer_decay=0.8",),
    "stable": ("tuning=stable", "train.least_steps=0"),
    "auxiliary": ("transform@task.transform=gpt",),
    "k_adapter": ("features=k_adapter", "train.frozen=[backbone]"),
    "adapters": ("peft=adapter",),
    "lora": ("peft=lora",),
    "prefix": ("peft=prefix",),
    "freelb": ("regulariser=freelb",),
    "smart": ("regulariser=smart",),
}
SHORT = {"max_length": 48, "max_query": 8, "stride": 8}  # of the settings that a task has


@dataclass(frozen=True)
class Cell:
    """What became of one task on one backbone with one strategy."""

    task: str
    backbone: str
    strategy: str
    state: str  # runs, refused, FAILED
    said: str = ""  # its score, its sentence, or the traceback


class Matrix:
    """The cells of a folder."""

    def __init__(self, folder: Path, tasks: Sequence[str]) -> None:
        self.folder = folder.resolve()
        self.cells: dict[tuple[str, str, str], Cell] = {}
        self.file = self.folder / "cells.jsonl"
        if self.file.exists():
            for line in self.file.read_text(encoding="utf-8").splitlines():
                self._keep(Cell(**json.loads(line)))
        (self.folder / "backbones").mkdir(parents=True, exist_ok=True)
        self.samples = find_samples(self.folder / "samples", tasks)

    def _keep(self, cell: Cell) -> None:
        self.cells[cell.task, cell.backbone, cell.strategy] = cell

    def try_cells(
        self, tasks: Iterable[str], backbones: Sequence[str], strategies: Sequence[str]
    ) -> None:
        """Try what is not known yet; models of cells are not kept."""
        for backbone in backbones:
            for task in tasks:
                sample = self.samples[task]
                for strategy in strategies if sample.verb == "finetune" else ["full"]:
                    if (task, backbone, strategy) in self.cells:
                        continue
                    state, said = self._try(task, backbone, strategy)
                    cell = Cell(task, backbone, strategy, state, said)
                    self._keep(cell)
                    with self.file.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(cell)) + "\n")
                    if len(self.cells) % 25 == 0:  # it takes as long as a quarter of a cell
                        gc.collect()

    def _try(self, task: str, backbone: str, strategy: str) -> tuple[str, str]:
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                return "runs", self._score(task, self._pretrain(backbone), strategy, run)
        except PlmctlError as error:
            return "refused", " ".join(str(error).replace(str(self.folder), "").split())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return "FAILED", traceback.format_exc()

    def _pretrain(self, recipe: str) -> Path:
        """The backbone after one update, which is kept; a published model as it is."""
        if (Path(recipe) / "config.json").exists():
            return Path(recipe)
        run = self.folder / "backbones" / recipe
        if not (run / "checkpoints" / "step-1" / "manifest.json").exists():
            shutil.rmtree(run, ignore_errors=True)
            words = [*TINY, *ONCE, *self._find_text(recipe), f"run.dir={run}", "eval.rows=8"]
            perform(compose("pretrain", recipe, words).asked())
        return run

    def _find_text(self, recipe: str) -> list[str]:
        """The text that a recipe reads: lines, pairs of lines, or entities in text."""
        text, pairs = self.folder / "text.txt", self.folder / "pairs.txt"
        if not pairs.exists():
            pages = (extract_paragraphs(page) for _, page in sorted(load_topics().items()))
            documents = ("\n".join(Document(tuple(page), "").sentences) for page in pages if page)
            samples = Path(clue_files.__file__).read_text(encoding="utf-8")
            signs = re.findall(r"[\u3000-\u9fff\uff00-\uffef]", samples)
            chinese = "\n".join([" ".join(dict.fromkeys(signs))] * 60)  # all that the samples have
            found = "\n\n".join(documents)[:60_000] + f"\n\n{chinese}\n"
            link_words(self.folder / "linked", found)
            text.write_text(found, encoding="utf-8")
            pairs.write_text("\n".join(line[::-1] for line in found.split("\n")), encoding="utf-8")
        cfg = compose("pretrain", recipe)
        if "sentiment_mask" in (cfg.noise or {}):
            return [f"data.path={text}", f"noise.sentiment_mask.lexicon.path={SENTIMENT}"]
        if locate(cfg.format._target_).parallel:  # type: ignore[attr-defined]
            return [f"data.path={text}", f"data.target_path={pairs}", "format.target_length=24"]
        if cfg.data.spans:
            return [f"data.path={self.folder / 'linked' / 'text.jsonl'}"]
        return [f"data.path={text}"]

    def _score(self, task: str, checkpoint: Path, strategy: str, run: Path) -> str:
        """The first score of a task's dev set."""
        sample = self.samples[task]
        if sample.verb == "eval":
            if sample.after:
                checkpoint = self._tune(sample.after, checkpoint, "full", run)
            words = [f"task={task}", f"checkpoint={checkpoint}", *sample.words]
            perform(compose("eval", None, words).asked())
            return "scored"
        result = json.loads(
            (self._tune(task, checkpoint, strategy, run) / "result.json").read_text()
        )
        name, value = next(iter(result["metrics"]["dev"].items()))
        return f"{name}={value:.3g}"

    def _tune(self, task: str, checkpoint: Path, strategy: str, run: Path) -> Path:
        known = read_settings(task)
        short = [f"task.{key}={value}" for key, value in SHORT.items() if key in known]
        words = [f"task={task}", f"checkpoint={checkpoint}", f"run.dir={run}", *PLAIN, *short]
        words += [*self.samples[task].words, *ONCE, *STRATEGIES[strategy]]
        perform(compose("finetune", None, words).asked())
        return run

    def write(self) -> str:
        """Write matrix.md and matrix.json, and say how many cells run."""
        cells = list(self.cells.values())
        rows = json.dumps([asdict(cell) for cell in cells], indent=1)
        (self.folder / "matrix.json").write_text(rows + "\n", encoding="utf-8")
        (self.folder / "matrix.md").write_text(draw(cells), encoding="utf-8")
        return summarize(cells)


def summarize(cells: Sequence[Cell]) -> str:
    """How many cells run, are refused, and fail."""
    number = {state: sum(cell.state == state for cell in cells)
              for state in ("runs", "refused", "FAILED")}  # fmt: skip
    asked = number["runs"] + number["FAILED"]
    share = f", {number['runs'] / asked:.1%} of those asked run" if asked else ""
    counts = ", ".join(f"{count} {state}" for state, count in number.items())
    return f"{len(cells)} cells: {counts}{share}"


def draw(cells: Sequence[Cell]) -> str:
    """A table for each strategy, with the sentences of what is refused below."""
    sentences: dict[str, int] = {}
    parts = [f"{summarize(cells)}.\n"]
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        own = {(c.task, c.backbone): c for c in cells if c.strategy == strategy}
        backbones = list(dict.fromkeys(backbone for _, backbone in own))
        parts.append(f"\n## {strategy}\n\n| task | {' | '.join(backbones)} |")
        parts.append("|---" * (len(backbones) + 1) + "|")
        for task in sorted({task for task, _ in own}):
            marks = [_mark(own.get((task, backbone)), sentences) for backbone in backbones]
            parts.append(f"| `{task}` | {' | '.join(marks)} |")
    parts.append("\n## What is refused, or fails\n")
    parts += [f"{number}. {words}" for words, number in sentences.items()]
    return "\n".join(parts) + "\n"


def _mark(cell: Cell | None, sentences: dict[str, int]) -> str:
    if cell is None:
        return ""
    if cell.state == "runs":
        return cell.said
    words = cell.said.strip().splitlines()[-1]
    number = sentences.setdefault(words, len(sentences) + 1)
    return f"{cell.state} ({number})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--backbones", nargs="+", default=recipe_names())
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["PLMCTL_CACHE"] = str(args.out.resolve() / "cache")
    matrix = Matrix(args.out, args.tasks)
    if absent := [task for task in args.tasks if task not in matrix.samples]:
        print(f"without files in tests/task_samples.py: {', '.join(absent)}")
    try:
        matrix.try_cells(list(matrix.samples), args.backbones, args.strategies)
    finally:
        print(matrix.write())
    return int(any(cell.state == "FAILED" for cell in matrix.cells.values()))


if __name__ == "__main__":
    sys.exit(main())
