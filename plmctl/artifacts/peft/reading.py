"""Adapters that the library `peft` trained, with the Hugging Face folder that they name as their
base: LoRA, IA3, prompts, prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.peft.places import Place, find_changes, find_places
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
PREFIX = "base_model.model."
AGAIN = "download the adapter again"
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
    "use_dora": (None, False),
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


@dataclass(frozen=True)
class PeftFolder:
    """An adapter of `peft`, and its base as it was read."""

    folder: Path
    settings: dict[str, Any]
    tensors: dict[str, Tensor]  # by their names, without the prefix
    base: Path
    imported: hf.Imported

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
        if whole.get(name) not in plain:
            what = f"{name}={whole[name]} is a variant that plmctl has not"
            fix = "merge it with peft: model.merge_and_unload()"
            raise DataError(what, file=folder / SETTINGS, fix=fix)
    base = _find_base(folder, settings["base_model_name_or_path"])
    tensors = {
        name.removeprefix(PREFIX).replace(".base_layer.", "."): tensor.float()
        for name, tensor in read_tensors(folder / WEIGHTS, fix=AGAIN).items()
    }
    learned = {name: tensor for name, tensor in tensors.items() if _is_learned(name)}
    others = {name: tensor for name, tensor in tensors.items() if name not in learned}
    imported = hf.read(base, over=others, end=CLASSES.get(settings.get("task_type") or "", ""))
    adapter = PeftFolder(folder, whole, learned, base, imported)
    node, own = READERS[kind](adapter)
    config = {**imported.config, "peft": {kind.lower().partition("_")[0]: node}}
    return replace(imported, config=config, tensors={**imported.tensors, **own}), base


def _is_learned(name: str) -> bool:
    return ".lora_" in name or name.endswith(".ia3_l") or name == "prompt_embeddings"


def _find_base(folder: Path, name: str | None) -> Path:
    """The folder of the base; DataError if it is missing."""
    places = [] if not name else [Path(name).expanduser(), folder / name]
    cached = HubName.parse(name).folder if name and is_hub_name(name) else None
    for place in [*places, *([cached] if cached else [])]:
        if (place / "config.json").is_file():
            return place
    what = f"its base is not here: {name or 'base_model_name_or_path names none'}"
    fix = f"hf download {name} --local-dir {name}" if name else f"name its folder in {SETTINGS}"
    raise DataError(what, file=folder / SETTINGS, fix=fix)


def _read_lora(adapter: PeftFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    settings = adapter.settings
    rank = int(settings["r"])
    node = {
        "_target_": "plmctl.nn.peft.lora.LowRank",
        "rank": rank,
        "alpha": float(settings.get("lora_alpha", 8)),
        "root": bool(settings.get("use_rslora", False)),
        "dropout": float(settings.get("lora_dropout", 0.0)),
    }
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in adapter.tensors.items():
        module, _, rest = name.rpartition(".lora_")
        if rest not in ("A.weight", "B.weight"):
            fix = "merge it with peft: model.merge_and_unload()"
            raise adapter.refuse(f"{name}: LoRA of no linear map", fix)
        modules.setdefault(module, {})[rest[0]] = tensor
    chosen = _choose(adapter, {**node, "maps": _list_maps(adapter)}, modules)
    node["maps"] = list(dict.fromkeys(role for own in chosen.values() for _, role, _ in own))
    tensors: dict[str, Tensor] = {}
    model = adapter.build(node)
    shapes = dict(model.named_parameters())
    for name, added in find_changes(model, "lora"):
        for role in added.rows:
            for side in ("down", "up"):
                key = f"{name}.lora.{side}.{role}"
                tensors[key] = torch.zeros(shapes[key].shape)
    for module, own in chosen.items():
        for name, role, place in own:
            for side, matrix in (
                ("down", modules[module]["A"]),
                ("up", modules[module]["B"][place.rows]),
            ):
                key = f"{name}.lora.{side}.{role}"
                tensors[key] = _fit(adapter, module, matrix, tensors[key])
    return node, tensors


def _read_ia3(adapter: PeftFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    node: dict[str, Any] = {"_target_": "plmctl.nn.peft.ia3.LearnedScales"}
    modules = {name.removesuffix(".ia3_l"): tensor for name, tensor in adapter.tensors.items()}
    probe = {**node, "maps": _list_maps(adapter), "inputs": []}
    chosen = _choose(adapter, probe, modules)
    before = {module: len(tensor) == 1 for module, tensor in modules.items()}
    for key, wanted in (("maps", False), ("inputs", True)):
        roles = [
            role for module, own in chosen.items() if before[module] == wanted for _, role, _ in own
        ]
        node[key] = list(dict.fromkeys(roles))
    if both := {*node["maps"]} & {*node["inputs"]}:
        what = f"results and inputs of {', '.join(both)} are scaled, by layer or by module"
        raise adapter.refuse(what, "merge it with peft: model.merge_and_unload()")
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
            tensors[key] = _fit(adapter, module, part, tensors[key])
    return node, tensors


def _read_prompt(adapter: PeftFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    length = int(adapter.settings["num_virtual_tokens"])
    if adapter.settings.get("task_type") == "SEQ_CLS":
        what = "peft's classifier of rows reads the first vector of the prompt, and ours the text"
        raise adapter.refuse(what, "use it with peft")
    node = {"_target_": "plmctl.nn.peft.prompt.PromptTuning", "length": length, "first": "random"}
    model = adapter.build(node)
    (name,) = model.methods[0].trains(model.backbone)
    reader = find_prompt_reader(model.backbone)
    vectors = adapter.tensors["prompt_embeddings"][:length] / reader.embedding.factor
    return node, {f"backbone.{name}": _fit(adapter, "the prompt", vectors, reader.prompt.vectors)}


def _read_prefix(adapter: PeftFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    node = {
        "_target_": "plmctl.nn.peft.prefix.PrefixTuning",
        "length": int(adapter.settings["num_virtual_tokens"]),
        "shift": True,
    }
    model = adapter.build(node)
    names = model.methods[0].trains(model.backbone)
    parts = adapter.tensors["prompt_embeddings"].chunk(len(names), 1)  # [P, layers, 2 W]
    return node, {
        f"backbone.{name}": _fit(adapter, "the prefix", part, model.backbone.get_parameter(name))
        for name, part in zip(names, parts, strict=True)
    }


READERS: Mapping[str, Callable[[PeftFolder], tuple[dict[str, Any], dict[str, Tensor]]]] = {
    "LORA": _read_lora,
    "IA3": _read_ia3,
    "PROMPT_TUNING": _read_prompt,
    "PREFIX_TUNING": _read_prefix,
}


def _list_maps(adapter: PeftFolder) -> list[str]:
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
        fix = "merge it with peft: model.merge_and_unload()"
        raise adapter.refuse(f"{what}{nearest(unknown[0], places)}", fix)
    return {module: places[module] for module in modules}


def _fit(adapter: PeftFolder, module: str, tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of the adapter; DataError if the base has another shape there."""
    if tensor.shape != like.shape:
        what = f"{module} is {list(tensor.shape)} in the adapter, {list(like.shape)} in"
        what = f"{what} {adapter.base}: the adapter belongs to another model"
        raise adapter.refuse(what, f"name its base in {SETTINGS}: base_model_name_or_path")
    return tensor.contiguous()
