"""The names of the inputs and outputs of a graph.

A graph reads fields of a batch: `text.ids`, `text.length`, `text.tracks.segment`, `anchors`. Where
it reads no others, its inputs can have the names in which tokenizers of transformers answer.
Padding stands at the end of a row, so `length = sum_t attention_mask`. The token that stands for a
row is its first or its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.runtime.fields import flatten

SEGMENT = "text.tracks.segment"
PUBLISHED = {"text.ids": "input_ids", "text.length": "attention_mask", SEGMENT: "token_type_ids"}
LOGITS = "logits"  # the published name of a single output
ANCHORS: Mapping[str, Callable[[Tensor], Tensor]] = {  # positions, of the lengths [n] of rows
    "first": torch.zeros_like,
    "last": lambda length: length - 1,
}


@dataclass(frozen=True)
class Signature:
    """The names of the inputs and outputs of a graph.

    Args:
        inputs: The inputs in the order of the graph: fields of a batch, or published names.
        outputs: {output, in the order of the graph: name of these logits}.
        anchors: The token that stands for a row, "first" or "last", where the graph finds it.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    anchors: str = ""

    def feed(self, batch: Batch) -> dict[str, np.ndarray]:
        """The inputs of a batch, as arrays.

        Raises:
            UsageError: Other tokens stand for its rows than the graph takes.
        """
        named = flatten(batch)
        if self.anchors and not torch.equal(named["anchors"], find_anchors(batch, self.anchors)):
            what = f"this graph answers by the {self.anchors} token of a row, and by no other"
            raise UsageError(f"{what}\n  fix: use the run that it is from")
        for field, name in PUBLISHED.items():
            if name in self.inputs:
                named[name] = batch.text.real.long() if field == "text.length" else named[field]
        return {name: named[name].numpy(force=True) for name in self.inputs}

    def read(self, inputs: Iterable[Tensor]) -> dict[str, Tensor]:
        """The fields of a batch that has these inputs."""
        named = dict(zip(self.inputs, inputs, strict=True))
        for field, name in PUBLISHED.items():
            if name in named:
                own = named.pop(name)
                named[field] = own.sum(1) if field == "text.length" else own
        if self.anchors:
            named["anchors"] = _spell_anchors(named["text.length"], self.anchors)
        return named

    def label(self, found: Iterable[Tensor]) -> dict[str, Tensor]:
        """The logits by name, of the outputs of the graph."""
        return dict(zip(self.outputs.values(), found, strict=True))


def name_fields(fields: Iterable[str], logits: Iterable[str]) -> Signature:
    """Inputs and outputs with the names of plmctl."""
    return Signature(tuple(fields), {name: name for name in logits})


def name_published(fields: Iterable[str], logits: Iterable[str], sample: Batch) -> Signature:
    """Published names where there are some for all fields, otherwise those of plmctl.

    Args:
        fields: The fields that the graph reads.
        logits: The names of its answers.
        sample: A batch with its anchors.
    """
    own, answers = [*fields], [*logits]
    rule = _find_rule(sample) if "anchors" in own else ""
    read = {*own} - {"anchors"} | {"text.length"} if rule else {*own}
    if not read <= {*PUBLISHED}:
        return name_fields(own, answers)
    inputs = tuple(name for field, name in PUBLISHED.items() if field in read)
    outputs = {LOGITS: answers[0]} if len(answers) == 1 else {name: name for name in answers}
    return Signature(inputs, outputs, rule)


def _find_rule(sample: Batch) -> str:
    """The token that stands for each row of a batch, "first" or "last"; "" for others."""
    if sample.anchors is None or "text" not in sample.seqs:
        return ""
    found = (rule for rule in ANCHORS if torch.equal(sample.anchors, find_anchors(sample, rule)))
    return next(found, "")


def find_anchors(batch: Batch, rule: str) -> Tensor:
    """[n, 2] = (row, position) of the first or the last token of each row."""
    return _spell_anchors(batch.text.length, rule)


def _spell_anchors(length: Tensor, rule: str) -> Tensor:
    rows = torch.arange(length.shape[0], device=length.device)
    return torch.stack([rows, ANCHORS[rule](length)], 1)
