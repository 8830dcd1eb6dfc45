"""HotpotQA's rows: a question and paragraphs, with tokens that stand for paragraphs and sentences.

    [cls] [q] question [/q] <t> title </t> sentence [s] sentence [s] <t> title </t> ... [sep]

(Beltagy et al., 2020, arXiv:2004.05150, app. D.) `<t>` stands for a paragraph, `[s]` for the
sentence before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from plmctl.core.errors import ConfigError
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.text.vocab import Vocab


class Marks(NamedTuple):
    """The ids of the new tokens."""

    question: int  # [q]
    question_end: int  # [/q]
    title: int  # <t>
    title_end: int  # </t>
    sentence: int  # [s]

    @classmethod
    def behind(cls, vocab: Vocab) -> Marks:
        """The rows of the table of tokens that follow those of the tokenizer."""
        return cls(*range(vocab.size, vocab.size + len(cls._fields)))


NEW_TOKENS = len(Marks._fields)
TITLE = -1  # the number of a title among the sentences of its paragraph


class PlacedText(NamedTuple):
    """A title or a sentence of which all tokens are in the row."""

    start: int  # position of its first token
    length: int  # tokens
    paragraph: int  # its number in the context
    sentence: int  # its number in the paragraph, TITLE for the title

    @property
    def mark(self) -> int:
        """The position of the token that stands for the sentence, or for the title's paragraph."""
        return self.start - 1 if self.sentence == TITLE else self.start + self.length


@dataclass(frozen=True)
class QuestionRow:
    """A laid out question.

    Args:
        row: its tokens; segment B are the paragraphs.
        texts: titles and sentences, in order.
    """

    row: encode.Row
    texts: list[PlacedText]

    def marks(self, *, titles: bool) -> list[int]:
        """The positions that stand for paragraphs, or for sentences."""
        return [text.mark for text in self.texts if (text.sentence == TITLE) == titles]


def string_of(example: Example, text: PlacedText) -> str:
    """A title or a sentence as the file has it."""
    title, sentences = example.fields["context"][text.paragraph]
    return str(title if text.sentence == TITLE else sentences[text.sentence])


def lay_out(
    example: Example, tokenizer: Any, *, max_length: int, max_query: int, pooling: str
) -> QuestionRow:
    """The row of a question; what `max_length` leaves no room for is cut off at the end."""
    vocab, context = tokenizer.vocab, example.fields["context"]
    marks = Marks.behind(vocab)
    whole = tokenizer.encode(example.fields["question"])
    question = whole[:max_query]
    ids = [marks.question, *question, marks.question_end]
    room = max_length - encode.specials(vocab, pair=False)
    asked = len(ids)
    if room <= asked:
        allowed = f"more than max_query={max_query} plus {max_length - room + 2} specials"
        raise ConfigError("task.max_length", max_length, allowed)
    strings = [string for title, sentences in context for string in (title, *sentences)]
    pieces = iter(tokenizer.encode_batch(strings))
    texts: list[PlacedText] = []
    for number, (_, sentences) in enumerate(context):
        title = next(pieces)
        texts.append(PlacedText(len(ids) + 1, len(title), number, TITLE))
        ids += [marks.title, *title, marks.title_end]
        for sentence in range(len(sentences)):
            piece = next(pieces)
            texts.append(PlacedText(len(ids), len(piece), number, sentence))
            ids += [*piece, marks.sentence]
    row = encode.lay_out(ids, None, vocab, max_length=max_length, pooling=pooling)
    kept = [text for text in texts if text.start + text.length < room]
    return QuestionRow(
        replace(row, b_start=row.a_start + asked, question_cut=max(0, len(whole) - max_query)),
        [text._replace(start=text.start + row.a_start) for text in kept],
    )


def columns(rows: Sequence[QuestionRow]) -> list[tuple[int, int, int, int, int]]:
    """(row, position, tokens, paragraph, sentence) of each text in all rows."""
    return [(number, *text) for number, row in enumerate(rows) for text in row.texts]
