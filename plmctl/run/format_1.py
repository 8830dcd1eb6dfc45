"""What older versions saved, read as today's: the one place that knows former names."""

from __future__ import annotations

from typing import Any

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
    **dict.fromkeys(
        ("plmctl.attention.patterns.Prefix", "plmctl.attention.patterns.prefix.Prefix"),
        "plmctl.attention.patterns.prefix.CausalWithPrefix",
    ),
    "plmctl.heads.features.Mix": "plmctl.heads.features.ScalarMix",
    "plmctl.objectives.bilm.BiLM": "plmctl.objectives.bilm.BidirectionalLM",
    "plmctl.objectives.seq2seq.Seq2Seq": "plmctl.objectives.seq2seq.ConditionalLM",
}

# settings that there were not: the last name of their path -> the value that changes nothing
ADDED: dict[str, Any] = {
    "by_layer": {},
    "reversible": False,
    "checkpoint_activations": False,
    "kernel": "auto",
}


def upgrade(settings: Any) -> Any:
    """Nested settings of a saved config, with every `_target_` by its name of today."""
    if isinstance(settings, dict):
        return {
            key: TARGETS.get(value, value)
            if key == "_target_" and isinstance(value, str)
            else upgrade(value)
            for key, value in settings.items()
        }
    return [upgrade(value) for value in settings] if isinstance(settings, list) else settings
