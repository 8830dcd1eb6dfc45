"""The config of a task and that of a model made one: heads of the right kind, lengths, labels,
tokens that are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.locate import locate, parameters
from plmctl.heads.base import POOLER
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.run.assemble import settled
from plmctl.run.build import plain
from plmctl.run.compose import Flags
from plmctl.run.loading import open_source, refuse_another_model
from plmctl.run.model_facts import pooling
from plmctl.tasks.base import Task

LANGUAGE_HEAD = {
    "_target_": "plmctl.heads.lm.LMHead",
    "tied": True,
    "transform": False,
    "bias": False,
}
OF_THE_MODEL = ("size", "pattern", "position", "model", "tokenizer")  # a checkpoint brings these


def complete(cfg: DictConfig, flags: Flags) -> DictConfig:
    """The config with the checkpoint's own model in it, and the heads that fit its kind of
    backbone.
    """
    if cfg.get("kept_layers") and not cfg.checkpoint:
        told = "says which layers of checkpoint=... to take; there is none"
        fix = "checkpoint=<run>, or size.num_layers=<number> for a new model"
        raise ConfigError("kept_layers", plain(cfg.kept_layers), told, fix=fix)
    if cfg.checkpoint is not None:
        refuse_another_model(flags.overrides, OF_THE_MODEL, key="checkpoint")
        source = open_source(cfg.checkpoint, plain(cfg.get("kept_layers")), plugins=flags.plugins)
        for name in OF_THE_MODEL:
            cfg[name] = source.config.get(name)
        cfg.task.update(
            {
                name: value
                for name, value in framing(source.config).items()
                if cfg.task.get(name, 0) is None
            }
        )
        if "classifier" not in cfg.model:
            cfg.model.classifier = _classifier(cfg, source.config.get("heads") or {}, flags.plugins)
    if POOLER in cfg.heads:
        _fit_heads(cfg, flags)
    return cfg


def framing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Which special tokens stood around the sources and targets that a model was trained on, as
    far as its config says so.
    """
    rows = config.get("format") or config.get("task") or {}
    return {name: rows[name] for name in ("source_template", "target_template") if rows.get(name)}


def _classifier(
    cfg: DictConfig, heads: Mapping[str, Any], plugins: Sequence[str] = ()
) -> dict[str, bool]:
    """What a checkpoint means that does not say it: BERT's pooler if it has one, GPT's bare
    head, otherwise RoBERTa's.
    """
    causal = pooling(cfg, plugins) == "last"
    return {
        "pooler": POOLER in heads,
        "dense": POOLER not in heads and not causal,
        "bias": not causal,
    }


def _fit_heads(cfg: DictConfig, flags: Flags) -> None:
    """Heads that decide about rows as `model.classifier` says: with the pooler or without, and with
    its settings of the head.

    What stands on the command line (`heads.class.dense=true`) stays.
    """
    told = {word.lstrip("+").partition("=")[0] for word in flags.overrides}
    settings = dict(cfg.model.get("classifier") or {})
    settings.pop("pooling", None)
    if not settings.pop("pooler", False):
        del cfg.heads[POOLER]
    for name, node in cfg.heads.items():
        part = locate(node["_target_"], flags.plugins)
        if not (getattr(part, "of_task", False) and part.about == "rows"):
            continue
        cfg.heads[name].update(
            {key: value for key, value in settings.items() if f"heads.{name}.{key}" not in told}
        )


def fit_language_heads(cfg: DictConfig, task: Task, plugins: Sequence[str] = ()) -> None:
    """Heads that the task looks up and its file does not make, those that write: the
    checkpoint's own, else a tied one.
    """
    own = (
        (open_source(cfg.checkpoint, plugins=plugins).config.get("heads") or {})
        if cfg.checkpoint
        else {}
    )
    for name in sorted(task.facts.heads - set(cfg.heads)):
        cfg.heads[name] = own.get(name) or LANGUAGE_HEAD


def check_length(cfg: DictConfig, task: Task, plugins: Sequence[str] = ()) -> None:
    """No row is longer than the places that a checkpoint has learned."""
    bound = None
    if cfg.checkpoint:
        bound = open_source(cfg.checkpoint, plugins=plugins).config["position"].get("max_length")
    if bound is not None and task.longest > bound:
        own = {"max_length": task.max_length, "max_target": getattr(task, "max_target", None)}
        fits = [
            f"task.{name}={length}"
            for name, length in task.fitting(bound).items()
            if length != own[name]
        ]
        more = (
            ""
            if task.longest == task.max_length
            else f"; with task.max_target a row has {task.longest} tokens"
        )
        raise ConfigError(
            "task.max_length",
            task.max_length,
            f"at most {bound}, the longest row of {cfg.checkpoint}{more}",
            fix=" ".join(fits),
        )


def settle(cfg: DictConfig, task: Task, plugins: Sequence[str] = ()) -> None:
    """Write into the config, which every checkpoint carries, what labels and task decided:
    outputs, names, longest row.
    """
    cfg.task.update(task.decided)
    node = cfg.heads[task.head]
    if "num_classes" in parameters(locate(node["_target_"], plugins)):
        node.num_classes = task.outputs
    cfg.position = settled({**plain(cfg), "format": {"max_length": task.longest}}, plugins=plugins)[
        "position"
    ]


def with_new_tokens(model: Model, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` of a checkpoint with as many rows of tokens as `model` has: those it lacks are
    the model's first ones.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    found = dict(tensors)
    for name, rows in token_rows(model).items():
        if name in found and len(found[name]) < rows:
            new = own[name][len(found[name]) : rows].detach().to(found[name].dtype)
            found[name] = torch.cat([found[name], new.to(found[name].device)])
    return found
