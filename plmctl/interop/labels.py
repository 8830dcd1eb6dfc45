"""The labels of a classifier in a `config.json`: their names, and whether a row has one of them,
several, or a number as its value.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from plmctl.interop.family import Architecture
from plmctl.interop.names import Weights
from plmctl.interop.settings import Config
from plmctl.tasks.readers.label_codes import names_of

# the heads of classifiers, and what Hugging Face calls what they predict; None: it has no name
PROBLEMS = {"class": "single_label_classification", "score": "regression", "tag": None}
SEVERAL = "types"  # the head whose labels are decided each by itself; published, one of classes
ANY_NUMBER = "multi_label_classification"
SETTINGS = ("id2label", "label2id", "problem_type")  # settings that `spell` states


def count(head: str, tensors: Weights) -> int:
    """The outputs of a classifier, or the positions of a span in SpanBERT's head."""
    weight = tensors.get(f"heads.{head}.linear.weight", tensors.get(f"heads.{head}.place.weight"))
    return 0 if weight is None else weight.shape[0]


def read_names(settings: Config, architecture: Architecture) -> dict[str, Any]:
    """{"labels": the names of the labels of a `config.json`}; {} where it has none of its own."""
    named = settings.get("id2label") or {}
    names = [named[key] for key in sorted(named, key=int)]
    class_heads = {"class", "tag"} & set(architecture.heads) and names != [
        f"LABEL_{i}" for i in range(len(names))
    ]
    return {"labels": names} if class_heads else {}


def read_several(
    settings: Config, config: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our config and tensors of a published model; of one whose rows have any number of labels,
    with the head of such labels.
    """
    head = next((name for name in ("class", "score") if name in config["heads"]), None)
    if head is None or settings.get("problem_type") != ANY_NUMBER:
        return config, tensors
    return _rename(config, tensors, head, SEVERAL)


def has_several(config: Config) -> bool:
    """Whether the classifier of our config gives a row any number of labels."""
    heads = config.get("heads") or {}
    return heads.get(SEVERAL) is not None and heads.get("class") is None


def spell_several(config: Config, tensors: Weights) -> tuple[Config, Weights]:
    """Our config and tensors with a head of classes instead of one of any number of labels. A
    published class has both under the same name.
    """
    return _rename(config, tensors, SEVERAL, "class") if has_several(config) else (config, tensors)


def _rename(
    config: Config, tensors: Weights, old: str, new: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    heads = {new if name == old else name: node for name, node in config["heads"].items()}
    before, after = f"heads.{old}.", f"heads.{new}."
    renamed = {
        f"{after}{name.removeprefix(before)}" if name.startswith(before) else name: tensor
        for name, tensor in tensors.items()
    }
    return {**config, "heads": heads}, renamed


def spell(
    config: Config, architecture: Architecture, tensors: Weights, *, several: bool
) -> dict[str, Any]:
    """The number of labels of the head, their names if the run knows them, and how they are
    decided.

    Args:
        several: whether a row has any number of labels.
    """
    head = next((name for name in PROBLEMS if name in architecture.heads), None)
    if head is None:
        return {}
    number = count(head, tensors)
    names = names_of((config.get("task") or {}).get("label_names") or config.get("labels") or ())
    names = names if len(names) == number else [f"LABEL_{place}" for place in range(number)]
    kind = ANY_NUMBER if several and head == "class" else PROBLEMS[head]
    return {
        "id2label": {str(i): n for i, n in enumerate(names)},
        "label2id": {n: i for i, n in enumerate(names)},
        **({"problem_type": kind} if kind else {}),
    }
