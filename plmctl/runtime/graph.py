"""A program as one graph of tensors, which other libraries read.

`torch.export` follows the program once, with symbols for the sizes of a batch. The inputs
of the graph are the fields of a batch that the program reads (signature.py).
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.runtime.base import Answer, Program
from plmctl.runtime.fields import double, flatten, unflatten
from plmctl.runtime.signature import Signature, name_fields

TOLERANCE = 1e-4  # largest difference of fp32 numbers, relative and absolute
ONE_AXIS = ("anchors", "spans.", "values.")  # inputs without an axis of tokens


# the names of inputs and outputs: of the fields that are read, the logits, and a batch
Naming = Callable[[Iterable[str], Iterable[str], Batch], Signature]


@dataclass(frozen=True)
class TensorGraph:
    """An exported program with the names of its inputs and outputs."""

    exported: ExportedProgram
    signature: Signature

    def describe_inputs(self) -> dict[str, TensorShape]:
        """The type and the shape of each input."""
        return _describe(self.signature.inputs, _list_inputs(self.exported))

    def describe_outputs(self) -> dict[str, TensorShape]:
        """The type and the shape of each output."""
        nodes = {node.name: node for node in self.exported.graph.nodes}
        found = [nodes[str(name)] for name in self.exported.graph_signature.user_outputs]
        return _describe(self.signature.outputs, found)


class TensorShape(TypedDict):
    """The type of a tensor, and its axes: numbers, or the names of the sizes of a batch."""

    type: str
    shape: list[int | str]


def _describe(names: Iterable[str], nodes: Iterable[Node]) -> dict[str, TensorShape]:
    def spell(axis: int, size: Any) -> int | str:
        return size if isinstance(size, int) else "tokens" if axis else "rows"

    return {
        name: TensorShape(
            type=str(node.meta["val"].dtype).removeprefix("torch."),
            shape=[spell(axis, size) for axis, size in enumerate(node.meta["val"].shape)],
        )
        for name, node in zip(names, nodes, strict=True)
    }


def export(
    program: Program,
    sample: Batch,
    naming: Naming = lambda fields, logits, _: name_fields(fields, logits),
) -> TensorGraph:
    """The graph of a program for batches of any number of rows and tokens.

    Raises:
        UsageError: The program is not one graph for all sizes.
    """
    sample = double(sample)
    read, logits = _find_read(program, sample)
    signature = naming(read, logits, sample)
    with quiet():
        graph = _export(program, sample, signature)
        nodes = zip(signature.inputs, _list_inputs(graph), strict=True)
        used = [name for name, node in nodes if node.users]
        if len(used) < len(signature.inputs):  # no numbers of the others, but of their kind
            signature = replace(signature, inputs=tuple(used))
            graph = _export(program, sample, signature)
    _refuse_fixed(graph, signature)
    return TensorGraph(graph, signature)


def _find_read(program: Program, sample: Batch) -> tuple[list[str], list[str]]:
    """The fields of a batch that a program reads, and the names of its logits."""
    named = flatten(sample)
    with _Read() as read:
        logits = program(sample)
    return [name for name, tensor in named.items() if id(tensor) in read.tensors], [*logits]


class _Read(TorchFunctionMode):
    """The identities of the tensors that are arguments of functions."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        more = kwargs or {}
        self.tensors |= {id(leaf) for leaf in tree_leaves((args, more))}
        return func(*args, **more)


def _export(program: Program, sample: Batch, signature: Signature) -> ExportedProgram:
    """The program with inputs of these names; other fields of the sample are constants."""
    arrays = signature.feed(sample)
    module = _Module(program, sample, signature).eval()
    inputs = tuple(torch.from_numpy(array) for array in arrays.values())
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

    def __init__(self, program: Program, sample: Batch, signature: Signature) -> None:
        super().__init__()
        self.signature = signature
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
        named = flatten(sample) | self.signature.read(tensors)
        own = {name: getattr(self, key) for name, key in self._keys.items()}
        with _reparametrize_module(program.model, own):
            return tuple(program.compute(program.model, unflatten(named, sample)).values())


def _list_inputs(graph: ExportedProgram) -> list[Node]:
    """The nodes of the inputs, in their order."""
    nodes = {node.name: node for node in graph.graph.nodes}
    return [nodes[str(name)] for name in graph.graph_signature.user_inputs]


def _refuse_fixed(graph: ExportedProgram, signature: Signature) -> None:
    """UsageError where the number of rows or of tokens is a constant of the graph."""
    for name, node in zip(signature.inputs, _list_inputs(graph), strict=True):
        shape = node.meta["val"].shape
        axes = 1 if name.endswith(".length") or name.startswith(ONE_AXIS) else 2
        if any(_is_fixed(size) for size in shape[:axes]):
            raise refuse(f"its graph reads {name} of one size, {' x '.join(map(str, shape[:2]))}")


def _is_fixed(size: int | torch.SymInt) -> bool:
    """Whether a size is a number, or a symbol that the trace has found to be one."""
    return isinstance(size, int) or size.node.maybe_as_int() is not None


def check(answer: Answer, program: Program, sample: Batch, *, exact: bool) -> None:
    """UsageError where a runtime cannot compute other sizes, or gives other numbers.

    Args:
        exact: Whether they are numbers of fp32, which must be equal to 1e-4.
    """
    for batch in (sample, double(sample)):
        wanted, found = program(batch), answer(batch)
        for name, own in wanted.items():
            if own.shape != found[name].shape:
                shapes = [" x ".join(map(str, each.shape)) for each in (found[name], own)]
                raise refuse(f"its '{name}' are {shapes[0]}, and those of PyTorch {shapes[1]}")
            near: Any = {"rtol": TOLERANCE, "atol": TOLERANCE}
            if exact and not torch.allclose(found[name].to(own), own, **near):
                raise refuse(f"its '{name}' differ from those of PyTorch")


def refuse(reason: object) -> UsageError:
    """The error for a program that no runtime but PyTorch computes."""
    line = " ".join(str(reason).split())[:200]
    return UsageError(f"this model runs in PyTorch only: {line}\n  fix: runtime=torch")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the advice of exporters, which is for their authors."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
