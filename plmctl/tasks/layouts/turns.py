"""The turns of a conversation before a question."""

from __future__ import annotations

from typing import Any

from plmctl.tasks.record import Example

TYPED = (
    "questions that you type, one a line: question, answer, ..., question and passage, with tabs"
    " between them"
)


def encode_turns(example: Example, tokenizer: Any, *, turns: int, most: int) -> list[int]:
    """The last `most` tokens of the last `turns` questions and answers before a question, which
    stand in `history` one after the other.
    """
    said = example.fields["history"]
    texts = said[max(0, len(said) - 2 * turns) :]
    tokens = [token for text in texts for token in tokenizer.encode(text)]
    return tokens[max(0, len(tokens) - most) :]


def parse_turns(line: str, number: int) -> Example:
    """A line in the form of `TYPED` as an example without an answer; else ValueError."""
    *said, context = line.split("\t")
    if len(said) % 2 == 0:
        found = len(said) + 1
        raise ValueError(
            "question <tab> answer <tab> ... question <tab> passage is needed, found"
            f" {found} columns"
        )
    fields = {"question": said[-1], "context": context, "history": said[:-1], "answers": []}
    return Example(str(number - 1), fields, place=f"line {number}")
