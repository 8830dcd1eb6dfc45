"""What runs a spec: the function of its command, whose module is imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from plmctl.config.spec import RunSpec

ACTIONS = {
    "tokenize": "plmctl.inputs.tokenize:tokenize",
    "data": "plmctl.report.data_check:check",
    "contexts": "plmctl.datasets.contexts:find_contexts",
    "polarity": "plmctl.datasets.polarity:mark_polarity",
    "augment": "plmctl.datasets.augment:augment",
    "retrieve": "plmctl.datasets.retrieval:retrieve",
    "mine": "plmctl.datasets.mining:mine",
    "link": "plmctl.datasets.link:write_links",
    "rarify": "plmctl.datasets.rarify:rarify_files",
    "rewrite": "plmctl.datasets.rewrite:rewrite",
    "label": "plmctl.datasets.pseudo_labels:label",
    "pretrain": "plmctl.runs.pretraining:pretrain",
    "finetune": "plmctl.runs.finetuning:finetune",
    "distill": "plmctl.runs.distilling:distill",
    "eval": "plmctl.probes.evaluate:evaluate",
    "attack": "plmctl.use.attacking:attack",
    "inject": "plmctl.artifacts.inject:inject",
    "extend": "plmctl.artifacts.extend:extend",
    "vectors": "plmctl.runs.vectors:make_vectors",
    "embed": "plmctl.use.embed:write_embeddings",
    "generate": "plmctl.use.generate:generate",
    "triples": "plmctl.datasets.triple_texts:write_triples",
    "graph": "plmctl.runs.graph_training:train_graph",
    "ablate": "plmctl.study.run:ablate",
}

# what opens, builds and compares all that a spec names, and raises what does not fit
CHECKS = {
    "pretrain": "plmctl.runs.resolve:resolve_pretraining",
    "finetune": "plmctl.runs.resolve:resolve_finetuning",
}

Result = int | Mapping[str, Any] | None  # an exit code, or what was measured


def find_action(spec: RunSpec) -> Callable[[RunSpec], Result]:
    """The function of the command of `spec`."""
    return _import(ACTIONS[spec.provenance.command])


def perform(spec: RunSpec) -> Result:
    """Do what the command of `spec` says with it."""
    return find_action(spec)(spec)


def check(spec: RunSpec) -> None:
    """Raise what is wrong with a new run, before anything is written."""
    if place := CHECKS.get(spec.provenance.verb):
        _import(place)(spec)


def _import(place: str) -> Callable[[RunSpec], Any]:
    """The function at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
