"""`plmctl data rewrite`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING, build, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Batch, Count
from plmctl.storage.resumable import new_folder

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded
    from plmctl.datasets.rewrite import Rewriting


@dataclass(frozen=True)
class Rewrite(TaskUser, Command):
    """Write a training set whose targets a trained model wrote.

    A student that learns from it imitates this model (sequence-level distillation).
    """

    about = About(
        "data rewrite",
        place=40,
        examples=(
            "plmctl data rewrite checkpoint=runs/en-de out=en-de-rewritten",
            (
                "plmctl data rewrite checkpoint=runs/en-de pick=nearest search.width=3"
                " search.count=3 out=en-de-nearest"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="task search",
    )

    checkpoint: str = MISSING  # the model that writes: a run, a checkpoint or a Hugging Face folder
    task: Any = None
    out: str = MISSING  # a new folder, for task.path
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    search: Any = None
    # text to take from a search: the likeliest, or the nearest to the reference
    pick: Literal["best", "nearest"] = "best"
    max_new: Count | None = None  # most tokens of a text; null: task.max_target

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        out = new_folder(self.out)
        work, loaded = self.plan()
        work.write(out)
        found = {"out": self.out, "sources": len(work.examples), **work.counted}
        return self.report(found, self._describe(work, loaded))

    def plan(self) -> tuple[Rewriting, Loaded]:
        """The rewriting, and the model that writes."""
        from plmctl.artifacts.identity import identity
        from plmctl.artifacts.loading import load
        from plmctl.datasets.rewrite import Rewriting, choose_reader, choose_task
        from plmctl.distill.sequence import Nearest, Pick, pick_likeliest
        from plmctl.training.processes.world import device_of

        device = device_of(self.device, "device")
        search = build(self.search, {}, self.plugins, path="search")
        nearest = self.pick == "nearest"
        if nearest and search.count < 2:
            allowed = "at least 2: pick=nearest chooses among them"
            raise ConfigError("search.count", search.count, allowed, fix="search.count=5")
        loaded = load(self.checkpoint, plugins=self.plugins)
        task = choose_task(loaded, None if self.task is None else plain(self.task))
        reader = choose_reader(loaded, self.checkpoint)
        pick: Pick = pick_likeliest
        if nearest:
            pick = Nearest(tokenize=task.tokenize, lowercase=task.lowercase)
        model = identity(loaded.source)
        work = Rewriting(
            reader=reader,
            task=task,
            search=search,
            pick=pick,
            max_new=self.max_new or (reader.task or task).max_target,
            batch_size=self.batch_size,
            device=device,
            how={"model": model, "pick": self.pick, "search": plain(self.search)},
        )
        return work, loaded

    def _describe(self, work: Rewriting, loaded: Loaded) -> Iterator[str]:
        from plmctl.datasets.after_writing import spell_next

        counted = ", ".join(f"{value:,} {what}" for what, value in work.counted.items() if value)
        what = f"targets of {len(work.examples):,} sources"
        yield f"{self.out}: {what}" + (f"; {counted}" if counted else "")
        named = [f"task={work.task.name}", spell_setting("task.path", self.out)]
        for side in ("source", "target"):
            named.append(spell_setting(f"task.columns.{side}", work.names[side]))
        yield spell_next(loaded, work.task, named, checkpoint=self.checkpoint)
