"""OpenVINO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.extras import require_library
from plmctl.core.parts import part_of
from plmctl.runtime.base import Answer, Program, Runtime
from plmctl.runtime.graph import TensorGraph, check, export, quiet, refuse


@part_of("runtime")
class OpenVinoRuntime(Runtime):
    """OpenVINO: one graph, compiled for this processor.

    Args:
        threads: The number of threads; None: as many as PyTorch has.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__()
        self.threads = threads

    def prepare(self, program: Program, sample: Batch) -> Answer:
        ov = _require("openvino")
        graph = export(program, sample)
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",  # bf16 by default where the processor has it
            "INFERENCE_NUM_THREADS": self.threads or torch.get_num_threads(),
            "ENABLE_CPU_PINNING": False,  # other processes need processors, too
        }
        answer = _Compiled(ov.compile_model(make_model(graph), "CPU", settings), graph)
        check(answer, program, sample, exact=True)
        return answer

    def describe(self) -> str:
        return f"OpenVINO {_require('openvino').__version__.split('-')[0]}"


class _Compiled:
    """A compiled model of OpenVINO as a function from batches to logits."""

    def __init__(self, compiled: Any, graph: TensorGraph) -> None:
        self.compiled, self.graph = compiled, graph

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        given = list(self.graph.feed(batch).values())
        try:
            found = self.compiled(given, share_inputs=True).values()
        except RuntimeError as error:
            raise refuse(error) from error
        named = zip(self.graph.outputs, found, strict=True)
        return {name: torch.from_numpy(value.copy()) for name, value in named}


def make_model(graph: TensorGraph) -> Any:
    """The graph as a model of OpenVINO, with the names of its inputs and outputs."""
    ov = _require("openvino")
    try:
        with quiet():
            model = ov.convert_model(graph.exported)
    except Exception as error:  # whatever of the graph has no operator there
        raise refuse(f"{type(error).__name__} in the conversion to OpenVINO") from error
    if len(model.inputs) != len(graph.inputs):
        raise refuse("OpenVINO takes inputs away")
    for name, own in zip(graph.inputs, model.inputs, strict=True):
        own.get_tensor().set_names({name})
    for name, own in zip(graph.outputs, model.outputs, strict=True):
        own.get_tensor().set_names({name})
    return model


def _require(module: str) -> Any:
    """A library of the extra `openvino`."""
    return require_library(module, "openvino", "runtime=openvino", otherwise="runtime=torch")
