"""Heads of adapters of the library `adapters` (AdapterHub), by the names of published classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from torch import Tensor

from plmctl.artifacts.peft.reading import AGAIN
from plmctl.core.errors import DataError
from plmctl.interop import weights
from plmctl.storage.reading import read_json

HEAD, HEAD_WEIGHTS = "head_config.json", ("model_head.safetensors", "pytorch_model_head.bin")
HEADLESS = "save it without: model.save_adapter(folder, name, with_head=False)"
# {(kind of head, its layers, whether a pooler stands before it): (the end of the published class,
# {families: the names of its linear maps})}; of two layers with tanh between
HEADS: Mapping[tuple[str, int, bool], tuple[str, Mapping[str, Sequence[str]]]] = {
    ("classification", 1, True): ("ForSequenceClassification", {"bert": ("classifier",)}),
    ("classification", 2, False): (
        "ForSequenceClassification",
        {
            "bert": ("bert.pooler.dense", "classifier"),
            **dict.fromkeys(
                ("roberta", "xlm-roberta", "camembert"), ("classifier.dense", "classifier.out_proj")
            ),
        },
    ),
    ("tagging", 1, False): ("ForTokenClassification", {"": ("classifier",)}),
    ("question_answering", 1, False): ("ForQuestionAnswering", {"": ("qa_outputs",)}),
}


class _Head(TypedDict):
    """head_config.json, as far as it is read."""

    config: dict[str, Any] | None
    name: str | None
    model_class: str
    label2id: NotRequired[dict[str, int] | None]


@dataclass(frozen=True)
class SavedHead:
    """A head of the folder: tensors by published names, and what they belong to."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    end: str = ""  # the end of the name of the published class
    settings: dict[str, Any] = field(default_factory=dict)  # settings of config.json


def read_head(folder: Path, family: str) -> SavedHead:
    """The head of a folder, without tensors if it has none.

    Args:
        family: model_type of its base.

    Raises:
        DataError: The head is none of a published class.
    """
    if not (folder / HEAD).is_file():
        return SavedHead()
    head: dict[str, Any] = read_json(folder / HEAD, _Head, fix=AGAIN)
    tensors = {name: part.float() for name, part in read_weights(folder, HEAD_WEIGHTS).items()}
    own = head["config"]
    by_number = {number: name for name, number in (_find_labels(head) or {}).items()}
    names = {str(number): by_number[number] for number in sorted(by_number)}
    settings = {"id2label": names} if names else {}
    if own is None:  # a class of transformers
        return SavedHead(tensors, head["model_class"], settings)
    kind = own["head_type"], own["layers"], own.get("use_pooler", False)
    end, by_family = HEADS.get(kind, ("", {}))
    maps = by_family.get(family, by_family.get(""))
    if maps is None or (own["layers"] > 1 and own.get("activation_function") != "tanh"):
        what = f"its head is none that plmctl reads: {own['head_type']} of {own['layers']} layers"
        raise DataError(what, file=folder / HEAD, fix=HEADLESS)
    prefix = f"heads.{head['name']}."
    numbers = sorted({int(name.removeprefix(prefix).split(".")[0]) for name in tensors})
    renamed = {
        f"{name}.{part}": tensors[f"{prefix}{number}.{part}"]
        for name, number in zip(maps, numbers, strict=True)
        for part in ("weight", "bias")
    }
    return SavedHead(renamed, end, settings)


def _find_labels(head: Mapping[str, Any]) -> dict[str, int] | None:
    found: dict[str, int] | None = (head["config"] or head).get("label2id")
    return found


def read_weights(folder: Path, names: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of the first file that exists; DataError if none does."""
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise DataError(f"no {' or '.join(names)} here", file=folder, fix=AGAIN)
    return weights.read_file(file)
