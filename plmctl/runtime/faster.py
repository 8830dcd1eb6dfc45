"""Texts by the faster of PyTorch and a library that writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from plmctl.core.errors import UsageError, list_problems
from plmctl.core.machine import describe_cpu
from plmctl.generation.search import Hypothesis, Search, SearchFacts
from plmctl.generation.writer import WriteItself
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.runtime.ctranslate2 import CTranslate2Runtime, CTranslate2Writer
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.rates import keep, time_fastest

TOKENS = 16  # most tokens of each measured text
REPEATED = 2  # measurements behind a first one, of which the faster counts


class FasterTexts:
    """Texts of PyTorch, or the same ones of a library where that is faster on this machine.

    The first batch of a size is written a few times by both, up to `TOKENS` tokens. The rates are
    kept for models, batches and beams of this size. PyTorch writes drawn texts, those of a beam
    that excludes tokens, and those of a search that the library lacks.

    Args:
        model: The model.
        library: The library.
    """

    def __init__(self, model: Model, library: CTranslate2Runtime) -> None:
        self.model, self.library = model, library
        self.chosen, self.refusal = "", ""
        self.rates: dict[str, float] = {}
        self._writer: CTranslate2Writer | None = None
        self._lacking = False

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        search: Search,
        *,
        limits: Sequence[int],
        end: int | None,
        write_itself: WriteItself,
    ) -> list[list[Hypothesis]]:
        """The texts of each prompt, best first.

        Args:
            prompts: The ids of each prompt, or of each source of an encoder-decoder.
            limits: [B] most tokens of each text.
            end: The token that ends a text.
            write_itself: The texts of PyTorch, by the most tokens of each; None: `limits`.
        """
        facts: SearchFacts | None = getattr(search, "facts", None)
        if facts is None or not _has_one_result(facts) or self._lacking:
            return write_itself(None)

        def write(most: int) -> list[list[Hypothesis]]:
            short = [min(limit, most) for limit in limits]
            return self._open().write(prompts, search, limits=short, end=end)

        try:
            key = self._spell_key(len(prompts), facts)
            ways: dict[str, Callable[[int], object]] = {"torch": write_itself, "ctranslate2": write}
            for name, way in ways.items():
                measure = partial(_measure, way, len(prompts))
                self.rates[name] = keep(f"{key}, {name}", measure, find_cache_folder())
            self.chosen = max(ways, key=lambda name: self.rates[name])
            return write_itself(None) if self.chosen == "torch" else write(max(limits))
        except UsageError as error:  # the library lacks the search, the model, or is not there
            self.chosen, self.refusal = "torch", list_problems(error)
            return write_itself(None)

    def describe(self) -> str:
        """The chosen one, for people; "" before the first text."""
        if self.refusal:
            return f"torch; ctranslate2: {self.refusal}"
        rates = ", ".join(f"{name} {rate:,.3g}" for name, rate in self.rates.items())
        return self.chosen and f"{self.chosen}, the fastest here, in texts/s: {rates}"

    def _open(self) -> CTranslate2Writer:
        if self._writer is None:
            self._lacking = True  # unless it opens the model
            self._writer = self.library.open_writer(self.model)
            self._lacking = False
        return self._writer

    def _spell_key(self, rows: int, facts: SearchFacts) -> str:
        """All that decides the rates: the machine, the libraries, and sizes up to a factor of 2."""
        libraries = f"torch {torch.__version__}, {self.library.describe()}"
        sizes = f"2^{count(self.model).bit_length()} parameters"
        texts = f"2^{rows.bit_length()} texts, {facts.width} beams"
        return f"{describe_cpu()}, {torch.get_num_threads()} threads, {libraries}, {sizes}, {texts}"


def _has_one_result(facts: SearchFacts) -> bool:
    """Whether both write the same texts: none is drawn, and a beam excludes no tokens."""
    rules = facts.rules
    return not facts.draws and (facts.width == 1 or not (rules.min_length or rules.no_repeat_ngram))


def _measure(write: Callable[[int], object], rows: int) -> float:
    """Texts a second of the fastest of a few passes, behind a first one."""
    return rows / time_fastest(partial(write, TOKENS), REPEATED)
