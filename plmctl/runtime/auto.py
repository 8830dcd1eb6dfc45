"""The fastest runtime of this machine."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial

import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError, list_problems
from plmctl.core.machine import describe_cpu
from plmctl.core.parts import part_of
from plmctl.generation.decode import find_writing_head
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.runtime.base import KEPT, Answer, Program, Runtime
from plmctl.runtime.ctranslate2 import CTranslate2Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.runtime.faster import FasterTexts
from plmctl.runtime.onnx import OnnxRuntime
from plmctl.runtime.openvino import OpenVinoRuntime
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.rates import keep, time_fastest

REPEATED = 3  # measurements, of which the fastest counts


@part_of("runtime")
class FastestRuntime(Runtime):
    """The fastest of the installed runtimes that keep the numbers of fp32.

    Each computes the first batch a few times. The rates are kept for models and batches of this
    size on this machine. Texts are those of PyTorch or the same ones of CTranslate2.
    """

    def __init__(self) -> None:
        super().__init__()
        self.candidates: Mapping[str, Runtime] = {
            "torch": EagerRuntime(),
            "openvino": OpenVinoRuntime(),
            "onnx": OnnxRuntime(),
        }
        self.library = CTranslate2Runtime()
        self.choices: list[tuple[Model, FasterTexts]] = []
        self.chosen = ""
        self.rates: dict[str, float] = {}
        self.refusals: list[str] = []

    def prepare(self, program: Program, sample: Batch) -> Answer:
        ready: dict[str, Answer] = {}
        program = Program(self.let_write(program.model), program.compute)

        def measure(name: str) -> float:
            ready[name] = self.candidates[name].prepare(program, sample)
            return measure_rate(ready[name], sample)

        self.rates, self.refusals = {}, []
        for name, runtime in self.candidates.items():
            try:
                key = _spell_key(name, runtime, program, sample)
                self.rates[name] = keep(key, partial(measure, name), find_cache_folder())
            except UsageError as error:
                self.refusals.append(f"{name}: {list_problems(error)}")
        self.chosen = max(self.rates, key=lambda name: self.rates[name])
        return ready.get(self.chosen) or self.candidates[self.chosen].prepare(program, sample)

    def let_write(self, model: Model) -> Model:
        try:
            find_writing_head(model)
        except UsageError:
            return model  # it writes nothing
        if all(known is not model for known, _ in self.choices):
            self.choices = [(model, FasterTexts(model, self.library)), *self.choices[: KEPT - 1]]
        choosing = copy.copy(model)  # shares all weights
        choosing.choice = next(choice for known, choice in self.choices if known is model)
        return choosing

    def describe(self) -> str:
        texts = "; ".join(said for _, choice in self.choices if (said := choice.describe()))
        own = self._describe_passes()
        return "; ".join(part for part in (own, texts and f"texts: {texts}") if part)

    def _describe_passes(self) -> str:
        if not self.chosen:
            return ""
        rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in self.rates.items())
        without = f"; {'; '.join(self.refusals)}" if self.refusals else ""
        return f"{self.chosen}, the fastest here, in rows/s: {rates}{without}"


def measure_rate(answer: Answer, sample: Batch) -> float:
    """Rows a second of the fastest of a few passes over a batch, behind a first one."""
    return len(sample.key) / time_fastest(partial(answer, sample), REPEATED)


def _spell_key(name: str, runtime: Runtime, program: Program, sample: Batch) -> str:
    """All that decides the rate: the machine, the library, and sizes up to a factor of 2."""
    tokens = next(iter(sample.seqs.values())).ids.shape[1]
    sizes = f"2^{count(program.model).bit_length()} parameters"
    rows = f"2^{len(sample.key).bit_length()} rows of 2^{int(tokens).bit_length()} tokens"
    library = runtime.describe() or f"torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{describe_cpu()}, {threads} threads, {name} {library}, {sizes}, {rows}"
