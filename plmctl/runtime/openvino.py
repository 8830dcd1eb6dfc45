"""OpenVINO."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.extras import require_library
from plmctl.core.machine import cpu_sums_int8
from plmctl.core.parts import part_of
from plmctl.runtime.base import Answer, Program, Runtime
from plmctl.runtime.graph import TensorGraph, check, export, quiet, refuse
from plmctl.runtime.signature import Signature
from plmctl.runtime.whole_numbers import use_ranges
from plmctl.storage.gate import admit

FILE = "model.xml"  # with model.bin
# kernels that are kept, each for one size of a batch, instead of 5,000: rows of ever new sizes
# would take ever more memory
KERNELS = 256
WHOLE = 127  # the largest number of 8 bits with its negative
ATTENTION = "ScaledDotProductAttention"  # the operator that is one for a layer


@part_of("runtime")
class OpenVinoRuntime(Runtime):
    """OpenVINO: one graph, compiled for this processor.

    Args:
        int8: Whether weights, embeddings and the inputs of matrix products are 8-bit integers,
            whose ranges are those of the first batch (static quantization by NNCF). A model that
            was trained with rounded numbers keeps their ranges.
        threads: The number of threads; None: as many as PyTorch has.
    """

    def __init__(self, *, int8: bool = False, threads: int | None = None) -> None:
        super().__init__()
        self.int8, self.threads = int8, threads

    def prepare(self, program: Program, sample: Batch) -> Answer:
        _require("openvino")
        trained = use_ranges(program) if self.int8 else None
        graph = export(trained or program, sample)
        model = make_model(graph)
        if self.int8 and trained is None:
            model = quantize(model, graph.signature, [sample])
        answer = self._compile(model, graph.signature)
        check(answer, program, sample, exact=not self.int8)
        return answer

    def write(self, graph: TensorGraph, folder: Path) -> None:
        """Write a graph into a folder."""
        _save(make_model(graph), folder / FILE)

    def shrink(self, folder: Path, signature: Signature, batches: Sequence[Batch]) -> None:
        """Round the numbers of a graph in a folder to 8 bits; `batches` have the usual ones."""
        # the open file keeps its weights, and the new one takes its name
        model = quantize(open_core().read_model(folder / FILE), signature, batches)
        _save(model, folder / f"int8.{FILE}")
        for kind in (".bin", ".xml"):
            new, old = (file.with_suffix(kind) for file in (folder / f"int8.{FILE}", folder / FILE))
            new.replace(admit(old))

    def load(self, folder: Path, signature: Signature) -> Answer:
        """The graph in a folder as a function from batches to logits."""
        return self._compile(folder / FILE, signature)

    def describe(self) -> str:
        version = _require("openvino").__version__.split("-")[0]
        return f"OpenVINO {version}{', int8' if self.int8 else ''}"

    def _compile(self, model: Any, signature: Signature) -> Answer:
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",  # bf16 by default where the processor has it
            "INFERENCE_NUM_THREADS": self.threads or torch.get_num_threads(),
            "ENABLE_CPU_PINNING": False,  # other processes need processors, too
            "CPU_RUNTIME_CACHE_CAPACITY": KERNELS,
        }
        try:
            return _Compiled(open_core().compile_model(model, "CPU", settings), signature)
        except RuntimeError as error:
            raise refuse(error) from error


@functools.cache
def open_core() -> Any:
    """The engine of this process, which never ends.

    The part for CPUs gives the thread that loads it another stack for signals. It takes this stack
    back in the thread that drops the engine. If these are two threads, the next signal of the first
    one, such as Ctrl-C, is a segmentation fault.
    """
    return _require("openvino").Core()


class _Compiled:
    """A compiled model of OpenVINO as a function from batches to logits."""

    def __init__(self, compiled: Any, signature: Signature) -> None:
        self.compiled, self.signature = compiled, signature

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        given = self.signature.feed(batch)
        try:
            found = self.compiled(given, share_inputs=True).values()
        except RuntimeError as error:
            raise refuse(error) from error
        return self.signature.label(torch.from_numpy(value.copy()) for value in found)


def _save(model: Any, file: Path) -> None:
    _require("openvino").save_model(model, admit(file), compress_to_fp16=False)


def make_model(graph: TensorGraph) -> Any:
    """The graph as a model of OpenVINO, with the names of its inputs and outputs."""
    ov, signature = _require("openvino"), graph.signature
    try:
        with quiet(), _unobserved():
            model = ov.convert_model(graph.exported, extension=_list_extensions())
    except Exception as error:  # whatever of the graph has no operator there
        raise refuse(f"{type(error).__name__} in the conversion to OpenVINO") from error
    if len(model.inputs) != len(signature.inputs):
        raise refuse("OpenVINO takes inputs away")
    for name, own in zip(signature.inputs, model.inputs, strict=True):
        own.get_tensor().set_names({name})
    for name, own in zip(signature.outputs, model.outputs, strict=True):
        own.get_tensor().set_names({name})
    return model


def _list_extensions() -> list[Any]:
    """The operators of our own: int8 weights as such, and inputs that kernels of 8 bits round."""
    _require("openvino")
    frontend = _require("openvino.frontend.pytorch")
    op = _require("openvino.opset13")

    def widen(context: Any) -> Any:
        scale = float(context.get_values_from_const_input(1))
        q = op.convert(context.get_input(0), "f32")
        return op.multiply(q, op.constant(np.float32(scale))).outputs()

    def round_to(context: Any) -> Any:
        x, scale, most = context.get_input(0), *map(context.get_values_from_const_input, (1, 2))
        if most < WHOLE:  # kernels know 2 WHOLE + 1 levels alone
            x = op.clamp(x, -most * scale, most * scale)
        ends = [op.constant(np.float32(sign * WHOLE * scale)) for sign in (-1, 1)]
        return op.fake_quantize(x, *ends, *ends, 2 * WHOLE + 1).outputs()

    named = {"widen": widen, "round_to": round_to}
    extend = frontend.ConversionExtension
    return [extend(f"plmctl.{name}.default", translate) for name, translate in named.items()]


def quantize(model: Any, signature: Signature, batches: Sequence[Batch]) -> Any:
    """A model whose weights and inputs of matrix products have 8 bits. Attention stays one
    operator, in fp32.
    """
    nncf = _require("nncf")
    overflow = nncf.OverflowFix.DISABLE if cpu_sums_int8() else nncf.OverflowFix.ENABLE
    with quiet(), _unobserved():
        return nncf.quantize(
            model,
            nncf.Dataset([signature.feed(batch) for batch in batches]),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            ignored_scope=nncf.IgnoredScope(types=[ATTENTION], validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=overflow),
        )


@contextlib.contextmanager
def _unobserved() -> Iterator[None]:
    """Without the messages that these libraries send to their authors, as on a build server."""
    before = os.environ.get("CI")
    os.environ["CI"] = "true"
    try:
        yield
    finally:
        os.environ.pop("CI")
        os.environ |= {} if before is None else {"CI": before}


def _require(module: str) -> Any:
    """A library of the extra `openvino`."""
    return require_library(module, "openvino", "runtime=openvino", otherwise="runtime=torch")
