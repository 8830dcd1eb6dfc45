"""A program as one graph of tensors, which other libraries read.

`torch.export` follows the program once, with symbols for the sizes of a batch. The inputs
of the graph are the fields of a batch that the program reads: `text.ids`, `text.length`,
`text.tracks.segment`, `anchors`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.nn.utils.stateless import _reparametrize_module

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.runtime.base import Answer, Program

TOLERANCE = 1e-4  # largest difference of fp32 numbers, relative and absolute
_LOGGERS = ("torch.onnx", "torch.export", "torch._export", "torch.fx")


@dataclass(frozen=True)
class TensorGraph:
    """An exported program with the names of its inputs and outputs."""

    exported: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def feed(self, batch: Batch) -> dict[str, np.ndarray]:
        """The inputs of a batch, as arrays."""
        tensors = flatten(batch)
        return {name: tensors[name].numpy(force=True) for name in self.inputs}


def flatten(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by the names of their fields."""
    named: dict[str, Tensor] = {}
    for name, seq in batch.seqs.items():
        named |= {f"{name}.ids": seq.ids, f"{name}.length": seq.length}
        named |= {f"{name}.tracks.{track}": value for track, value in seq.tracks.items()}
    if batch.anchors is not None:
        named["anchors"] = batch.anchors
    for group in ("spans", "values"):
        named |= {f"{group}.{name}": value for name, value in getattr(batch, group).items()}
    return named


def unflatten(named: Mapping[str, Tensor], like: Batch) -> Batch:
    """A batch of these tensors, with the fields of `like`."""

    def group(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): value
            for name, value in named.items()
            if name.startswith(prefix)
        }

    seqs = {
        name: replace(
            seq,
            ids=named[f"{name}.ids"],
            length=named[f"{name}.length"],
            tracks=group(f"{name}.tracks."),
            full=False,
        )
        for name, seq in like.seqs.items()
    }
    rows = next(iter(seqs.values())).ids.shape[0]
    return Batch(
        key=torch.arange(rows),
        seqs=seqs,
        anchors=named.get("anchors"),
        spans=group("spans."),
        values=group("values."),
        source=like.source,
    )


def export(program: Program, sample: Batch) -> TensorGraph:
    """The graph of a program for batches of any number of rows and tokens.

    Raises:
        UsageError: The program is not one graph for all sizes.
    """
    sample = double(sample)
    named = flatten(sample)
    with quiet():
        graph, names = _export(program, sample, tuple(named)), tuple(named)
        used = tuple(
            name for name, node in zip(names, _list_inputs(graph), strict=True) if node.users
        )
        if used != names:  # fields that nothing reads are no inputs
            graph, names = _export(program, sample, used), used
    outputs = tuple(program(sample))
    _refuse_fixed(graph, names)
    return TensorGraph(graph, names, outputs)


def _export(program: Program, sample: Batch, names: tuple[str, ...]) -> ExportedProgram:
    """The program with these fields of the sample as inputs, all others as constants."""
    named = flatten(sample)
    module = _Module(program, sample, names).eval()
    inputs = tuple(named[name] for name in names)
    sizes = tuple({axis: Dim.AUTO for axis in range(tensor.dim())} for tensor in inputs)
    try:
        with torch.no_grad():
            return torch.export.export(module, inputs, dynamic_shapes=(sizes,), strict=False)
    except Exception as error:
        raise refuse(error) from error


class _Module(nn.Module):
    """A program of tensors. The tensors of the model are its own buffers, since the names of heads
    may be words of Python, such as `class`.
    """

    def __init__(self, program: Program, sample: Batch, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names
        self._hidden = (program, sample)  # a tuple: no submodule
        model = program.model
        state = {  # one entry for each module, even a shared one
            f"{prefix}.{name}".lstrip("."): tensor
            for prefix, module in model.named_modules()
            for name, tensor in {**module._parameters, **module._buffers}.items()
            if tensor is not None
        }
        keys = {id(own): f"tensor_{number}" for number, own in enumerate(state.values())}
        self._keys = {name: keys[id(own)] for name, own in state.items()}  # shared ones have one
        for name, own in state.items():
            self.register_buffer(self._keys[name], own.detach())

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The logits, in the order of their names."""
        program, sample = self._hidden
        named = {**flatten(sample), **dict(zip(self.names, tensors, strict=True))}
        own = {name: getattr(self, key) for name, key in self._keys.items()}
        with _reparametrize_module(program.model, own):
            return tuple(program.compute(program.model, unflatten(named, sample)).values())


def _list_inputs(graph: ExportedProgram) -> list[Node]:
    """The nodes of the inputs, in their order."""
    nodes = {node.name: node for node in graph.graph.nodes}
    return [nodes[str(name)] for name in graph.graph_signature.user_inputs]


def _refuse_fixed(graph: ExportedProgram, names: tuple[str, ...]) -> None:
    """UsageError where the number of rows or of tokens is a constant of the graph."""
    for name, node in zip(names, _list_inputs(graph), strict=True):
        shape = node.meta["val"].shape
        axes = 2 if name.endswith(".ids") or ".tracks." in name else 1
        if any(isinstance(size, int) for size in shape[:axes]):
            raise refuse(f"its graph reads {name} of one size, {' x '.join(map(str, shape[:2]))}")


def double(batch: Batch) -> Batch:
    """The batch with each row twice, and with at least 2 tokens: sizes of 1 would be constants."""
    named, rows = flatten(batch), len(batch.key)
    twice = {name: torch.cat([value, value]) for name, value in named.items()}
    for name in twice:
        if name == "anchors" or name.startswith("spans."):  # they begin with the number of a row
            twice[name][len(named[name]) :, 0] += rows
        if (name.endswith(".ids") or ".tracks." in name) and twice[name].shape[1] == 1:
            twice[name] = torch.cat([twice[name], twice[name]], 1)
    return unflatten(twice, batch)


def check(answer: Answer, program: Program, sample: Batch, *, exact: bool) -> None:
    """UsageError where a runtime cannot compute other sizes, or gives other numbers.

    Args:
        exact: Whether they are numbers of fp32, which must be equal to 1e-4.
    """
    for batch in (sample, double(sample)):
        wanted, found = program(batch), answer(batch)
        for name, own in wanted.items():
            same = own.shape == found[name].shape
            if same and exact:
                same = torch.allclose(found[name].to(own), own, rtol=TOLERANCE, atol=TOLERANCE)
            if not same:
                raise refuse(f"its '{name}' differ from those of PyTorch")


def refuse(reason: object) -> UsageError:
    """The error for a program that no runtime but PyTorch computes."""
    line = " ".join(str(reason).split())[:200]
    return UsageError(f"this model runs in PyTorch only: {line}\n  fix: runtime=torch")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the advice of exporters, which is for their authors."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
