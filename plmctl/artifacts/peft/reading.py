"""Adapters that the library `peft` trained, with the Hugging Face folder that they name as their
base: LoRA and its relatives, IA3, prompts, prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict

import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.peft.places import Place, find_changes, find_places
from plmctl.artifacts.peft.products import ADALORA, LAYOUTS, ProductLayout, find_layout
from plmctl.core.errors import DataError, nearest
from plmctl.interop import hf
from plmctl.interop.family import find_token_tables
from plmctl.models.base import Model
from plmctl.models.capabilities import find_prompt_reader
from plmctl.nn.peft.base import find_cells
from plmctl.storage.hub import HubName, is_hub_name
from plmctl.storage.reading import read_json, read_tensors

SETTINGS = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
LABELS = "labels.json"  # ours: settings of labels, where config.json of the base has others
PREFIX = "base_model.model."
AGAIN = "download the adapter again"
MERGE = "merge it with peft: model.merge_and_unload()"
# the names of tasks in peft: how the names of published classes end
CLASSES = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "CAUSAL_LM": "LMHeadModel",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
}
# settings that change what is computed, and the values that ours computes, too
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "alora_invocation_tokens": (None, []),
}


class _Adapter(TypedDict):
    """adapter_config.json, as far as it is read."""

    peft_type: str
    base_model_name_or_path: str | None
    task_type: NotRequired[str | None]
    r: NotRequired[int]
    lora_alpha: NotRequired[float]
    use_rslora: NotRequired[bool]
    lora_dropout: NotRequired[float]
    num_virtual_tokens: NotRequired[int]
    use_dora: NotRequired[bool | None]


# the name of the method in our config, its settings, and tensors by our names
Read: TypeAlias = tuple[str, dict[str, Any], dict[str, Tensor]]


@dataclass(frozen=True)
class PeftFolder:
    """An adapter of `peft`, and its base as it was read."""

    folder: Path
    settings: dict[str, Any]
    tensors: dict[str, Tensor]  # by their names, without the prefix
    base: Path
    imported: hf.Imported
    named: str = "base_model_name_or_path"  # the setting that names the base

    @property
    def vocab_size(self) -> int:
        """Rows of the token table."""
        return sum(map(len, find_token_tables(self.imported.tensors)))

    def build(self, node: Mapping[str, Any] | None) -> Model:
        """The model without weights, with a method."""
        config = {**self.imported.config, "peft": None if node is None else {"own": dict(node)}}
        with without_weights():
            return build_model(config, vocab_size=self.vocab_size)

    def places(self, node: Mapping[str, Any]) -> dict[str, list[tuple[str, str, Place]]]:
        """{a published module: (our linear map, what its rows give, where they stand there)} of
        all maps that a method with the settings `node` changes.
        """
        model = self.build(node)
        found = find_places(
            model,
            model.methods[0].mark,
            {**self.imported.config, "peft": None},
            self.imported.tensors,
            self.imported.config["origin"]["pad"],
        )
        by_module: dict[str, list[tuple[str, str, Place]]] = {}
        for (name, role), place in found.items():
            by_module.setdefault(place.module, []).append((name, role, place))
        return by_module

    def refuse(self, problem: str, fix: str) -> DataError:
        """An error of this adapter."""
        return DataError(problem, file=self.folder, fix=fix)


def is_adapter(folder: Path) -> bool:
    """Whether the library `peft` has written this folder."""
    return (folder / SETTINGS).is_file()


def read(folder: Path) -> tuple[hf.Imported, Path]:
    """The base with the learned part of the adapter, and the folder of the base.

    Raises:
        DataError: The base is missing, or another one; or a method, a setting or a module is
            unknown to us.
    """
    file = folder / SETTINGS
    settings: dict[str, Any] = read_json(file, _Adapter, fix=AGAIN)  # type: ignore[assignment]
    whole: dict[str, Any] = read_json(file, fix=AGAIN)
    kind = settings["peft_type"]
    if kind not in READERS:
        what = f"peft_type {kind} is none that plmctl reads{nearest(kind, READERS)}"
        fix = f"one of {', '.join(READERS)}; or merge it with peft: model.merge_and_unload()"
        raise DataError(what, file=folder / SETTINGS, fix=fix)
    for name, plain in REFUSED.items():
        if whole.get(name) not in plain and (kind, name) != (ADALORA.kind, "rank_pattern"):
            what = f"{name}={whole[name]} is a variant that plmctl has not"
            raise DataError(what, file=folder / SETTINGS, fix=MERGE)
    base = find_base(folder, settings["base_model_name_or_path"])
    tensors = {
        name.removeprefix(PREFIX).replace(".base_layer.", "."): tensor.float()
        for name, tensor in read_tensors(folder / WEIGHTS, fix=AGAIN).items()
    }
    learned = {name: tensor for name, tensor in tensors.items() if _is_learned(name)}
    others = {name: tensor for name, tensor in tensors.items() if name not in learned}
    labels: dict[str, Any] = read_json(own, fix=AGAIN) if (own := folder / LABELS).is_file() else {}
    end = CLASSES.get(settings.get("task_type") or "", "")
    imported = hf.read(base, over=others, end=end, stated=labels)
    adapter = PeftFolder(folder, whole, learned, base, imported)
    name, node, added = READERS[kind](adapter)
    config = {**imported.config, "peft": {name: node}}
    return replace(imported, config=config, tensors={**imported.tensors, **added}), base


def _is_learned(name: str) -> bool:
    return (
        ".lora_" in name
        or ".vera_" in name
        or name.endswith(".ia3_l")
        or name == "prompt_embeddings"
    )


def find_base(folder: Path, name: str | None, key: str = "base_model_name_or_path") -> Path:
    """The folder of the base that the adapter names by `key`; DataError if it is missing."""
    places = [] if not name else [Path(name).expanduser(), folder / name]
    cached = HubName.parse(name).folder if name and is_hub_name(name) else None
    for place in [*places, *([cached] if cached else [])]:
        if (place / "config.json").is_file():
            return place
    what = f"its base is not here: {name or f'{key} names none'}"
    fix = f"hf download {name} --local-dir {name}" if name else f"name its folder in {SETTINGS}"
    raise DataError(what, file=folder / SETTINGS, fix=fix)


def read_product(adapter: PeftFolder) -> Read:
    """LoRA and its relatives."""
    layout = find_layout(adapter.settings)
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in adapter.tensors.items():
        if name in layout.common:
            continue
        end = next((end for end in layout.tensors if name.endswith(f".{end}")), None)
        if end is None:
            raise adapter.refuse(f"{name}: {layout.kind} of no linear map", MERGE)
        modules.setdefault(name.removesuffix(f".{end}"), {})[end] = tensor
    node, mark = layout.node(adapter.settings), layout.target.mark
    chosen = _choose(adapter, {**node, "maps": list_maps(adapter)}, modules)
    node["maps"] = list(dict.fromkeys(role for own in chosen.values() for _, role, _ in own))
    tensors: dict[str, Tensor] = {}
    model = adapter.build(node)
    shapes = dict(model.named_parameters())
    for name, added in find_changes(model, mark):
        if layout.common:
            _check_common(adapter, layout, added.matrices, chosen)
        for role, rows in added.rows.items():
            weight = adapter.imported.tensors[f"{name}.weight"][rows]
            for learned in layout.tensors.values():
                key = f"{name}.{mark}.{learned.own}.{role}"
                tensors[key] = learned.absent(weight, shapes[key].shape)
    for module, own in chosen.items():
        for name, role, place in own:
            for end, learned in layout.tensors.items():
                key, whole = f"{name}.{mark}.{learned.own}.{role}", modules[module][end]
                whole = learned.fill(whole, tensors[key])
                part = whole[place.rows] if learned.by_rows else whole
                tensors[key] = fit(adapter, module, part, tensors[key])
    return mark, node, tensors


def _check_common(
    adapter: PeftFolder,
    layout: ProductLayout,
    matrices: Any,
    chosen: Mapping[str, Sequence[tuple[str, str, Place]]],
) -> None:
    """DataError where `peft` has drawn other matrices, or where a map takes other rows of them."""
    if fused := [name for name, own in chosen.items() if not all(p.whole for _, _, p in own)]:
        what = f"{fused[0]} has one vector for several maps of ours"
        raise adapter.refuse(what, MERGE)
    drawn = dict(zip(("down", "up"), matrices.draw(), strict=True))
    for name, own in layout.common.items():
        saved = adapter.tensors.get(name)
        if saved is not None and not torch.equal(saved, drawn[own]):
            raise adapter.refuse(f"{name} is not what its seed draws here", MERGE)


def read_ia3(adapter: PeftFolder) -> Read:
    """Factors of results and of inputs of linear maps."""
    node: dict[str, Any] = {"_target_": "plmctl.nn.peft.ia3.LearnedScales"}
    modules = {name.removesuffix(".ia3_l"): tensor for name, tensor in adapter.tensors.items()}
    probe = {**node, "maps": list_maps(adapter), "inputs": []}
    chosen = _choose(adapter, probe, modules)
    before = {module: len(tensor) == 1 for module, tensor in modules.items()}
    for key, wanted in (("maps", False), ("inputs", True)):
        roles = [
            role for module, own in chosen.items() if before[module] == wanted for _, role, _ in own
        ]
        node[key] = list(dict.fromkeys(roles))
    if both := {*node["maps"]} & {*node["inputs"]}:
        what = f"results and inputs of {', '.join(both)} are scaled, by layer or by module"
        raise adapter.refuse(what, MERGE)
    tensors: dict[str, Tensor] = {}
    model = adapter.build(node)
    for name, added in find_changes(model, "ia3"):
        for role, factor in added.factors.items():
            tensors[f"{name}.ia3.factors.{role}"] = torch.ones(factor.shape)
    for module, own in chosen.items():
        factors = modules[module].flatten()
        for name, role, place in own:
            key = f"{name}.ia3.factors.{role}"
            part = factors if before[module] else factors[place.rows]
            tensors[key] = fit(adapter, module, part, tensors[key])
    return "ia3", node, tensors


def _read_prompt(adapter: PeftFolder) -> Read:
    length = int(adapter.settings["num_virtual_tokens"])
    if adapter.settings.get("task_type") == "SEQ_CLS":
        what = "peft's classifier of rows reads the first vector of the prompt, and ours the text"
        raise adapter.refuse(what, "use it with peft")
    node = {"_target_": "plmctl.nn.peft.prompt.PromptTuning", "length": length, "first": "random"}
    model = adapter.build(node)
    (name,) = model.methods[0].trains(model.backbone)
    reader = find_prompt_reader(model.backbone)
    vectors = adapter.tensors["prompt_embeddings"][:length] / reader.embedding.factor
    return (
        "prompt",
        node,
        {f"backbone.{name}": fit(adapter, "the prompt", vectors, reader.prompt.vectors)},
    )


def read_prefix(adapter: PeftFolder, *, shift: bool = True) -> Read:
    """Keys and values of all layers from one table.

    Args:
        shift: The positions of a text are counted behind the prefix.
    """
    node = {
        "_target_": "plmctl.nn.peft.prefix.PrefixTuning",
        "length": int(adapter.settings["num_virtual_tokens"]),
        "shift": shift,
    }
    model = adapter.build(node)
    names = model.methods[0].trains(model.backbone)
    parts = adapter.tensors["prompt_embeddings"].chunk(len(names), 1)  # [P, layers, 2 W]
    return (
        "prefix",
        node,
        {
            f"backbone.{name}": fit(adapter, "the prefix", part, model.backbone.get_parameter(name))
            for name, part in zip(names, parts, strict=True)
        },
    )


READERS: Mapping[str, Callable[[PeftFolder], Read]] = {
    **dict.fromkeys((layout.kind for layout in LAYOUTS.values()), read_product),
    "IA3": read_ia3,
    "PROMPT_TUNING": _read_prompt,
    "PREFIX_TUNING": read_prefix,
}


def list_maps(adapter: PeftFolder) -> list[str]:
    """All linear maps of cells, by what they give."""
    model = adapter.build(None)
    names = [name for cell in find_cells(model.backbone) for name in cell.projections().maps]
    return list(dict.fromkeys(names))


def _choose(
    adapter: PeftFolder, node: Mapping[str, Any], modules: Mapping[str, object]
) -> dict[str, list[tuple[str, str, Place]]]:
    """The rows of our maps that are in `modules`; DataError for a module without any."""
    places = adapter.places(node)
    if unknown := [module for module in modules if module not in places]:
        what = f"{unknown[0]} of the adapter is no linear map that plmctl adds to in {adapter.base}"
        raise adapter.refuse(f"{what}{nearest(unknown[0], places)}", MERGE)
    return {module: places[module] for module in modules}


def fit(adapter: PeftFolder, module: str, tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of the adapter; DataError if the base has another shape there."""
    if tensor.shape != like.shape:
        what = f"{module} is {list(tensor.shape)} in the adapter, {list(like.shape)} in"
        what = f"{what} {adapter.base}: the adapter belongs to another model"
        raise adapter.refuse(what, f"name its base in {SETTINGS}: {adapter.named}")
    return tensor.contiguous()
