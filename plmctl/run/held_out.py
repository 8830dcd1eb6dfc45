"""`plmctl eval task=held_out`: a pretrained checkpoint's own objectives on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.heads.base import language_heads
from plmctl.run.assemble import build_objective, known_to_objectives
from plmctl.run.build import plain
from plmctl.run.contract import check_contract
from plmctl.run.corpus import open_corpus
from plmctl.run.loaders import find_used_fields, open_held_out
from plmctl.run.loading import Loaded
from plmctl.run.make_spec import spec_of
from plmctl.run.plugins import confirm, named
from plmctl.run.schema import Evaluate
from plmctl.run.token_settings import refuse_decided
from plmctl.tasks.held_out import HeldOut
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.device.precision import Precision
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World


def score(
    spec: Evaluate, loaded: Loaded, part: HeldOut, precision: Precision
) -> dict[str, dict[str, float]]:
    """{corpus: {"loss/mlm": ..., "acc/mlm": ...}}; UsageError for a checkpoint that no `plmctl
    pretrain` has made.
    """
    run = staged(spec, loaded, part)
    if spec.data.path is not None:
        refuse_decided(run, spec.provenance.keys, spec.plugins)
    check_contract(
        run.replace({"noise": run.eval.noise}), spec.plugins, spec.provenance.config_dirs
    )
    corpus, world = open_corpus(run, spec.plugins), World(device=precision.device)
    given = {
        "vocab": corpus.vocab,
        **known_to_objectives(loaded.model, vocab_size=corpus.vocab.size),
    }
    objective = build_objective(run, given, spec.plugins)
    folder = loaded.source.folder
    load_exactly(
        objective,
        read(folder).objective,
        file=folder / "objective.safetensors",
        without=loaded.model,
    )
    objective.to(precision.device).eval()
    needs = loaded.model.backbone.needs | objective.facts.needs
    uses = find_used_fields(loaded.model, objective)
    batches = open_held_out(
        run, corpus, world, labels=objective.labels, needs=needs, uses=uses, plugins=spec.plugins
    )
    with torch.no_grad(), precision.autocast():
        parts = {
            name: measure(loaded.model, objective, each, world=world, seed=part.seed)
            for name, each in batches.items()
        }
    together = {"all": Measured.together(parts.values())} if len(parts) > 1 else {}
    return {name: each.means() for name, each in {**parts, **together}.items()}


def staged(spec: Evaluate, loaded: Loaded, part: HeldOut) -> Any:
    """The config of the run, with its checkpoint's tokenizer and what of text, rows and noise is
    asked for instead.
    """
    own = loaded.config
    if not _pretrained(loaded):
        fix = f"{unlabelled(loaded)}the run of a plmctl pretrain"
        taught = own.get("distill") and "objective" in own and not own["objective"]
        why = "it learnt of its teacher's layers" if taught else "plmctl pretrain has not made it"
        raise UsageError(
            f"checkpoint={spec.checkpoint}: {why}, so it has no objective\n  fix: {fix}"
        )
    confirm(named(own), spec.plugins, of=spec.checkpoint)
    tokenizer = {**own["tokenizer"], "path": str(loaded.source.folder / "tokenizer")}
    run: dict[str, Any] = {**own, "init": None, "tokenizer": tokenizer}
    run["objective"] = _asked(own["objective"], part)
    # a comparison of rows depends on how many there are
    told = any(word.startswith("batch_size=") for word in spec.provenance.overrides)
    batch = {"batch_size": spec.batch_size} if told else {}
    run["eval"] = {**own["eval"], "rows": part.rows, "seed": part.seed, **batch}
    if spec.format is not None:
        run["format"] = _rows(plain(spec.format), own["format"], spec)
    if spec.noise is not None:
        run["eval"]["noise"] = plain(spec.noise)
    if spec.data.path is not None:
        run["data"] = {**own["data"], **plain(spec.data), "mixture": {}, "sources": {}}
    return spec_of("pretrain", run, spec.provenance)


def unlabelled(loaded: Loaded) -> str:
    """What a checkpoint can be asked of text without labels, with a comma behind it; nothing for
    one that no such task fits.
    """
    if language_heads(loaded.model):
        return "task=lm data.path=<text>, "
    return "task=held_out data.path=<text>, " if _pretrained(loaded) else ""


def _pretrained(loaded: Loaded) -> bool:
    return not loaded.source.published and bool(loaded.config.get("objective"))


def _asked(own: Mapping[str, Any], part: HeldOut) -> dict[str, Any]:
    names = list(own) if part.objectives is None else list(part.objectives)
    unknown = [name for name in names if name not in own]
    if unknown or not names:
        allowed = f"those of the run: {', '.join(own)}{nearest(unknown[0], own) if unknown else ''}"
        raise ConfigError("task.objectives", names, allowed)
    return {name: own[name] for name in names}


def _rows(asked: dict[str, Any], own: Mapping[str, Any], spec: Evaluate) -> dict[str, Any]:
    """Rows as long as in training, unless told otherwise: the model may have no more places."""
    told = any(
        word.lstrip("+").startswith("format.max_length=") for word in spec.provenance.overrides
    )
    return asked if told else {**asked, "max_length": own["max_length"]}
