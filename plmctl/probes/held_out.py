"""The losses of pretraining on held-out documents, with rows and noise of one's choice (eval
only).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from plmctl.artifacts.assemble import build_objective
from plmctl.artifacts.contract.contract import check_contract
from plmctl.artifacts.loading import Loaded
from plmctl.config.build import plain
from plmctl.config.make_spec import spec_of
from plmctl.config.plugins import confirm, named
from plmctl.config.text_checks import refuse_decided
from plmctl.config.texts import Feed, Texts, sources
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, DataError, UsageError, nearest
from plmctl.core.locate import locate, parameters
from plmctl.core.parts import part_of
from plmctl.data.shards import is_tokens
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, batches_beside, open_held_out
from plmctl.probes.base import Opened, Probe
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.device.precision import Precision
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
        scores = score_held_out(opened.asked, opened.loaded, self, opened.precision)
        return ScoreTable("held-out rows", scores, {"checkpoint": opened.folder})


def score_held_out(
    spec: Evaluate, loaded: Loaded, part: HeldOut, precision: Precision
) -> dict[str, dict[str, float]]:
    """{corpus: {"loss/mlm": ..., "acc/mlm": ...}}; UsageError for a checkpoint that no `plmctl
    pretrain` has made.
    """
    run, plugins, model = _spec_of_run(spec, loaded, part), spec.plugins, loaded.model
    whole = is_other_text(spec, loaded.config)
    if whole:
        run = run.replace({"data.valid_share": 0.0, "train.share": 1.0})
    if spec.data.path is not None:
        refuse_decided(run, spec.provenance.keys, plugins)
    check_contract(run.replace({"noise": run.eval.noise}), plugins, spec.provenance.config_dirs)
    corpus, world, folder = (
        open_corpus(Texts.of(run)),
        World(device=precision.device),
        loaded.source.folder,
    )
    corpus = replace(corpus, valid=corpus.train) if whole else corpus
    if not corpus.held_out():
        what = f"the run of checkpoint={spec.checkpoint} has held no document out of its text"
        raise DataError(what, fix="data.path=<a text that it has not trained on>")
    objective = build_objective(run.objective, model, corpus.vocab, plugins=plugins, seed=run.seed)
    file = folder / "objective.safetensors"
    load_exactly(objective, read(folder).objective, file=file, without=model)
    objective.to(precision.device).eval()
    feed = Feed.of(run)
    batches = open_held_out(feed, corpus, world, BatchFields.by(model, objective))
    with torch.no_grad(), precision.autocast():
        measured = {
            name: measure(
                model,
                objective,
                rows,
                world=world,
                seed=part.seed,
                exact=part.exact,
                beside=batches_beside(feed, world.size),
            )
            for name, rows in batches.items()
        }
    if len(measured) > 1:
        measured["all"] = Measured.together(measured.values())
    return {name: sums.means() for name, sums in measured.items()}


def is_other_text(spec: Evaluate, own: Mapping[str, Any]) -> bool:
    """Whether data.path is a text that the run of `own` has not trained on, and all of it counts.
    No setting chooses a part, and no token directory holds documents out.
    """
    stated = {"data.valid_share", "data.valid_path"} & spec.provenance.keys
    path = plain(spec.data.path)
    if path is None or stated or is_tokens(path):
        return False
    trained = [part["corpora"] for part in sources(spec_of("pretrain", own)).values()]
    known = [corpus.get("path") for corpora in trained for corpus in corpora.values()]
    return _find_places(path) not in map(_find_places, known)


def _find_places(path: Any) -> list[str]:
    """The identities of texts: absolute paths, and names such as strings:copy:20."""
    names = path if isinstance(path, list | tuple) else [path]
    return [str(name) if ":" in str(name) else os.path.realpath(str(name)) for name in names]


def _spec_of_run(spec: Evaluate, loaded: Loaded, part: HeldOut) -> Any:
    """The spec of the run with its checkpoint's tokenizer, and with the text, rows and noise of the
    evaluation.
    """
    own = loaded.config
    if not is_pretrained(loaded):
        layers_only = own.get("distill") and "objective" in own and not own["objective"]
        why = (
            "it learnt of its teacher's layers"
            if layers_only
            else "plmctl pretrain has not made it"
        )
        raise UsageError(
            f"checkpoint={spec.checkpoint}: {why}, so it has no objective\n"
            f"  fix: {suggest_task(loaded)}the run of a plmctl pretrain"
        )
    confirm(named(own), spec.plugins, of=spec.checkpoint)
    keys, tokenizer = spec.provenance.keys, str(loaded.source.folder / "tokenizer")
    run: dict[str, Any] = {
        **own,
        "init": None,
        "tokenizer": {**own["tokenizer"], "path": tokenizer},
    }
    run["objective"] = _choose_objectives(own["objective"], part, spec.plugins)
    run["eval"] = {**own["eval"], "rows": part.rows, "seed": part.seed}
    if part.exact:
        run["eval"]["batch_size"] = 1
    elif "batch_size" in keys:  # a comparison of rows depends on how many there are
        run["eval"]["batch_size"] = spec.batch_size
    if spec.noise is not None:
        run["eval"]["noise"] = plain(spec.noise)
    if spec.format is not None:
        run["format"] = plain(spec.format)
        if "format.max_length" not in keys:  # the model may know no longer rows
            run["format"]["max_length"] = own["format"]["max_length"]
    if spec.data.path is not None:
        alone = {"mixture": {}, "sources": {}, "streaming": False}
        run["data"] = {**own["data"], **plain(spec.data), **alone}
    return spec_of("pretrain", run, spec.provenance)


def _choose_objectives(
    own: Mapping[str, Any], part: HeldOut, plugins: Sequence[str]
) -> dict[str, Any]:
    names = list(own) if part.objectives is None else list(part.objectives)
    unknown = [name for name in names if name not in own]
    if unknown or not names:
        allowed = f"those of the run: {', '.join(own)}{nearest(unknown[0], own) if unknown else ''}"
        raise ConfigError("task.objectives", names, allowed)
    for name in names:
        takes = parameters(locate(own[name]["_target_"], plugins))
        if strange := [setting for setting in part.settings if setting not in takes]:
            own_ones = ", ".join(setting for setting in own[name] if setting in takes)
            allowed = f"settings of objective.{name}: {own_ones or 'it has none'}"
            raise ConfigError("task.settings", strange[0], allowed, fix="task.settings={}")
    return {name: {**own[name], **part.settings} for name in names}
