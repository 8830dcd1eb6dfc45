"""Adapters of the library `adapters` (AdapterHub), with the Hugging Face folder of their base.

Bottlenecks, Compacter, prefixes, LoRA, IA3, several of them, and their gates are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.artifacts.peft.hub_head import HEAD, HEADLESS, SavedHead, read_head, read_weights
from plmctl.artifacts.peft.places import Place
from plmctl.artifacts.peft.reading import (
    AGAIN,
    SETTINGS,
    PeftFolder,
    Read,
    find_base,
    fit,
    list_maps,
    read_ia3,
    read_prefix,
    read_product,
)
from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import target_of
from plmctl.interop import hf
from plmctl.interop.bert import ACTIVATIONS
from plmctl.models.base import Model
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.peft.base import find_blocks
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.compacter import Compacter
from plmctl.nn.peft.gates import GatedMethod
from plmctl.nn.peft.lora import LowRank
from plmctl.storage.reading import blame_file, read_json

WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")
FUSION = "adapter_fusion_config.json"
SAVE = "save the adapter itself: model.save_adapter(folder, name)"
ALONE = "use it with adapters"
GROUPS = "adapters|loras|prefix_tunings|prefix_gates|shared_parameters"
NARROW = {"rank": 1, "alpha": 1.0}  # a LoRA in all maps finds them
OLD_NAMES = re.compile(r"(?:attention|layer)_text_(?:task|lang)_adapters")
# activations in folders without a version
OLD_ACTIVATIONS = {"gelu": "gelu_new", "gelu_orig": "gelu"}
KNOWN_ACTIVATIONS = {**ACTIVATIONS, "swish": "silu", "leakyrelu": "leaky_relu"}
# modules of a whole layer: the kind of the cell behind which they stand, and whether it reads a
# source
BEHIND = {
    "attention_adapters": ("attention", False),
    "cross_attention_adapters": ("attention", True),
    "output_adapters": ("feed-forward", False),
}
# settings that change what is computed, and the values that ours computes, too
PLAIN: Mapping[str, Any] = {"ln_before": False, "ln_after": False, "original_ln_after": True}
PLAIN_PRODUCTS: Mapping[str, Any] = {
    "original_ln_before": False,
    "is_parallel": False,
    "scaling": 1.0,
    "factorized_phm_W": True,
    "shared_W_phm": False,
    "shared_phm_rule": True,
    "factorized_phm_rule": False,
    "phm_bias": True,
}
PLAIN_LORA: Mapping[str, Any] = {"use_dora": False, "vera_d": None, "vera_b": None}
PLAIN_PREFIX: Mapping[str, Any] = {"leave_out": [], "shared_gating": True}
BOTTLENECK = {
    "down": "adapter_down.0.weight",
    "down_bias": "adapter_down.0.bias",
    "up": "adapter_up.weight",
    "up_bias": "adapter_up.bias",
}
PRODUCTS = {
    f"{way}.{own}": f"{theirs}.{end}"
    for way, theirs in (("down", "adapter_down.0"), ("up", "adapter_up"))
    for own, end in (("left", "W_left"), ("right", "W_right"), ("bias", "b"))
}
Settings: TypeAlias = Mapping[str, Any]


class _Adapter(TypedDict):
    """adapter_config.json, as far as it is read."""

    config: dict[str, Any]
    name: str
    model_type: str
    model_name: NotRequired[str | None]
    version: NotRequired[str]


@dataclass(frozen=True)
class _Part:
    """A method, its settings, its tensors and those of its gates, by our names."""

    mark: str
    node: dict[str, Any]
    tensors: dict[str, Tensor]
    gates: dict[str, Tensor]


@dataclass(frozen=True)
class _HubFolder:
    """An adapter of the library, and its base as it was read."""

    base: PeftFolder
    groups: dict[str, dict[str, dict[str, Tensor]]]  # {kind: {module: {rest of the name: tensor}}}

    @cached_property
    def maps(self) -> dict[str, list[tuple[str, str, Place]]]:
        """{a published module: our linear maps in it}, all of them."""
        return self.base.places(
            {"_target_": target_of(LowRank), "maps": list_maps(self.base), **NARROW}
        )

    @cached_property
    def plain(self) -> Model:
        """The model without weights and methods."""
        return self.base.build(None)

    def find_module(self, name: str) -> str:
        """The published module of this name, with or without the prefix of its class."""
        found = [
            known for known in self.maps if known.endswith(f".{name}") or name.endswith(f".{known}")
        ]
        return name if name in self.maps or len(found) != 1 else found[0]

    def describe(self, cell: str) -> tuple[str, bool]:
        """The kind of our cell, and whether it reads a source."""
        part: Any = self.plain.get_submodule(cell)
        return part.facts.computes, "source" in part.facts.reads

    def find_cell(self, place: str) -> str:
        """Our cell whose maps stand in a published module; DataError for none or several."""
        layer, _, last = place.rpartition(".")
        wanted = BEHIND.get(last) if layer[-1:].isdigit() else None
        inside = place if wanted is None else layer
        for way in (inside, inside.partition(".")[2]):
            cells = {
                f"{name.partition('.cell')[0]}.cell"
                for module, own in self.maps.items()
                for name, _, _ in own
                if way and f".{way}." in f".{module}."
            }
            chosen = [name for name in cells if wanted in (None, self.describe(name))]
            if len(chosen) == 1:
                return chosen[0]
        what = f"{place} of the adapter is no cell that plmctl adds to in {self.base.base}"
        raise self.base.refuse(what, ALONE)

    def activation(self, settings: Settings) -> str:
        """Our name of the activation; DataError for one that we have not."""
        name = str(settings["non_linearity"]).lower()
        if name not in KNOWN_ACTIVATIONS:
            what = f"non_linearity={name} is none that plmctl has{nearest(name, KNOWN_ACTIVATIONS)}"
            raise self.base.refuse(what, ALONE)
        return KNOWN_ACTIVATIONS[name]

    def check(self, settings: Settings, plain: Mapping[str, Any], fix: str = ALONE) -> None:
        """DataError for a setting of other values than `plain`."""
        for name, value in plain.items():
            if settings.get(name, value) != value:
                what = f"{name}={settings[name]} is a variant that plmctl has not"
                raise self.base.refuse(what, fix)


def is_adapter(folder: Path) -> bool:
    """Whether the library has written this folder: an adapter, a head or a fusion."""
    if any((folder / name).is_file() for name in (HEAD, FUSION)):
        return True
    file = folder / SETTINGS
    return file.is_file() and "peft_type" not in read_json(file, fix=AGAIN)


def read(folder: Path) -> tuple[hf.Imported, Path]:
    """The base with the learned part of the adapter and its head, and the folder of the base.

    Raises:
        DataError: The base is missing, or another one; or a method, a setting, a module or a head
            is unknown to us; or the adapter itself is missing.
    """
    if not (folder / SETTINGS).is_file():
        what = "a fusion without its adapters" if (folder / FUSION).is_file() else "a head alone"
        raise DataError(f"{what}: no {SETTINGS} here", file=folder, fix=SAVE)
    settings: dict[str, Any] = read_json(folder / SETTINGS, _Adapter, fix=AGAIN)
    base = find_base(folder, settings.get("model_name"), "model_name")
    head = read_head(folder, settings["model_type"])
    imported = hf.read(base, over=head.tensors, end=head.end, stated=head.settings)
    own = PeftFolder(folder, settings, {}, base, imported, "model_name")
    _check_base(own, head)
    adapter = _HubFolder(own, _divide(own, settings["name"]))
    stated = _modernize(settings)
    config = stated.get("configs") if stated.get("architecture") == "union" else [stated]
    with blame_file(folder / SETTINGS, "does not fit its tensors", fix=AGAIN):
        methods, tensors = _join([_read_part(adapter, each) for each in config or ()])
    config = {**imported.config, "peft": methods}
    return replace(imported, config=config, tensors={**imported.tensors, **tensors}), base


def _check_base(adapter: PeftFolder, head: SavedHead) -> None:
    """DataError for a base of another family, and for a head that its class does not have."""
    family, wanted = adapter.imported.config["origin"]["family"], adapter.settings["model_type"]
    if family != wanted:
        what = f"model_type is {wanted} in the adapter, {family} in {adapter.base}"
        raise adapter.refuse(what, f"name its base in {SETTINGS}: {adapter.named}")
    if unread := [name for name in head.tensors if name in adapter.imported.unused]:
        raise adapter.refuse(f"its head is none that plmctl reads: {unread[0]}", HEADLESS)


def _divide(adapter: PeftFolder, name: str) -> dict[str, dict[str, dict[str, Tensor]]]:
    """{kind: {module: {rest of the name: tensor}}}; DataError for a kind that is unknown."""
    groups: dict[str, dict[str, dict[str, Tensor]]] = {kind: {} for kind in GROUPS.split("|")}
    known = re.compile(rf"(?:(.*)\.)?({GROUPS})\.{re.escape(name)}\.(.+)")
    for key, tensor in read_weights(adapter.folder, WEIGHTS).items():
        found = known.fullmatch(OLD_NAMES.sub("adapters", key))
        if found is None:
            raise adapter.refuse(f"{key} is of no method that plmctl reads", ALONE)
        module, kind, rest = found.groups()
        if ".pool." not in key:  # a copy of the prefixes in each layer
            groups[kind].setdefault(module or "", {})[rest] = tensor.float()
    return groups


def _modernize(settings: Settings) -> dict[str, Any]:
    """The settings of the method as the present library understands them."""
    own, version = dict(settings["config"]), settings.get("version")
    if version is None and "non_linearity" in own:
        own["non_linearity"] = OLD_ACTIVATIONS.get(own["non_linearity"], own["non_linearity"])
    released = re.match(r"adapters\.(\d+)\.(\d+)", version or "")
    if released and tuple(map(int, released.groups())) < (1, 1) and "alpha" in own:
        own["alpha"] = own["r"]  # as these releases computed it
    return own


def _join(parts: Sequence[_Part]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The methods of a config and their tensors; those with gates are parts of one method."""
    methods = {part.mark: part.node for part in parts if not part.gates}
    gated = {part.mark: part.node for part in parts if part.gates}
    if gated:
        methods[GatedMethod.mark] = {"_target_": target_of(GatedMethod), "parts": gated}
    tensors: dict[str, Tensor] = {}
    for part in parts:
        inside = f".{part.mark}.inner." if part.gates else f".{part.mark}."
        for name, tensor in part.tensors.items():
            tensors[name.replace(f".{part.mark}.", inside, 1)] = tensor
        tensors |= part.gates
    return methods, tensors


def _read_part(adapter: _HubFolder, settings: Settings) -> _Part:
    kind = settings.get("architecture") or "bottleneck"
    if kind not in READERS:
        what = f"architecture {kind} is none that plmctl reads{nearest(kind, READERS)}"
        fix = f"one of {', '.join(READERS)}, union; or {ALONE}"
        raise DataError(what, file=adapter.base.folder / SETTINGS, fix=fix)
    mark, node, tensors = READERS[kind](adapter, settings)
    gates = GATES[kind](adapter, mark) if settings.get("use_gating") else {}
    return _Part(mark, node, tensors, gates)


def _read_bottleneck(adapter: _HubFolder, settings: Settings) -> Read:
    adapter.check(settings, PLAIN)
    cells = {adapter.find_cell(place): own for place, own in adapter.groups["adapters"].items()}
    if not cells:
        raise adapter.base.refuse("no adapter stands in it", SAVE)
    kinds = {adapter.describe(name)[0] for name in cells}
    first = next(iter(cells.values()))
    node: dict[str, Any] = {"cells": sorted(kinds), "activation": adapter.activation(settings)}
    if settings.get("phm_layer"):
        adapter.check(settings, PLAIN_PRODUCTS)
        parts, _, rank = first["adapter_down.0.W_left"].shape
        node |= {"inner_width": len(first["adapter_down.0.b"]), "parts": parts, "rank": rank}
        tensors = _fill(adapter, Compacter, node, cells, PRODUCTS)
        (rule,) = adapter.groups["shared_parameters"].values()
        (shared,) = (key for key in tensors if key.endswith(".factors.weight"))
        tensors[shared] = fit(adapter.base, "phm_rule", rule["phm_rule"], tensors[shared])
        return Compacter.mark, {"_target_": target_of(Compacter), **node}, tensors
    normed = bool(settings.get("original_ln_before")) and not settings.get("is_parallel")
    if normed:
        adapter.check(settings, {"residual_before_ln": True})
    node |= {
        "inner_width": len(first["adapter_down.0.bias"]),
        "parallel": bool(settings.get("is_parallel")),
        "normed": normed,
    }
    if node["parallel"] or normed:
        _check_norms(adapter)
    own = {cell: _scale(found, settings) for cell, found in cells.items()}
    tensors = _fill(adapter, Bottleneck, node, own, BOTTLENECK)
    return Bottleneck.mark, {"_target_": target_of(Bottleneck), **node}, tensors


def _scale(found: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """The tensors of an adapter whose factor, stated or learned, is put into the map `up`."""
    scale = found.get("scaling")
    scale = torch.tensor(float(settings.get("scaling", 1.0))) if scale is None else scale
    changed = {
        "adapter_up.weight": found["adapter_up.weight"] * scale[..., None],
        "adapter_up.bias": found["adapter_up.bias"] * scale,
    }
    return {**found, **changed}


def _check_norms(adapter: _HubFolder) -> None:
    """DataError for a model whose sums no norm follows: there the library reads other vectors."""
    for block in find_blocks(adapter.plain.backbone):
        if isinstance(block.norm_sum, nn.Identity):
            what = "adapters of this kind read other vectors in a model with norms before its cells"
            raise adapter.base.refuse(what, ALONE)


def _fill(
    adapter: _HubFolder,
    method: type,
    node: Mapping[str, Any],
    cells: Mapping[str, Mapping[str, Tensor]],
    names: Mapping[str, str],
) -> dict[str, Tensor]:
    """The tensors of a method behind cells; zeros where the library has left a layer out, which
    change nothing.

    Args:
        method: Our class.
        cells: {our cell: {the end of a published name: tensor}}.
        names: {the end of our name: that of the published one}.
    """
    model = adapter.base.build({"_target_": target_of(method), **node})
    (built,) = model.methods
    tensors = {
        f"backbone.{name}": torch.zeros(model.backbone.get_parameter(name).shape)
        for name in built.trains(model.backbone)
    }
    for cell, found in cells.items():
        for own, theirs in names.items():
            key = f"{cell}.{built.mark}.{own}"
            tensors[key] = fit(adapter.base, cell, found[theirs], tensors[key])
    return tensors


def _read_lora(adapter: _HubFolder, settings: Settings) -> Read:
    adapter.check(settings, PLAIN_LORA)
    modules = {adapter.find_module(name): own for name, own in adapter.groups["loras"].items()}
    if settings.get("composition_mode") == "scale":
        adapter.check(settings, {"use_gating": False})
        factors = {
            f"{name}.ia3_l": settings.get("alpha", 1) * own["lora_B"]
            for name, own in modules.items()
        }
        return read_ia3(replace(adapter.base, tensors=factors))
    rank = int(settings["r"])
    if fused := [name for name, own in modules.items() if len(own["lora_A"]) != rank]:
        what = f"{fused[0]} has the matrices of several maps in one"
        raise adapter.base.refuse(what, "merge it with adapters: model.merge_adapter(name)")
    stated = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank if settings.get("use_gating") else settings.get("alpha", rank),
        "lora_dropout": settings.get("dropout", 0.0),
    }
    tensors = {
        f"{name}.lora_{side}.weight": own[f"lora_{side}"]
        for name, own in modules.items()
        for side in "AB"
    }
    return read_product(replace(adapter.base, settings=stated, tensors=tensors))


def _read_prefix(adapter: _HubFolder, settings: Settings) -> Read:
    adapter.check(settings, PLAIN_PREFIX)
    (found,) = adapter.groups["prefix_tunings"].values()
    places = {name.split(".")[0] for name in found}
    if len(places) > 1:
        raise adapter.base.refuse(
            f"more than one table of prefixes: {', '.join(sorted(places))}", ALONE
        )
    own = {name.partition(".")[2]: tensor for name, tensor in found.items()}
    length = int(settings["prefix_length"])
    if settings.get("flat"):
        table = own["control_trans"]
    else:  # as the network makes it
        first, last = (
            [own[f"control_trans.{number}.{end}"] for end in ("weight", "bias")]
            for number in (0, 2)
        )
        inner = find_activation(adapter.activation(settings))(F.linear(own["wte.weight"], *first))
        table = F.linear(inner, *last)
    stated = {"num_virtual_tokens": length}
    tensors = {"prompt_embeddings": table.reshape(length, -1)}
    return read_prefix(replace(adapter.base, settings=stated, tensors=tensors), shift=False)


def _find_lora_gates(adapter: _HubFolder, mark: str) -> dict[str, Tensor]:
    return {
        f"{name}.{mark}.gates.{role}.{end}": own[f"gate.{end}"]
        for module, own in adapter.groups["loras"].items()
        for name, role, _ in adapter.maps[adapter.find_module(module)]
        for end in ("weight", "bias")
    }


def _find_adapter_gates(adapter: _HubFolder, mark: str) -> dict[str, Tensor]:
    return {
        f"{adapter.find_cell(place)}.{mark}.gates.cell.{end}": own[f"gate.{end}"]
        for place, own in adapter.groups["adapters"].items()
        for end in ("weight", "bias")
    }


def _find_prefix_gates(adapter: _HubFolder, mark: str) -> dict[str, Tensor]:
    return {
        f"{adapter.find_cell(place.removesuffix('.prefix_tuning'))}.{mark}.gate.{end}": own[end]
        for place, own in adapter.groups["prefix_gates"].items()
        for end in ("weight", "bias")
    }


READERS: Mapping[str, Callable[[_HubFolder, Settings], Read]] = {
    "bottleneck": _read_bottleneck,
    "lora": _read_lora,
    "prefix_tuning": _read_prefix,
}
GATES: Mapping[str, Callable[[_HubFolder, str], dict[str, Tensor]]] = {
    "bottleneck": _find_adapter_gates,
    "lora": _find_lora_gates,
    "prefix_tuning": _find_prefix_gates,
}
