"""The interface of libraries that search for texts themselves, without the steps of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from plmctl.generation.search import Hypothesis, Search
from plmctl.models.base import Model

# the texts of a model by PyTorch, by the most tokens of each; None: up to its own limit
WriteItself = Callable[[int | None], list[list[Hypothesis]]]


class Writer(Protocol):
    """A library that writes the texts of a model."""

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        search: Search,
        *,
        limits: Sequence[int],
        end: int | None,
        watch: Callable[[list[int]], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The texts of each prompt, best first.

        Args:
            prompts: The ids of each prompt, or of each source of an encoder-decoder.
            limits: [B] most tokens of each text.
            end: The token that ends a text.
            watch: Receives the tokens of a single prompt when they are known.

        Raises:
            UsageError: The library lacks a setting of the search.
        """
        ...

    def score(
        self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]
    ) -> list[float]:
        """`sum_t log p(text_t | prompt, text_<t)` of each text."""
        ...


class TextChoice(Protocol):
    """A choice between a model and a library that writes the same texts."""

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        search: Search,
        *,
        limits: Sequence[int],
        end: int | None,
        write_itself: WriteItself,
    ) -> list[list[Hypothesis]]:
        """The texts of each prompt, as `Writer.write`, or those of `write_itself`."""
        ...


def choice_of(model: Model) -> TextChoice | None:
    """The choice between a model and a library; None: the model writes."""
    return cast(TextChoice | None, model.choice)


def writer_of(model: Model) -> Writer | None:
    """The library that writes the texts of a model; None: the model itself does."""
    return cast(Writer | None, model.writer)
