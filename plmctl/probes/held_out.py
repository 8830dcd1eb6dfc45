"""The losses of pretraining on held-out documents, with rows and noise of one's choice (eval
only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from plmctl.artifacts.assemble import build_objective
from plmctl.config.build import class_of, plain
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, UsageError, nearest
from plmctl.core.locate import parameters
from plmctl.core.parts import part_of
from plmctl.core.progress import follow
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, batches_beside, open_held_out
from plmctl.probes.base import Opened, Probe
from plmctl.runs.replaying import ReplayPlan, plan_replay
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World
from plmctl.use.asked_task import is_pretrained, suggest_task
from plmctl.use.predict import ScoreTable


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class HeldOut(Probe):
    """Mean losses and accuracies of a pretrained checkpoint's own objectives on held-out rows.

    Rows and noise may differ from training: a head that was trained on one kind of pairs can be
    measured on another kind (next sentence on sentence order: Lan et al., 2020, arXiv:1909.11942,
    table 5).

    All documents count in a text that the run has not trained on; in its own text, the held-out
    ones do.

    `exact/...`, of rows: for a model that writes from left to right it is the share of rows that
    greedy search writes exactly. The prediction is right as long as all before it are right.
    """

    # names among the checkpoint's own objectives; None: all
    objectives: Sequence[str] | None = None
    # settings of all these that differ from training
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None  # at most; None: all
    seed: int = 0  # the seed of rows and noise
    exact: bool = False  # also the share of rows in which every answer is right; rows one by one

    def measure(self, opened: Opened) -> ScoreTable:
        """The losses and accuracies of each corpus."""
        loaded, precision = opened.loaded, opened.precision
        folder, plan = loaded.source.folder, self._plan(opened)
        corpus, world = open_corpus(plan.texts), World(device=precision.device)
        corpus = replace(corpus, valid=corpus.train) if plan.whole else corpus
        if not corpus.held_out():
            what = f"the run of checkpoint={opened.checkpoint} has held no document out of its text"
            raise DataError(what, fix="data.path=<a text that it has not trained on>")
        model = loaded.model
        objective = build_objective(
            plan.objective, model, corpus.vocab, plugins=opened.plugins, seed=plan.seed
        )
        file = folder / "objective.safetensors"
        load_exactly(objective, read(folder).objective, file=file, without=model)
        objective.to(precision.device).eval()
        batches = open_held_out(plan.feed, corpus, world, BatchFields.by(model, objective))
        asked: dict[str, Any] = {"world": world, "seed": self.seed, "exact": self.exact}
        asked["beside"] = batches_beside(plan.feed, world.size)
        with torch.no_grad(), precision.autocast():
            measured = {
                name: measure(model, objective, follow(rows, _count_tokens, "tokens"), **asked)
                for name, rows in batches.items()
            }
        if len(measured) > 1:
            measured["all"] = Measured.together(measured.values())
        scores = {name: sums.means() for name, sums in measured.items()}
        return ScoreTable("held-out rows", scores, {"checkpoint": opened.folder})

    def _plan(self, opened: Opened) -> ReplayPlan:
        """The validation of the run, as this probe and the command change it; UsageError for a
        checkpoint that no `plmctl pretrain` has made.
        """
        loaded, own = opened.loaded, opened.loaded.config
        if not is_pretrained(loaded.source):
            raise UsageError(
                f"checkpoint={opened.checkpoint}: {_explain_none(own)}, so it has no objective\n"
                f"  fix: {suggest_task(loaded.source)}the run of a plmctl pretrain"
            )
        keys = opened.given.keys
        changed = {**own["eval"], "rows": self.rows, "seed": self.seed}
        changes = {"objective": _choose_objectives(own["objective"], self, opened.plugins)}
        changes["eval"] = changed
        if self.exact:
            changed["batch_size"] = 1
        elif "batch_size" in keys:  # a comparison of rows depends on how many there are
            changed["batch_size"] = opened.batch_size
        if opened.noise is not None:
            changed["noise"] = plain(opened.noise)
        if opened.format is not None:
            changes["format"] = plain(opened.format)
            if "format.max_length" not in keys:  # the model may know no longer rows
                changes["format"]["max_length"] = own["format"]["max_length"]
        return plan_replay(
            own,
            changes,
            opened.data,
            opened.given,
            tokenizer=str(loaded.source.folder / "tokenizer"),
            checkpoint=opened.checkpoint,
        )


def _count_tokens(batch: Batch) -> int:
    return batch.counts["tokens"]


def _explain_none(own: Mapping[str, Any]) -> str:
    """Why a checkpoint has no objective."""
    layers_only = own.get("distill") and "objective" in own and not own["objective"]
    return "it learnt of its teacher's layers" if layers_only else "plmctl pretrain has not made it"


def _choose_objectives(
    own: Mapping[str, Any], part: HeldOut, plugins: Sequence[str]
) -> dict[str, Any]:
    names = list(own) if part.objectives is None else list(part.objectives)
    unknown = [name for name in names if name not in own]
    if unknown or not names:
        allowed = f"those of the run: {', '.join(own)}{nearest(unknown[0], own) if unknown else ''}"
        raise ConfigError("task.objectives", names, allowed)
    for name in names:
        takes = parameters(class_of(own[name], plugins))
        if strange := [setting for setting in part.settings if setting not in takes]:
            own_ones = ", ".join(setting for setting in own[name] if setting in takes)
            allowed = f"settings of objective.{name}: {own_ones or 'it has none'}"
            raise ConfigError("task.settings", strange[0], allowed, fix="task.settings={}")
    return {name: {**own[name], **part.settings} for name in names}
