"""Documents cut into rows at the ends of sentences, each row read by itself ("independent": Joshi
et al., 2019, arXiv:1908.09091, sec. 3), and the run of rows that one update trains on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.fields import Field
from plmctl.noise.base import Noise
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.words import Pieces, windows, word_pieces
from plmctl.tasks.record import Example, Examples

WORDS = Field("[n, M, 4]", "int", "first and last token of each word of a row, its sentence, its"
    " number in the document; -1 behind the last")  # fmt: skip
SPEAKERS = Field("[n, M]", "int", "number of the speaker of each word, 0 where it is not known")
CLUSTERS = Field("[n, G, 3]", "int", "first word in the row, words - 1, and cluster from 1 of each"
    " gold mention; -1 behind the last")  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """The words of a document that stand in one row: their pieces, sentences, and the number of the
    first.
    """

    pieces: Pieces
    sentences: list[int]
    first: int
    cut: int  # pieces of words that are longer than a row


def cut_document(sentences: Sequence[Pieces], room: int) -> list[Segment]:
    """As many whole sentences as fit into each segment of `room` pieces; a sentence that is longer
    is cut between words.
    """
    runs: list[tuple[int, Pieces]] = []  # pieces that stay together
    for number, pieces in enumerate(sentences):
        sizes = [min(len(word), room) for word in pieces]
        runs += [(number, pieces[first:last]) for first, last in windows(sizes, room)]
    lengths = [sum(min(len(word), room) for word in pieces) for _, pieces in runs]
    segments: list[Segment] = []
    done = 0
    for first, last in windows(lengths, room):
        pieces = [word for _, own in runs[first:last] for word in own]
        owners = [number for number, own in runs[first:last] for _ in own]
        kept = [word[:room] for word in pieces]
        cut = sum(map(len, pieces)) - sum(map(len, kept))
        segments.append(Segment(kept, owners, done, cut))
        done += len(pieces)
    return segments


def encode_documents(
    examples: Examples, tokenizer: Any, *, max_length: int, longest: int, joiner: str, pooling: str
) -> tuple[Rows, int]:
    """(the rows of all documents, those of one in a group; how many gold mentions are not among the
    spans of one sentence and row that have at most `longest` words).
    """
    room = max_length - encode.specials(tokenizer.vocab, pair=False)
    laid_out: list[encode.Row] = []
    owner: list[int] = []
    words: list[list[list[int]]] = []
    speakers: list[list[int]] = []
    clusters: list[list[list[int]]] = []
    lost = 0
    for number, example in enumerate(examples):
        pieces = [word_pieces(own, tokenizer, joiner=joiner) for own in example.fields["sentences"]]
        names = example.fields["speakers"]
        known = {name: n for n, name in enumerate(dict.fromkeys(names), 1) if name not in ("", "-")}
        segments = cut_document(pieces, room)
        for segment in segments:
            ids = [token for word in segment.pieces for token in word]
            row = encode.lay_out(ids, None, tokenizer.vocab, max_length=max_length, pooling=pooling)
            laid_out.append(replace(row, cut=segment.cut))
            owner.append(number)
            ends = row.a_start + np.cumsum([len(word) for word in segment.pieces])
            words.append(
                [
                    [int(end) - len(word), int(end) - 1, sentence, segment.first + place]
                    for place, (end, word, sentence) in enumerate(
                        zip(ends, segment.pieces, segment.sentences, strict=True)
                    )
                ]
            )
            own = names[segment.first : segment.first + len(segment.pieces)]
            speakers.append([known.get(name, 0) for name in own] or [0] * len(segment.pieces))
        placed, missed = _place(example, segments, longest)
        clusters, lost = clusters + placed, lost + missed
    rows = encode.group_rows(encode.pad(laid_out, tokenizer.vocab, example=owner))
    values = {"word_places": _fill(words, 4, -1), "speakers": encode.fill(speakers, spare=0)}
    if all(example.label is not None for example in examples):
        values["clusters"] = _fill(clusters, 3, -1)
    rows = encode.mark_anchors(encode.add_values(rows, **values))
    return rows, lost


def _place(
    example: Example, segments: Sequence[Segment], longest: int
) -> tuple[list[list[list[int]]], int]:
    """(the gold mentions of each row, how many are in none)."""
    placed: list[list[list[int]]] = [[] for _ in segments]
    begins = [segment.first for segment in segments]
    lost = 0
    for cluster, mentions in enumerate(example.label or (), 1):
        for first, last in mentions:
            number = int(np.searchsorted(begins, first, side="right")) - 1
            segment, start, end = segments[number], first - begins[number], last - begins[number]
            fits = end < len(segment.pieces) and last - first < longest
            if fits and segment.sentences[start] == segment.sentences[end]:
                placed[number].append([start, last - first, cluster])
            else:
                lost += 1
    return placed, lost


def _fill(lists: Sequence[Sequence[Sequence[int]]], width: int, spare: int) -> np.ndarray:
    """[n, K, width] of lists of up to K rows of numbers."""
    made = np.full((len(lists), max(1, *map(len, lists)), width), spare, dtype=np.int64)
    for number, own in enumerate(lists):
        if own:
            made[number, : len(own)] = own
    return made


class SegmentRun(Noise):
    """At most `most` rows of each document, one behind the other, of which the first is drawn anew
    in every epoch (Lee et al., 2017, sec. 5: documents are truncated at random in training).
    """

    changes = False

    def __init__(self, *, most: int) -> None:
        self.most = most

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        group = rows.values["group"]
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        sizes = np.diff(begins, append=len(group))
        spare = np.maximum(sizes - self.most, 0) + 1
        first = begins + draws.integers(rows.key[begins], "run", spare[:, None], 1)[:, 0]
        index = np.concatenate(
            [
                np.arange(start, start + min(size, self.most))
                for start, size in zip(first, sizes, strict=True)
            ]
        )
        is_first = np.diff(group[index], prepend=-1) != 0  # documents are in any order
        place = np.searchsorted(begins, index, side="right") - 1
        assert rows.anchors is not None
        return replace(
            rows,
            key=rows.key[index],
            seqs={name: _take(seq, index) for name, seq in rows.seqs.items()},
            anchors=np.stack([np.arange(len(index)), rows.anchors[index, 1]], axis=1),
            labels={
                name: np.where(is_first, label[begins][place], IGNORE)
                for name, label in rows.labels.items()
            },
            values={name: value[index] for name, value in rows.values.items()},
        )


def _take(seq: Seq, index: np.ndarray) -> Seq:
    tracks = {name: track[index] for name, track in seq.tracks.items()}
    return replace(seq, ids=seq.ids[index], length=seq.length[index], tracks=tracks)
