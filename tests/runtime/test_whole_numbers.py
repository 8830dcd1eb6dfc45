"""Models of whole numbers against sums of integers, and their files against both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.machine import cpu_sums_int8
from plmctl.models.base import Backbone, Model
from plmctl.runtime import whole_numbers
from plmctl.runtime.base import Program
from plmctl.runtime.graph import export
from plmctl.runtime.onnx import OnnxRuntime
from plmctl.runtime.openvino import OpenVinoRuntime
from plmctl.runtime.whole_numbers import TrainedRanges, round_model
from plmctl.training.stabilisers.quantised import Quantised
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.vectors import make_batch

BATCH = make_batch([EmbeddingLine([1, 2, 3, 4, 5]), EmbeddingLine([6, 2, 1])])
# older processors add pairs of products in 16 bits, which overflow with weights of 8 bits
SUMS_BYTES = pytest.mark.skipif(not cpu_sums_int8(), reason="needs a processor with VNNI")
LIBRARIES = {"onnx": OnnxRuntime, "openvino": OpenVinoRuntime}


class Table(Backbone):
    """A table and a map."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(7, 32), nn.Linear(32, 16)


def make_model() -> Any:
    torch.manual_seed(0)
    return Model(backbone=Table(), heads={}).eval()


def compute(model: Any, batch: Batch) -> dict[str, Tensor]:
    return {"y": model.backbone.inner(model.backbone.table(batch.text.ids))}


def sum_integers(model: Any, bits: int, reach: float, weight_bits: int) -> np.ndarray:
    """The answer by sums of whole numbers, with one scale at the end."""
    most, largest = 2 ** (bits - 1) - 1, 2 ** (weight_bits - 1) - 1
    tables = [own.weight.detach().numpy() for own in (model.backbone.table, model.backbone.inner)]
    scales = [np.float32(np.abs(own).max() / largest) for own in tables]
    table, weight = (np.rint(w / s).astype(np.int64) for w, s in zip(tables, scales, strict=True))
    x = table[BATCH.text.ids.numpy()] * scales[0]
    step = np.float32(reach / most)
    whole = np.clip(np.rint(x / step), -most, most).astype(np.int64)
    bias = model.backbone.inner.bias.detach().numpy()
    found: np.ndarray = (whole @ weight.T) * (step * scales[1]) + bias
    return found


WEIGHTS = ["backbone.table.weight", "backbone.inner.weight"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("bits", "reach"), [pytest.param(8, 4.0, marks=SUMS_BYTES), (4, 1.0)])
def test_a_file_has_the_sums_of_integers(
    library: str, bits: int, reach: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range of 4 bits cuts inputs off at both ends."""
    monkeypatch.setattr(whole_numbers, "cpu_sums_int8", lambda: True)
    model = make_model()
    ranges = TrainedRanges(bits, [*WEIGHTS, "heads.gone.weight"], {WEIGHTS[1]: reach})
    program = Program(round_model(model, ranges), compute)
    wanted = sum_integers(model, bits, reach, bits)
    np.testing.assert_allclose(program(BATCH)["y"].numpy(), wanted, rtol=1e-4, atol=1e-5)
    plain = compute(model, BATCH)["y"].detach().numpy()
    assert np.abs(plain - wanted).max() > 1e-3
    graph = export(program, BATCH)
    runtime: Any = LIBRARIES[library]()
    runtime.write(graph, tmp_path)
    found = runtime.load(tmp_path, graph.signature)(BATCH)["y"].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_last_number_of_8_bits_is_at_most_one_step_away(tmp_path: Path) -> None:
    """ONNX goes on to -128."""
    model = make_model()
    ranges = TrainedRanges(8, WEIGHTS, {WEIGHTS[1]: 0.5})
    program = Program(round_model(model, ranges), compute)
    graph, runtime = export(program, BATCH), OnnxRuntime()
    runtime.write(graph, tmp_path)
    found, wanted = runtime.load(tmp_path, graph.signature)(BATCH)["y"], program(BATCH)["y"]
    step = 0.5 / 127 * model.backbone.inner.weight.detach().abs().sum(1)
    assert bool(((found - wanted).abs() <= step + 1e-5).all())


@SUMS_BYTES
def test_it_is_the_model_that_was_trained() -> None:
    """The ranges and weights of training give the numbers of training."""
    part, model, task = Quantised(bits=8, decay=0.5, freeze_at=1.0), make_model(), None
    given: Any = type("Given", (), {"model": model, "task": task})()
    part.begin(given)
    for _ in range(3):
        with part.reading(model):
            compute(model, BATCH)
    with part.reading(model):
        wanted = compute(model, BATCH)["y"]
    part.exchange(model)
    ranges = part.find_ranges(part.state_dict())
    assert (ranges.bits, sorted(ranges.weights)) == (8, sorted(WEIGHTS))
    fresh = make_model()
    fresh.load_state_dict(model.state_dict())
    found = compute(round_model(fresh, ranges), BATCH)["y"]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_without_vnni_weights_have_seven_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_numbers, "cpu_sums_int8", lambda: False)
    model = make_model()
    rounded: Any = round_model(model, TrainedRanges(8, WEIGHTS, {WEIGHTS[1]: 4.0}))
    original = rounded.backbone.inner.parametrizations.weight.original
    assert original.dtype == torch.int8
    assert int(original.abs().max()) == 63
    wanted = sum_integers(model, 8, 4.0, 7)
    found = compute(rounded, BATCH)["y"].detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_tied_weight_is_rounded_once() -> None:
    model = make_model()
    model.backbone.inner = nn.Linear(32, 7)
    model.backbone.inner.weight = model.backbone.table.weight
    rounded: Any = round_model(model, TrainedRanges(8, WEIGHTS, {WEIGHTS[1]: 4.0}))
    one, other = (
        own.parametrizations.weight.original
        for own in (rounded.backbone.table, rounded.backbone.inner)
    )
    assert one is other
    torch.testing.assert_close(rounded.backbone.inner.weight, rounded.backbone.table.weight)
