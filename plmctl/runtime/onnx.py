"""ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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
from plmctl.runtime.whole_numbers import round_to, use_ranges, widen
from plmctl.storage.gate import admit

# the first version with attention as one operator, which ONNX Runtime computes as such
OPSET = 23
QUANTIZED = ("MatMul", "Gather")
FILE = "model.onnx"


@part_of("runtime")
class OnnxRuntime(Runtime):
    """ONNX Runtime: one graph with attention as one operator.

    Args:
        int8: Whether weights and embeddings are 8-bit integers, and the inputs of matrix products
            are rounded to 8 bits as they come (dynamic quantization). A model that was trained
            with rounded numbers keeps their ranges.
        threads: The number of threads; None: as many as PyTorch has.
    """

    def __init__(self, *, int8: bool = False, threads: int | None = None) -> None:
        super().__init__()
        self.int8, self.threads = int8, threads

    def prepare(self, program: Program, sample: Batch) -> Answer:
        _require("onnxruntime")
        trained = use_ranges(program) if self.int8 else None
        graph = export(trained or program, sample)
        with tempfile.TemporaryDirectory() as folder:
            self.write(graph, Path(folder))
            if self.int8 and trained is None:
                self.shrink(Path(folder), graph.signature, [sample])
            answer = self.load(Path(folder), graph.signature)
        check(answer, program, sample, exact=not self.int8)
        return answer

    def write(self, graph: TensorGraph, folder: Path) -> None:
        """Write a graph into a folder."""
        write_onnx(graph, folder / FILE)

    def shrink(self, folder: Path, signature: Signature, batches: Sequence[Batch]) -> None:
        """Round the weights of a graph in a folder to 8 bits, which needs no batches."""
        quantize(folder / FILE, folder / f"int8.{FILE}").replace(admit(folder / FILE))

    def load(self, folder: Path, signature: Signature) -> Answer:
        """The graph in a folder as a function from batches to logits."""
        ort = _require("onnxruntime")
        try:
            session = ort.InferenceSession(str(folder / FILE), make_options(ort, self.threads))
        except Exception as error:  # whatever of the graph it does not compute
            raise refuse(error) from error
        return OnnxSession(session, signature)

    def describe(self) -> str:
        ort = _require("onnxruntime")
        return f"ONNX Runtime {ort.__version__}{', int8' if self.int8 else ''}"


class OnnxSession:
    """A session of ONNX Runtime as a function from batches to logits."""

    def __init__(self, session: Any, signature: Signature) -> None:
        self.session, self.signature = session, signature

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        given = self.signature.feed(batch)
        try:
            found = self.session.run([*self.signature.outputs], given)
        except Exception as error:  # its classes have no base of their own
            raise refuse(error) from error
        return self.signature.label(map(torch.from_numpy, found))


def write_onnx(graph: TensorGraph, file: Path) -> Path:
    """Write a graph as one file, with the names of its inputs and outputs."""
    _require("onnx")
    _require("onnxscript")
    inputs, outputs = list(graph.signature.inputs), list(graph.signature.outputs)
    how: Any = {"opset_version": OPSET, "external_data": False, "verbose": False}
    how |= {"input_names": inputs, "output_names": outputs}
    how["custom_translation_table"] = {
        torch.ops.aten.where.self: _choose,
        widen._opoverload: _widen,
        round_to._opoverload: _round_to,
    }
    try:
        with quiet():
            torch.onnx.export(graph.exported, (), admit(file), **how)
    except Exception as error:  # whatever of the graph has no operator there
        raise refuse(f"{type(error).__name__} in the export to ONNX") from error
    return file


def _choose(condition: Any, own: Any, other: Any) -> Any:
    """`where`; ONNX Runtime has no implementation of it for booleans."""
    op, boolean = _require("onnxscript").opset18, _require("onnx").TensorProto.BOOL
    if own.dtype != boolean or other.dtype != boolean:
        return op.Where(condition, own, other)
    return op.Or(op.And(condition, own), op.And(op.Not(condition), other))


def _widen(q: Any, scale: float) -> Any:
    op = _require("onnxscript").opset23
    return op.DequantizeLinear(q, _keep(np.float32(scale)), _keep(np.int8(0)))


def _round_to(x: Any, scale: float, most: int) -> Any:
    """Whole numbers and back; the library joins both with the next product."""
    op = _require("onnxscript").opset23
    step, zero = _keep(np.float32(scale)), _keep(np.int8(0))
    if most < -np.iinfo(np.int8).min - 1:  # the operator leaves -128, too
        x = op.Clip(x, *(_keep(np.float32(sign * most * scale)) for sign in (-1, 1)))
    return op.DequantizeLinear(op.QuantizeLinear(x, step, zero), step, zero)


def _keep(number: Any) -> Any:
    """A constant of the graph."""
    tensor = _require("onnx").numpy_helper.from_array(np.asarray(number))
    return _require("onnxscript").opset23.Constant(value=tensor)


def quantize(source: Path, target: Path) -> Path:
    """Write a graph with the weights of its matrix products and embeddings in 8 bits."""
    tools = _require("onnxruntime.quantization")
    with quiet():
        tools.quantize_dynamic(
            source,
            admit(target),
            weight_type=tools.QuantType.QInt8,
            per_channel=True,
            # weights of 7 bits, whose sums do not overflow:
            # https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
            reduce_range=not cpu_sums_int8(),
            op_types_to_quantize=list(QUANTIZED),
            extra_options={"MatMulConstBOnly": True},
        )
    return target


def make_options(ort: Any, threads: int | None) -> Any:
    """Options of a session with as many threads, which do not spin while they wait."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.log_severity_level = 4  # errors are raised, too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _require(module: str) -> Any:
    """A library of the extra `onnx`."""
    return require_library(module, "onnx", "runtime=onnx", otherwise="runtime=torch")
