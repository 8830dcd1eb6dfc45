"""The heads that decide about rows, as a model's `classifier` says: what they read, and through how
many layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.artifacts.model_facts import pooling, stated_pooling
from plmctl.config.build import class_of
from plmctl.config.model_settings import model_settings
from plmctl.config.schema import Finetune
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.heads.base import POOLER
from plmctl.heads.rows import POOLINGS


def fit_row_heads(spec: Finetune) -> Finetune:
    """Heads that decide about rows as `model.classifier` says: with the pooler or without, and with
    its settings of the head.

    A word of the command line (`heads.class.dense=true`) stays.
    """
    if spec.row_pooling:
        spec = _choose_pooling(spec, spec.row_pooling)
    if POOLER not in spec.heads:
        return spec
    settings = dict(spec.model.get("classifier") or {})
    settings.pop("pooling", None)
    vectors = POOLINGS[stated_pooling(model_settings(spec)) or "first"].vectors
    settings |= {"vectors": vectors} if vectors > 1 else {}
    pooled = settings.pop("pooler", False)
    heads = {name: node for name, node in spec.heads.items() if name != POOLER or pooled}
    changes = {
        f"heads.{name}.{key}": value
        for name, node in heads.items()
        for key, value in settings.items()
        if decides_about_rows(spec, node) and f"heads.{name}.{key}" not in spec.provenance.keys
    }
    return spec.replace({"heads": heads, **changes})


def _choose_pooling(spec: Finetune, name: str) -> Finetune:
    """The spec whose model classifies rows by this pooling; with several vectors, which no pooler
    reads, by a head with a layer of its own.
    """
    classifier = {**thaw(spec.model.get("classifier") or {}), "pooling": name}
    if name in POOLINGS and POOLINGS[name].vectors > 1:
        classifier |= {"pooler": False, "dense": True}
    spec = spec.with_value("model.classifier", classifier)
    if name not in POOLINGS:
        allowed = f"one of {', '.join(POOLINGS)}{nearest(name, POOLINGS)}"
        fix = f"row_pooling={find_meant(name, POOLINGS) or 'null'}"
        raise ConfigError("row_pooling", name, allowed, fix=fix)
    if not any(decides_about_rows(spec, node) for node in spec.heads.values()):
        allowed = "null: this task decides about no rows"
        raise ConfigError("row_pooling", name, allowed, fix="row_pooling=null")
    return spec


def find_classifier(spec: Finetune, heads: Mapping[str, Any]) -> dict[str, bool]:
    """The classifier of a checkpoint that does not state it: BERT's pooler if it has one, GPT's
    bare head, otherwise RoBERTa's.
    """
    causal, pooler = pooling(model_settings(spec), spec.plugins) == "last", POOLER in heads
    return {"pooler": pooler, "dense": not pooler and not causal, "bias": not causal}


def decides_about_rows(spec: Finetune, node: Mapping[str, Any]) -> bool:
    part: Any = class_of(node, spec.plugins)
    return bool(getattr(part, "of_task", False)) and part.about == "rows"
