"""From token ids to rows: special tokens around one or two segments, truncation that is counted,
padding to the longest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.text.vocab import Vocab


@dataclass(frozen=True)
class Row:
    """One laid-out row: its ids, the starts of segments A and B, the token that stands for the
    whole. It also counts the cut tokens, and those of a question before.
    """

    ids: list[int]
    a_start: int
    b_start: int | None  # B is segment 1, and so is all that follows
    anchor: int
    cut: int = 0
    question_cut: int = 0


def specials(vocab: Vocab, *, pair: bool) -> int:
    """How many tokens of a row the template itself takes."""
    template = vocab.pair if pair else vocab.single
    return len(template) - template.count("A") - template.count("B")


def lay_out(
    a: Sequence[int], b: Sequence[int] | None, vocab: Vocab, *, max_length: int, pooling: str
) -> Row:
    """Segment A (and B) within the tokenizer's template, at most `max_length` tokens.

    `pooling="first"`: the `cls` token stands for the row (BERT, RoBERTa), or without one `bos`
    (XLM); it is the anchor of `"mean"`, too, for which all tokens stand. `"last"`: the last token
    does, the only one that has seen all the others under a causal pattern (GPT's extract token:
    Radford et al., 2018, sec. 3.3). If the padding is the same token (GPT-2), it is the last one
    before the padding, as the published classifiers expect. If a language follows `eos` (mBART),
    they expect `eos`.
    """
    room = max_length - specials(vocab, pair=b is not None)
    if room < 2:
        allowed = f"too short for {max_length - room} special tokens and any text"
        raise ConfigError("task.max_length", max_length, allowed)
    keep_a, keep_b = longest_first(len(a), len(b) if b is not None else 0, room)
    ids: list[int] = []
    a_start, b_start = 0, None
    places: dict[str, int] = {}  # the last one of each role
    for role in vocab.pair if b is not None else vocab.single:
        if role == "A":
            a_start = len(ids)
            ids.extend(a[:keep_a])
        elif role == "B" and b is not None:
            b_start = len(ids)
            ids.extend(b[:keep_b])
        else:
            places[role] = len(ids)
            ids.append(vocab.id(role))
    if not ids:  # an empty text and a template without specials
        ids.append(vocab.unk if vocab.unk is not None else vocab.pad)
    roles = [role for role in ("eos", "sep") if getattr(vocab, role) == vocab.eos != vocab.pad]
    roles = ["cls", "bos"] if pooling != "last" else roles
    anchor = next((places[role] for role in roles if role in places), _last(ids, vocab.pad))
    return Row(
        ids,
        a_start,
        b_start,
        anchor,
        cut=len(a) - keep_a + (len(b) - keep_b if b is not None else 0),
    )


def _last(ids: Sequence[int], pad: int) -> int:
    """The position of the last token that is not padding; 0 if all are."""
    return max((position for position, token in enumerate(ids) if token != pad), default=0)


def longest_first(a: int, b: int, room: int) -> tuple[int, int]:
    """Lengths after taking tokens off the end of the longer segment, of B on ties, until both fit
    into `room`.

    Closed form of the loop in BERT's `_truncate_seq_pair` (Devlin et al., 2019, run_classifier).
    """
    keep_b = min(b, max(room // 2, room - a))
    return min(a, room - keep_b), keep_b


def pad(laid_out: Iterable[Row], vocab: Vocab, *, example: Sequence[int] | np.ndarray) -> Rows:
    """`Rows` of all `laid_out`, padded to the longest; `example[i]` is the number of the example
    that row i comes from. Rows may be made lazily: 4 bytes a token are stored.
    """
    tokens, numbers = array("i"), array("q")
    for row in laid_out:
        tokens.extend(row.ids)
        b_start = len(row.ids) if row.b_start is None else row.b_start
        numbers.extend((len(row.ids), b_start, row.anchor, row.cut, row.question_cut))
    length, second, anchor, cut, asked = np.array(numbers, dtype=np.int64).reshape(-1, 5).T.copy()
    place = np.arange(int(length.max()))
    real = place < length[:, None]
    ids = np.full(real.shape, vocab.pad, dtype=np.int32)
    ids[real] = np.frombuffer(tokens, dtype=np.int32)
    segment = (real & (place >= second[:, None])).astype(np.uint8)
    if vocab.single[-1] == "cls":  # XLNet's, a segment of its own
        segment[np.arange(len(length)), length - 1] = 2
    number = np.arange(len(length), dtype=np.int64)
    return Rows(
        key=number,
        seqs={"text": Seq(ids, length, {"segment": segment})},
        anchors=np.array([number, anchor]).T.copy(),
        values={
            "example": np.asarray(example, dtype=np.int64),
            "cut": cut,
            **({"question_cut": asked} if asked.any() else {}),
        },
    )


def fill(lists: Sequence[Sequence[int]], *, spare: int) -> np.ndarray:
    """[n, K] int64 of lists of up to K numbers, `spare` behind the last."""
    filled = np.full((len(lists), max(1, *map(len, lists))), spare, dtype=np.int64)
    for number, own in enumerate(lists):
        filled[number, : len(own)] = own
    return filled


def refuse_causal(sees: bool, why: str, *, fix: str = "a checkpoint of an encoder") -> None:
    """ConfigError for a model of which not every token `sees` those behind it."""
    if not sees:
        allowed = f"a model whose tokens see later ones: {why}"
        raise ConfigError("pattern", "causal", allowed, fix=fix)


def mark_global(rows: Rows, marked: np.ndarray) -> Rows:
    """`rows` whose global tokens are the `marked [n | 1, T]` positions of the text that is read."""
    read = rows.seqs[rows.input]
    marks = marked.astype(np.uint8)
    if marks.shape != read.ids.shape:
        marks = np.broadcast_to(marks, read.ids.shape)
    return rows.with_seq(rows.input, read.with_tracks(**{"global": marks}))


def mark_anchors(rows: Rows) -> Rows:
    """`rows` whose global tokens are the ones of their anchors (Beltagy et al., 2020,
    arXiv:2004.05150, sec. 6.1).
    """
    assert rows.anchors is not None
    positions = np.arange(rows.seqs[rows.input].ids.shape[1])
    return mark_global(rows, positions == rows.anchors[:, 1:])


def add_values(rows: Rows, **values: np.ndarray) -> Rows:
    """`rows` with further values."""
    return replace(rows, values={**rows.values, **values})


def group_rows(rows: Rows) -> Rows:
    """`rows` with values.group, so that all of an example stay in one batch."""
    return replace(rows, values={**rows.values, "group": rows.values["example"]})


def firsts(rows: Rows) -> np.ndarray:
    """The number of the first row of every example."""
    example = rows.values["example"]
    if len(example) == 1:  # a stream of single texts
        return np.zeros(1, np.int64)
    return np.unique(example, return_index=True)[1]


def take_firsts(rows: Rows, values: np.ndarray) -> np.ndarray:
    """`values` [n, ...] of the first row of every example; themselves where each has one row."""
    first = firsts(rows)
    return values if np.array_equal(first, np.arange(len(values))) else values[first]


def add_labels(rows: Rows, labels: dict[str, np.ndarray]) -> Rows:
    """`rows` with one label an example, at the first of its rows; IGNORE at the others where it
    has several.
    """
    if "group" in rows.values:
        first = firsts(rows)
        wide = {
            name: np.full((len(rows.key), *label.shape[1:]), IGNORE, label.dtype)
            for name, label in labels.items()
        }
        for name, label in labels.items():
            wide[name][first] = label
        labels = wide
    return replace(rows, labels={**rows.labels, **labels})
