"""Rows with words, segments and marked spans, and what the tests of masking ask of noised rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from tests.noise.plain_rows import make_rows


def worded(
    n: int, width: int, *, lengths: list[int] | None = None, seed: int = 0, documents: bool = False
) -> Rows:
    """Rows of `make_rows` with tracks.word_start, tracks.segment (sep at two thirds of each
    document) and spans.entity.
    """
    rows = make_rows(n, width, lengths=lengths, seed=seed, documents=documents)
    rng, seq = np.random.default_rng(seed + 1), rows.seqs["text"]
    ids, segment = seq.ids.copy(), np.zeros(seq.ids.shape, np.int32)
    document = seq.tracks.get("document", np.where(seq.real, 0, -1))
    for r in range(n):
        for d in range(document[r].max() + 1):
            place = np.flatnonzero(document[r] == d)
            if len(place) > 6:
                ids[r, place[len(place) * 2 // 3]] = 3
                segment[r, place[len(place) * 2 // 3 + 1 :]] = 1
    start = ids < 10
    start |= rng.random(ids.shape) < 0.7
    spans = []
    for r in range(n):
        at = 1
        while at + 4 < seq.length[r]:
            size = int(rng.integers(1, 5))
            inside = ids[r, at : at + size]
            if (
                rng.random() < 0.3
                and (inside >= 10).all()
                and len(set(document[r, at : at + size])) == 1
            ):
                spans.append((r, at, size, int(rng.integers(100))))
            at += size + 1
    table = np.array(spans, np.int64).reshape(-1, 4)
    seq = replace(seq, ids=ids).with_tracks(word_start=start, segment=segment)
    return replace(rows.with_seq("text", seq), spans={"entity": table})


def one_long_word(rows: Rows, row: int, first: int, last: int) -> Rows:
    """The same rows, with one word from `first` to `last`."""
    seq = rows.seqs["text"]
    start = seq.tracks["word_start"].copy()
    start[row, first], start[row, first + 1 : last + 1] = True, False
    return rows.with_seq("text", seq.with_tracks(word_start=start))


def some(rows: Rows, part: np.ndarray) -> Rows:
    """Only the rows `part`, in that order."""
    number = {old: new for new, old in enumerate(part.tolist())}
    seqs = {
        name: replace(
            s,
            ids=s.ids[part],
            length=s.length[part],
            tracks={k: v[part] for k, v in s.tracks.items()},
        )
        for name, s in rows.seqs.items()
    }
    spans = {}
    for name, table in rows.spans.items():
        kept = [(number[row], *rest) for row, *rest in table.tolist() if row in number]
        spans[name] = np.array(sorted(kept), np.int64).reshape(-1, table.shape[1])
    return replace(rows, key=rows.key[part], seqs=seqs, spans=spans)


def chosen_of(rows: Rows) -> np.ndarray:
    """[n, T] bool: asked by targets.mlm."""
    return rows.targets["mlm"] != IGNORE


def words_of(rows: Rows, row: int) -> list[list[int]]:
    """The ordinary words of a row: a word begins at a word start, after a special token, and
    where a document begins.
    """
    seq = rows.seqs["text"]
    document, found = seq.tracks.get("document"), []
    for at in range(int(seq.length[row])):
        if seq.ids[row, at] < 10:
            continue
        fresh = at == 0 or seq.ids[row, at - 1] < 10 or seq.tracks["word_start"][row, at]
        if document is not None and at and document[row, at] != document[row, at - 1]:
            fresh = True
        if fresh:
            found.append([])
        found[-1].append(at)
    return found
