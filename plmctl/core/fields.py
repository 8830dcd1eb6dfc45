"""The names of the contents of a `Rows` or `Batch`: each has a `Field`, stated by the part that
introduces it.

    "text"               a sequence            "targets.mlm"    labels beside a sequence
    "tracks.segment"     beside a sequence     "labels.pair"    labels of anchors
    "spans.chosen"       runs of tokens        "values.prefix"  one number for each row

The glossary of the repository is the union over its parts: `plmctl help fields` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Field:
    """The values under a name.

    Args:
        shape: in the letters of `plmctl.core.batch`, such as "[n, T]".
        dtype: The type of its numbers, such as "int"; "Seq" for a sequence.
        meaning: in one sentence.
        input: Whether a network reads the sequence and noise changes it.
        tokens: Whether the numbers of targets are ids of tokens.
        hidden: Whether noise has hidden the tokens that the targets predict.
        of: The sequence to which it belongs; "" is the input.
        lines: in a preview, a number at each token, only where it changes, or no line at all.
        stored: Whether the token directory may hold the spans or tracks.
        without: A setting that helps if no part gives the field, instead of another part.
    """

    shape: str
    dtype: str
    meaning: str
    input: bool = False
    tokens: bool = False
    hidden: bool = False
    of: str = ""
    lines: Literal["each", "changes", "none"] = "changes"
    stored: bool = False
    without: str = ""

    @property
    def words(self) -> str:
        """Shape, type and meaning, as messages show them."""
        shape = f"{self.shape} " if self.shape else ""
        return f"{shape}{self.dtype}: {self.meaning}"


Fields = Mapping[str, Field]

# fields that parts of several rooms lay out and read; every other name is a part's own
COMMON: Fields = {
    "text": Field("", "Seq", "the sequence an encoder or decoder reads", input=True),
    "source": Field("", "Seq", "the input of an encoder-decoder", input=True),
    "target": Field("", "Seq", "the output of an encoder-decoder"),
    "anchors": Field(
        "[N, 2]", "int", "row and position of the tokens that stand for (a part of) a row"
    ),
    "tracks.segment": Field(
        "[n, T]", "int", "0 for the first segment with its specials, 1 for the second"
    ),
    "tracks.document": Field(
        "[n, T]",
        "int",
        "number of the document inside a packed row; tokens see only their own document",
    ),
    "tracks.position": Field(
        "[n, T]",
        "int",
        "position of the token, where it is not simply 0..T-1 (packed rows restart)",
        lines="none",
    ),
    "tracks.word_start": Field("[n, T]", "bool", "the token begins a word", lines="none"),
    "tracks.words": Field(
        "[n, T]", "int", "words of the text that the token stands for", lines="none"
    ),
    "values.words_read": Field("[n]", "int", "words of the text of the row"),
    "tracks.sentence": Field(
        "[n, T]",
        "int",
        "number of the sentence inside the row (specials: of the nearest one; padding: -1)",
    ),
    "tracks.global": Field(
        "[n, T]",
        "int",
        "1 for a token that sees all and that all see (Longformer), else 0",
        without="pattern.parts.1.tokens=1, the first token of a row; only tasks name others",
    ),
    "tracks.language": Field("[n, T]", "int", "number of the token's language (translation LM)"),
    "tracks.real": Field(
        "[n, T]",
        "bool",
        "not padding, where padding is not simply what follows `length`",
        lines="none",
    ),
    "targets.clm": Field(
        "[n, T]", "int", "id of the next token of the same document, or IGNORE", tokens=True
    ),
    "targets.backward": Field(
        "[n, T]",
        "int",
        "id of the token before: of `reverse` where there is one, else of `text`; IGNORE where"
        " none is",
        tokens=True,
    ),
    "targets.seq2seq": Field(
        "[n, T]",
        "int",
        "id of the token of the target that is written here, IGNORE at padding",
        tokens=True,
        of="target",
    ),
    "values.draw": Field(
        "[n]",
        "int",
        "number from which draws of the network begin: a hash of seed, epoch and row",
        lines="none",
    ),
    "values.cut": Field("[n]", "int", "tokens of the example that max_length left no room for"),
    "values.question_cut": Field("[n]", "int", "tokens of its question beyond max_query"),
}


def fields_of(part: object) -> dict[str, Field]:
    """The fields that a part or its class introduces: its own `fields` and those of its bases."""
    lineage = part.__mro__ if isinstance(part, type) else type(part).__mro__
    found: dict[str, Field] = {}
    for each in (*reversed([vars(base) for base in lineage]), getattr(part, "__dict__", {})):
        own = each.get("fields")
        if isinstance(own, Mapping):
            found |= own
    return found


def glossary(parts: Iterable[object] = ()) -> dict[str, Field]:
    """Every field that `parts` introduce, and the fields that all share."""
    found: dict[str, Field] = dict(COMMON)
    for part in parts:
        found |= fields_of(part)
    return found


def held_by_data(name: str, known: Fields) -> bool:
    """Whether a field may come from the token directory: spans and tracks of which no part says
    that they are made.
    """
    if name.partition(".")[0] not in ("tracks", "spans"):
        return False
    return name not in known or known[name].stored


def sequences(names: Iterable[str], known: Fields) -> set[str]:
    """Those of `names` that are sequences."""
    return {name for name in names if name in known and known[name].dtype == "Seq"}
