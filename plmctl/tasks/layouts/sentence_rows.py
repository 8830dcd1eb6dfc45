"""Rows of words, each of which is answered by itself: a sentence, or a part of its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.layouts.words import Pieces, take_context, windows, word_pieces
from plmctl.tasks.readers.span_rows import tag_text
from plmctl.tasks.record import Example, Examples
from plmctl.text.sentences import CHINESE

Cut = Literal["spaces", "text"]


@part_of("layout")
class SentenceRows(RowLayout):
    """Rows of a sentence, with `spans.word`. A sentence longer than a row is split into windows at
    word boundaries, so that every word is in a row.

    Args:
        joiner: The text between words when they are tokenized; None: nothing where the words of
            training are Chinese characters, which are then the words of new lines, otherwise a
            space.
        context: The content of a row: a "sentence", or as much of its "document" around it as
            fits. Words are taken from both sides in turn, without labels. Differs: the packing by
            Devlin et al. (2019) was never released.
        words: The cut of a new line: at its "spaces", or as a "text" into words and single marks;
            None: as a text where those of training have entities by their characters.
        alone: Whether words are all the text of an example; otherwise all its fields are.
    """

    fields: Mapping[str, Field] = {
        "spans.word": Field(
            "[m, 4]", "int", "row, first piece, pieces, number of the word in its sentence"
        )
    }

    def __init__(
        self,
        *,
        joiner: str | None = None,
        context: Literal["sentence", "document"] = "sentence",
        words: Cut | None = None,
        alone: bool = False,
    ) -> None:
        self.joiner, self.context, self.words, self.alone = joiner, context, words, alone

    @property
    def decided(self) -> dict[str, Any]:
        words = {} if self.words is None else {"words": self.words}
        return {**words, "joiner": self.joiner}

    def fit(self, examples: Examples) -> None:
        if self.context == "document" and not any(
            example.document is not None for example in examples
        ):
            allowed = "sentence: neither -DOCSTART- lines nor fields `document` are here"
            raise ConfigError("task.context", "document", allowed)
        if self.words is None and any("source" in example.fields for example in examples):
            self.words = "text"
        if self.joiner is None:
            self.joiner = "" if _of_characters(examples) else " "

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        """Words separated by spaces; with `joiner=""` every character is a word, unless spaces
        divide all Chinese ones. With `words="text"`, those of a text, with their characters.
        """
        if self.words == "text" and (text := tag_text(line, None)).words:
            fields = {"words": text.words, "places": text.places, "source": line}
            return Example(id=str(number - 1), fields=fields, place=f"line {number}")
        words = line.split()
        if self.joiner == "" and (
            len(words) == 1 or any(len(CHINESE.findall(word)) > 1 for word in words)
        ):
            words = [character for word in words for character in word]
        fields = {"words": words or [""]}
        if self.words == "text" and not words:  # it has a row, and no entity
            fields |= {"places": [(0, 0)], "source": line}
        return Example(id=str(number - 1), fields=fields, place=f"line {number}")

    def texts(self, example: Example) -> list[str]:
        if self.alone:
            return [" ".join(example.fields["words"])]
        return [str(example.fields["source"])] if "source" in example.fields else example.texts

    def unit(self, example: Example) -> str:
        if self.alone:
            return "\t".join(example.fields["words"])
        if "source" in example.fields:
            return example.bundle or str(example.fields["source"])
        return example.unit

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        laid_out: list[encode.Row] = []
        example_of: list[int] = []
        # row, position of its first piece, pieces, number of the word
        words: list[tuple[int, int, int, int]] = []
        joiner, vocab = " " if self.joiner is None else self.joiner, tokenizer.vocab
        pieces = [
            word_pieces(example.fields["words"], tokenizer, joiner=joiner) for example in examples
        ]
        for number, own in enumerate(pieces):
            second = self.find_second(examples[number], own, rows)
            room = rows.max_length - len(second or ())
            room -= encode.specials(vocab, pair=second is not None)
            for first, last in windows([min(len(p), room) for p in own], room):
                kept = [piece[:room] for piece in own[first:last]]
                left, right = self._find_context(
                    number, first, last, examples, pieces, room - sum(map(len, kept))
                )
                ids = [i for piece in (*left, *kept, *right) for i in piece]
                row = encode.lay_out(
                    ids, second, vocab, max_length=rows.max_length, pooling=rows.pooling
                )
                starts = row.a_start + np.cumsum([sum(map(len, left)), *map(len, kept)])
                words += [
                    (len(laid_out), int(starts[w]), len(kept[w]), first + w)
                    for w in range(len(kept))
                ]
                lost = sum(map(len, own[first:last])) - sum(map(len, kept))
                laid_out.append(replace(row, cut=lost))
                example_of.append(number)
        made = encode.pad(laid_out, vocab, example=example_of)
        return replace(made, spans={"word": np.array(words, dtype=np.int64)})

    def find_second(self, example: Example, pieces: Pieces, rows: RowSettings) -> list[int] | None:
        """The tokens of a second segment of its rows, or None."""
        return None

    def _find_context(
        self,
        number: int,
        first: int,
        last: int,
        examples: Examples,
        pieces: Sequence[Pieces],
        room: int,
    ) -> tuple[Pieces, Pieces]:
        """The words before `first` and from `last` of a sentence on, in its document, that
        `room` more tokens hold.
        """
        document = examples[number].document
        if self.context == "sentence" or document is None:
            return [], []
        before, after = pieces[number][:first], pieces[number][last:]
        neighbour = number - 1
        while neighbour >= 0 and examples[neighbour].document == document and len(before) < room:
            before = [*pieces[neighbour], *before]
            neighbour -= 1
        neighbour = number + 1
        while (
            neighbour < len(examples)
            and examples[neighbour].document == document
            and len(after) < room
        ):
            after = [*after, *pieces[neighbour]]
            neighbour += 1
        return take_context(before, after, room)

    def read(self, model: Model, batch: Batch, rows: RowSettings, *, together: bool) -> Tensor:
        """`[B, T, W]` of all tokens."""
        return features_of(model, batch)


def find_states(rows: Rows, piece: str = "first") -> tuple[np.ndarray, np.ndarray]:
    """(row, position) of the state of each word: of its "first" piece or of its "last"."""
    row, start, pieces, _ = rows.spans["word"].T
    return row, start if piece == "first" else start + pieces - 1


def _of_characters(examples: Examples) -> bool:
    """Whether the words are Chinese characters, among which whole numbers and foreign words may
    stand.
    """
    words = [
        len(word)
        for example in examples
        for word in example.fields["words"]
        if CHINESE.search(word)
    ]
    others = sum(len(example.fields["words"]) for example in examples) - len(words)
    return len(words) > others and words.count(1) > 0.95 * len(words)
