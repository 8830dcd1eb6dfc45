"""What older versions saved, read as today's: the one place that knows former names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plmctl.storage.reading import parse_json

# `_target_` of a part: as it was saved -> where the part is defined now
TARGETS = {
    **{
        f"plmctl.training.{old}": f"plmctl.training.optim.{new}"
        for old, new in {
            "optim.AdamW": "adamw.AdamW",
            "optim.Lamb": "lamb.Lamb",
            "adagrad.Adagrad": "adagrad.Adagrad",
            "muon.Muon": "muon.Muon",
        }.items()
    },
    **{
        f"plmctl.training.schedule.{name}": f"plmctl.training.optim.schedule.{name}"
        for name in ("Constant", "Polynomial", "Cosine", "WarmupStableDecay", "InverseSqrt")
    },
    **{
        f"plmctl.attention.patterns.{name}": f"plmctl.attention.patterns.{module}.{name}"
        for module, names in {
            "base": ("Full", "And", "Or", "Not"),
            "causal": ("Causal",),
            "anticausal": ("Anticausal",),
            "window": ("Window",),
            "dilated": ("Dilated",),
            "by_segment": ("BySegment",),
        }.items()
        for name in names
    },
    **dict.fromkeys(  # the oldest name last: keys of jobs are made of it
        ("plmctl.attention.patterns.prefix.Prefix", "plmctl.attention.patterns.Prefix"),
        "plmctl.attention.patterns.prefix.CausalWithPrefix",
    ),
    "plmctl.heads.features.Mix": "plmctl.heads.features.ScalarMix",
    "plmctl.objectives.bilm.BiLM": "plmctl.objectives.bilm.BidirectionalLM",
    "plmctl.objectives.seq2seq.Seq2Seq": "plmctl.objectives.seq2seq.ConditionalLM",
}

# settings that there were not: the end of their path -> the value that changes nothing
ADDED: dict[str, Any] = {
    "by_layer": {},
    "reversible": False,
    "stack.columns": {},
    "stack.sandwich": 0,
    "stack.halting": None,
    "join": "mean",
    "checkpoint_activations": False,
    "about": "next",
    "kernel._target_": "plmctl.attention.kernels.auto.Auto",
    "qk_norm": False,
    "prior": False,
    "relation_weight": 0.0,
    "adjacent": 0.0,
    "first_vectors": None,
    "discriminator.activation": "gelu",
    "least_steps": 0,
    "lr_width": None,
    "table": None,
    "model.same_length": False,
    "task.same_length": None,
    "clamp_len": None,
    "dynamic": None,
    "data.bytes": None,
    "data.valid_bytes": None,
    "data.streaming": False,
    "data.window": 16777216,
    "optim.clip": None,
    "weights": None,
    "asked": 1.0,
    "outside": [],
    "pairs.random": None,
    "lexicon.random": None,
    "format.random": None,
    "entity_replace.any_type": False,
    "entity_mask.control": "none",
    "checkpoint_into": None,
    "columns.slice": None,
    "columns.bundle": None,
    "columns.probabilities": None,
    "task.demonstrations": 0,
    "task.demonstration_share": 1.0,
    "task.demonstration_seed": 0,
    "simcse.pooling": "first",
    "joined": "mean",
    "by": None,
    "calibrate": [],
    "task.class_weights": None,
    "task.focal_gamma": 0.0,
    "task.label_smoothing": 0.0,
    "task.folds": None,
    "task.fold": 0,
    "peft": None,
    "prefix.shift": False,
    "task.scheme": None,
    "task.weights_from": None,
    "task.crf": None,
    "graph_loss.grouped": False,
    "stabiliser": None,
    "row_pooling": None,
    "train.patience": None,
    "train.unfreeze": False,
    "train.best_metric": None,
    "train.frozen_outputs": "batch",
    "train.frozen_limit": 20.0,
    "regulariser": None,
    "regulariser.relative": False,
    "perturb": None,
    "beside": {},
    "mixing._target_": "plmctl.tasks.mixing.proportional.Proportional",
    "mixing.limit": None,
    "labelled_from": None,
    "data.vocab_temperature": None,
    "tokenizer.strip_accents": None,
    "guard_cells": True,
}

# settings in place of a former switch: (the end of their path, a value) -> the switch and its value
SWITCHES: dict[tuple[str, Any], tuple[str, bool]] = {
    ("task.reader.scheme", "iob1"): ("task.reader.iob1", True),
    ("task.reader.scheme", "auto"): ("task.reader.iob1", False),
}
# letters that conf/model had not: they count where a layout runs them
LATER_CELLS = {"o", "s", "b", "h", "w", "d", "u", "v", "p", "m", "x", "y", "g", "t", "z", "e", "n"}

# language-model heads by the names that they had where they predict the next token: today they say
# so themselves
_NEXT = ("clm", "plm", "seq2seq")
_LM_HEAD = "plmctl.heads.lm.LMHead"


_LUKE_NOISE = "plmctl.noise.entity_tokens.EntityTokenMask"
_COLUMNS = "plmctl.tasks.conll.Columns"


def upgrade(settings: Any) -> Any:
    """Nested settings of a saved config, with every `_target_` by its name of today."""
    if isinstance(settings, dict):
        if settings.get("_target_") == _LUKE_NOISE and "shuffled" in settings:
            control = "random" if settings["shuffled"] else "none"  # drawn from all entities
            kept = {key: value for key, value in settings.items() if key != "shuffled"}
            return {**kept, "control": control}
        if settings.get("_target_") == _COLUMNS and "iob1" in settings:
            kept = {key: value for key, value in settings.items() if key != "iob1"}
            return {**kept, "scheme": "iob1" if settings["iob1"] else None}
        return {
            key: TARGETS.get(value, value)
            if key == "_target_" and isinstance(value, str)
            else _with_about(upgrade(value))
            if key == "heads"
            else upgrade(value)
            for key, value in settings.items()
        }
    return [upgrade(value) for value in settings] if isinstance(settings, list) else settings


def _with_about(heads: Any) -> Any:
    """Heads that say what they predict."""
    if not isinstance(heads, dict):
        return heads
    return {
        name: {**node, "about": "next"}
        if name in _NEXT
        and isinstance(node, dict)
        and node.get("_target_") == _LM_HEAD
        and "about" not in node
        else node
        for name, node in heads.items()
    }


def read_job_events(folder: Path) -> list[dict[str, Any]]:
    """The events of a folder of jobs from before there was a journal, by the files of each job.

    These are job.json, done.json, error.json and seconds.json; a job of a sweep has the first.
    """
    events: list[dict[str, Any]] = []
    for file in sorted(folder.rglob("job.json"), key=lambda file: file.stat().st_mtime_ns):
        record = _read_object(file)
        name = str(file.parent.relative_to(folder))
        line: dict[str, Any] = {"time": file.stat().st_mtime, "job": name}
        done, error, seconds = (
            _read_object(file.with_name(f"{each}.json")) for each in ("done", "error", "seconds")
        )
        if "overrides" in record and "metrics" in record:
            event = {0: "finished", 130: "interrupted"}.get(record.get("code", 1), "failed")
            events.append(line | {"event": event, "record": record})
            continue
        line["label"] = str(record.get("label", name))
        events.append(line | {"event": "started", "seconds": seconds or 0.0})
        if done and done.get("stopped"):
            events.append(line | {"event": "stopped", "why": str(done["stopped"])})
        elif done:
            events.append(line | {"event": "finished", "kept": done.get("kept", True)})
        elif error:
            events.append(line | {"event": "failed", "why": str(error.get("error", ""))})
    return events


def _read_object(file: Path) -> Any:
    """What a JSON file holds; an empty mapping where it is absent or damaged."""
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
