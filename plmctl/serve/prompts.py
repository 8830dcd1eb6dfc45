"""Masks that a model fills, and texts that it writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.config.spec import Provenance
from plmctl.core.errors import DataError, UsageError, list_problems
from plmctl.generation.answers import MaskAnswers, TextAnswers, trim_incomplete
from plmctl.generation.prompts import Prompt, PromptReader
from plmctl.generation.search import Walking
from plmctl.generation.together import TextOrder, Together
from plmctl.generation.writer import writer_of
from plmctl.runs.deciding import decide
from plmctl.runs.published_search import choose_search
from plmctl.runtime.base import Runtime
from plmctl.serve.queue import QueuedItem
from plmctl.training.device.precision import Precision
from plmctl.use.generate import build_search, make_answerer
from plmctl.use.prompting import make_prompt_reader
from plmctl.use.runtimes import let_write

Settings = tuple[tuple[str, Any], ...]  # settings of `plmctl generate`, in a fixed order
PLACE = "inputs"


class AnswerEngine:
    """Answers prompts by one group of settings."""

    def __init__(
        self, name: str, answerer: TextAnswers | MaskAnswers, precision: Precision
    ) -> None:
        self.name, self.answerer, self.precision = name, answerer, precision

    def read(self, texts: Sequence[str], *, blank: dict[int, dict[str, Any]]) -> list[QueuedItem]:
        """The prompts of the texts that the model can read.

        Args:
            texts: The texts.
            blank: Gets the records of the others, by their numbers from 0.

        Raises:
            DataError: The model can read none of them.
        """
        prompts = list[Prompt]()
        for number, text in enumerate(texts):
            try:
                prompts.append(self.answerer.reader(text, number))
            except DataError as error:
                empty = self.answerer.blank(Prompt(text, [], number))
                blank[number] = {**empty, "error": list_problems(error)}
                first = error
        if texts and not prompts:
            raise first
        return [QueuedItem(prompt, len(prompt.ids)) for prompt in prompts]

    def answer(self, questions: Sequence[Prompt]) -> list[dict[str, Any]]:
        """The record of each prompt, as `plmctl generate --json` prints it."""
        with self.precision.autocast():
            return list(self.answerer.answer(questions))


class WritingFlow:
    """The texts that a model writes for requests with any settings, all in one running batch."""

    def __init__(self, reader: PromptReader, precision: Precision) -> None:
        self.reader, self.precision = reader, precision
        self.together = Together(
            reader.model, vocab=reader.vocab, head=reader.head, opening=reader.opening
        )
        self.asked: dict[Hashable, tuple[TextAnswers, Prompt]] = {}

    @property
    def joins(self) -> bool:
        """Whether questions can join now."""
        return self.together.joins

    def join(
        self,
        tickets: Sequence[Hashable],
        engines: Sequence[WritingEngine],
        questions: Sequence[Prompt],
    ) -> None:
        """Begin the texts of prompts."""
        orders = [
            TextOrder(ticket, engine.search, prompt.number, engine.answerer.max_new)
            for ticket, engine, prompt in zip(tickets, engines, questions, strict=True)
        ]
        batch = self.reader.batch(questions).to(self.precision.device)
        with self.precision.autocast():
            self.together.join(batch, orders)
        answerers = (engine.answerer for engine in engines)
        self.asked |= dict(zip(tickets, zip(answerers, questions, strict=True), strict=True))

    def step(self) -> list[tuple[Hashable, dict[str, Any]]]:
        """Write a token of every text; the records of the prompts whose texts end here."""
        with self.precision.autocast():
            ended = self.together.step()
        found = []
        for ticket, texts in ended:
            answerer, prompt = self.asked.pop(ticket)
            found.append((ticket, answerer.record(prompt, texts)))
        return found

    def read(self, ticket: Hashable) -> str:
        """A text so far, without the end of a character whose bytes are not complete yet."""
        _, prompt = self.asked[ticket]
        return trim_incomplete(self.reader.spell(prompt, self.together.read(ticket)))

    def drop(self, gone: Callable[[Hashable], bool]) -> None:
        """Write nothing more for the tickets that are `gone`."""
        self.together.drop(gone)
        self.asked = {ticket: own for ticket, own in self.asked.items() if not gone(ticket)}


class WritingEngine(AnswerEngine):
    """Writes the texts of prompts by one group of settings, in the batch of the model."""

    answerer: TextAnswers

    def __init__(
        self, answerer: TextAnswers, search: Walking, precision: Precision, flow: WritingFlow
    ) -> None:
        super().__init__("write", answerer, precision)
        self.search, self.flow = search, flow


class PromptEngines:
    """The engines of a model that writes or fills masks, one for each group of settings.

    Raises:
        UsageError: The model does neither.
    """

    def __init__(self, loaded: Loaded, runtime: Runtime, *, precision: Precision) -> None:
        loaded.model.eval()
        self.loaded, self.precision = loaded, precision
        self.reader = make_prompt_reader(loaded, PLACE)
        if not self.fills:
            with suppress(UsageError):  # graphs of other libraries write nothing: PyTorch does
                self.reader = let_write(self.reader, runtime)
        self.engine = lru_cache(maxsize=64)(self._open)
        steps = not self.fills and writer_of(self.reader.model) is None
        self.flow = WritingFlow(self.reader, precision) if steps else None

    @property
    def fills(self) -> bool:
        """Whether the model fills masks; otherwise it writes."""
        return self.reader.kind == "fill"

    def _open(self, settings: Settings) -> AnswerEngine:
        words = [f"{name}={_spell(value)}" for name, value in settings]
        words = [f"checkpoint={_spell(str(self.loaded.source.folder))}", *words]
        plugins = tuple(self.loaded.source.plugins)
        given = Provenance("generate", overrides=tuple(words), plugins=plugins)
        spec: Any = choose_search(decide(given), self.loaded)
        search = build_search(spec.search, self.loaded.tokenizer.encode, plugins)
        least = spec.search.get("min_length", 0)
        answerer = make_answerer(
            self.reader,
            search,
            max_new=spec.max_new,
            min_length=least,
            top=spec.top,
            device=self.precision.device,
        )
        # the texts of a beam depend on each other
        if self.flow is None or not isinstance(search, Walking):
            return AnswerEngine("fill" if self.fills else "write", answerer, self.precision)
        assert isinstance(answerer, TextAnswers)
        search.fits(self.reader.vocab.size)
        return WritingEngine(answerer, search, self.precision, self.flow)


def order_settings(search: str | Mapping[str, Any], **others: Any) -> Settings:
    """Settings of `plmctl generate`: a search, by its name or with its own settings, and others
    but for None.
    """
    own = {"name": search} if isinstance(search, str) else {**search}
    if "search" in own and "name" not in own:
        raise UsageError('search: its name is "name", not "search": {"name": "beam", "width": 4}')
    chosen = str(own.get("name", "greedy"))
    own.pop("name", None)
    for name, value in [("name", chosen), *own.items()]:
        if not name.isidentifier() or not isinstance(value, bool | int | float | str | None):
            raise UsageError(f"search: '{name}' is a name with a number, not {value!r}")
        if isinstance(value, str) and not value.isidentifier():
            raise UsageError(f"search: '{name}' is a word or a number, not {value!r}")
    given = {name: value for name, value in others.items() if value is not None}
    return (
        *([("search", chosen)] if search else []),
        *((f"search.{name}", own[name]) for name in sorted(own)),
        *given.items(),
    )


def _spell(value: Any) -> str:
    return "null" if value is None else str(value)
