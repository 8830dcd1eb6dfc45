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
from plmctl.core.locate import parameters
from plmctl.heads.base import POOLER
from plmctl.heads.rows import POOLINGS

# settings of the layer before the last map of a head
INNER = ("dense", "activation", "dense_bias", "norm_eps", "norm_bias")


def fit_row_heads(spec: Finetune) -> Finetune:
    """Heads that decide about rows as `model.classifier` says: with the pooler or without, and with
    its settings of the head; with `every_head`, the layer of that head is one of heads of tokens
    and spans, too.

    A word of the command line (`heads.class.dense=true`) stays.
    """
    if spec.row_pooling:
        spec = _choose_pooling(spec, spec.row_pooling)
    settings = dict(spec.model.get("classifier") or {})
    settings.pop("pooling", None)
    every, pooled = settings.pop("every_head", False), settings.pop("pooler", False)
    heads = {name: node for name, node in spec.heads.items() if name != POOLER or pooled}
    chosen: dict[str, Mapping[str, Any]] = {}
    if POOLER in spec.heads:
        how = POOLINGS[stated_pooling(model_settings(spec)) or "first"]
        settings |= {"vectors": how.vectors} if how.vectors > 1 else {}
        settings |= {"late": True} if how.late else {}
        chosen = {n: settings for n, node in heads.items() if decides_about_rows(spec, node)}
    if every:
        layer = {key: value for key, value in settings.items() if key in INNER}
        chosen |= {n: layer for n, node in heads.items() if _decides_about_tokens(spec, node)}
    changes = {
        f"heads.{name}.{key}": value
        for name, own in chosen.items()
        for key, value in own.items()
        if f"heads.{name}.{key}" not in spec.provenance.keys
    }
    return spec.replace({"heads": heads, **changes}) if chosen or POOLER in spec.heads else spec


def take_layers(spec: Finetune, trained: Mapping[str, Any]) -> Finetune:
    """The spec whose heads have the layers of the `trained` ones, those of the checkpoint. The last
    map of a head reads these layers.

    A word of the command line stays.
    """
    changes = {
        f"heads.{name}.{key}": own[key]
        for name, node in spec.heads.items()
        for own in [trained.get(name) or {}]
        for key in (*INNER, "bias")
        if key in own and own.get("_target_") == node["_target_"]
    }
    written = spec.provenance.keys
    return spec.replace({path: value for path, value in changes.items() if path not in written})


def _choose_pooling(spec: Finetune, name: str) -> Finetune:
    """The spec whose model classifies rows by this pooling; with several vectors, which no pooler
    reads, by a head with a layer of its own.
    """
    classifier = {**thaw(spec.model.get("classifier") or {}), "pooling": name}
    if name in POOLINGS and (POOLINGS[name].vectors > 1 or POOLINGS[name].late):
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


def _decides_about_tokens(spec: Finetune, node: Mapping[str, Any]) -> bool:
    """Whether a head of a task is about tokens or spans, and may have a layer before its map."""
    part: Any = class_of(node, spec.plugins)
    about = getattr(part, "about", "") in ("tokens", "spans")
    return about and part.of_task and "dense" in parameters(part)
