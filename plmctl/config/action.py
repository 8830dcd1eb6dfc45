"""What runs a spec: the function of its command, whose module is imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from plmctl.config.spec import RunSpec

ACTIONS = {
    "tokenize": "plmctl.run.data_sets.tokenize:tokenize",
    "data": "plmctl.report.data_check:check",
    "contexts": "plmctl.run.data_sets.contexts:find_contexts",
    "polarity": "plmctl.run.data_sets.polarity:mark_polarity",
    "augment": "plmctl.run.data_sets.augment:augment",
    "retrieve": "plmctl.run.data_sets.retrieval:retrieve",
    "mine": "plmctl.run.data_sets.mining:mine",
    "link": "plmctl.run.data_sets.link:write_links",
    "rarify": "plmctl.run.data_sets.rarify:rarify_files",
    "rewrite": "plmctl.run.data_sets.rewrite:rewrite",
    "label": "plmctl.run.data_sets.pseudo_labels:label",
    "pretrain": "plmctl.run.pretraining:pretrain",
    "finetune": "plmctl.run.tuning.finetuning:finetune",
    "distill": "plmctl.run.teaching.distilling:distill",
    "eval": "plmctl.run.evaluation.evaluate:evaluate",
    "attack": "plmctl.run.attacking:attack",
    "inject": "plmctl.run.weights.inject:inject",
    "extend": "plmctl.run.weights.extend:extend",
    "vectors": "plmctl.run.vectors:make_vectors",
    "embed": "plmctl.run.embedding.embed:write_embeddings",
    "generate": "plmctl.run.generate:generate",
    "triples": "plmctl.run.data_sets.triple_texts:write_triples",
    "graph": "plmctl.run.graph_training:train_graph",
    "ablate": "plmctl.study.run:ablate",
}

# what opens, builds and compares all that a spec names, and raises what does not fit
CHECKS = {
    "pretrain": "plmctl.run.resolve:resolve_pretraining",
    "finetune": "plmctl.run.resolve:resolve_finetuning",
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
