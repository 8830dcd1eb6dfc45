"""Rows in which every token knows where it came from, and what must hold of them whatever noise
moved it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.text.vocab import Vocab

# ids from FIRST on are ordinary
PAD, UNK, CLS, SEP, MASK, EOS, FIRST, SIZE = 0, 1, 2, 3, 4, 5, 200, 1000


def make_vocab(**changes) -> Vocab:
    special = (np.arange(SIZE) < FIRST) & (np.arange(SIZE) != UNK)
    given = {
        "size": SIZE,
        "pad": PAD,
        "unk": UNK,
        "cls": CLS,
        "sep": SEP,
        "mask": MASK,
        "bos": None,
        "eos": EOS,
    }
    tables = {"special": special, "word_start": special, "sentinels": tuple(range(199, 99, -1))}
    return Vocab(**(given | tables | changes))


def make_rows(
    n: int,
    width: int,
    *,
    seed: int = 0,
    packed: bool = False,
    short: bool = False,
    frame: bool = True,
    mean_word: float = 1.6,
) -> Rows:
    """Rows `cls ... sep` (`packed`: up to five such documents), with all tracks, spans and anchors
    a row can have.

    `tracks.origin` is the number of the token's slot, `tracks.word_start` and `tracks.sentence` are
    random.
    """
    rng = np.random.default_rng(seed)
    length = rng.integers(max(4, width // 3), width + 1, n) if short else np.full(n, width)
    real = np.arange(width) < length[:, None]
    ids = np.where(real, rng.integers(FIRST, SIZE, (n, width)), PAD).astype(np.int32)
    document = np.where(real, 0, -1).astype(np.int32)
    for r in range(n):
        cuts = np.unique(rng.integers(3, max(4, length[r] - 2), 4)) if packed else []
        document[r, : length[r]] = np.searchsorted(cuts, np.arange(length[r]), side="right")
    begins = np.ones((n, width), bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    ends = np.ones((n, width), bool)
    ends[:, :-1] = begins[:, 1:]
    if frame:
        ids[begins & real], ids[ends & real] = CLS, SEP
    column = np.arange(width)
    tracks = {
        "word_start": (rng.random((n, width)) < 1 / mean_word) | (ids < FIRST),
        "sentence": np.cumsum((rng.random((n, width)) < 0.1) | begins, axis=1).astype(np.int32),
        "origin": np.arange(n * width).reshape(n, width),
    }
    if packed:
        tracks["document"] = document
        tracks["position"] = column - np.maximum.accumulate(np.where(begins, column, 0), axis=1)
    spans = [
        (r, int(a), int(k), i)
        for r in range(n)
        for i, (a, k) in enumerate(
            zip(range(1, length[r] - 4, 5), rng.integers(1, 4, width), strict=False)
        )
        if (document[r, a : a + k] == document[r, a]).all() and (ids[r, a : a + k] >= FIRST).all()
    ]
    anchors = np.argwhere(begins & real)
    return Rows(
        key=np.arange(n) * 7 + 3,
        seqs={"text": Seq(ids, length, tracks)},
        anchors=anchors,
        labels={"class": np.arange(len(anchors))},
        spans={"entity": np.array(spans, np.int64).reshape(-1, 4)},
    )


def some(rows: Rows, part: np.ndarray) -> Rows:
    """The rows `part`, as a batch of their own."""
    place = {int(r): i for i, r in enumerate(part)}

    def cut(seq: Seq) -> Seq:
        return replace(
            seq,
            ids=seq.ids[part],
            length=seq.length[part],
            tracks={k: x[part] for k, x in seq.tracks.items()},
        )

    def table(x: np.ndarray) -> np.ndarray:
        lines = sorted(
            (place[int(line[0])], *line[1:].tolist()) for line in x if int(line[0]) in place
        )
        return np.array(lines, np.int64).reshape(-1, x.shape[1])

    held = np.array([int(r) in place for r in rows.anchors[:, 0]])
    lines = np.flatnonzero(held)[
        np.argsort([place[int(r)] for r in rows.anchors[held, 0]], kind="stable")
    ]
    anchors = rows.anchors[lines].copy()
    anchors[:, 0] = [place[int(r)] for r in anchors[:, 0]]
    return replace(
        rows,
        key=rows.key[part],
        seqs={k: cut(x) for k, x in rows.seqs.items()},
        targets={k: x[part] for k, x in rows.targets.items()},
        spans={k: table(x) for k, x in rows.spans.items()},
        anchors=anchors,
        labels={k: x[lines] for k, x in rows.labels.items()},
        values={k: x[part] for k, x in rows.values.items()},
    )


def numbered(rows: Rows) -> Rows:
    """The rows with `tracks.origin` counted afresh."""
    seq = rows.seqs["text"]
    return rows.with_seq(
        "text", seq.with_tracks(origin=np.arange(seq.ids.size).reshape(seq.ids.shape))
    )


def assert_equal_rows(one: Rows, two: Rows) -> None:
    """Every array of both is the same."""
    assert one.seqs.keys() == two.seqs.keys()
    for name, seq in one.seqs.items():
        other = two.seqs[name]
        np.testing.assert_array_equal(seq.ids, other.ids)
        np.testing.assert_array_equal(seq.length, other.length)
        assert seq.tracks.keys() == other.tracks.keys()
        for track, x in seq.tracks.items():
            real = np.arange(x.shape[1]) < seq.length[:, None]
            np.testing.assert_array_equal(x[real], other.tracks[track][real])
    for group in ("targets", "spans", "labels", "values"):
        for name, x in getattr(one, group).items():
            np.testing.assert_array_equal(x, getattr(two, group)[name])
    np.testing.assert_array_equal(one.anchors, two.anchors)


def check_moved(before: Seq, after: Seq, new: frozenset[int]) -> None:
    """Tokens of `after`, except `new` ids, are those of `before` at their origin, with their
    tracks, row and document.
    """
    width = before.ids.shape[1]
    real = np.arange(after.ids.shape[1]) < after.length[:, None]
    assert (after.ids[~real] == PAD).all()
    moved = real & ~np.isin(after.ids, list(new))
    origin = after.tracks["origin"][moved]
    np.testing.assert_array_equal(after.ids[moved], before.ids.ravel()[origin])
    np.testing.assert_array_equal(np.nonzero(moved)[0], origin // width)
    assert len(np.unique(origin)) == len(origin)
    for name in set(before.tracks) - {"position", "origin"}:
        np.testing.assert_array_equal(
            after.tracks[name][moved], before.tracks[name].ravel()[origin], err_msg=name
        )
    for ids, length, given in zip(after.ids, after.length, before.ids, strict=True):
        frame = [t for t in ids[:length].tolist() if t in (CLS, SEP)]
        assert frame == [t for t in given.tolist() if t in (CLS, SEP)]
    if "document" in before.tracks:
        document = after.tracks["document"]
        assert (document[~real] == -1).all()
        assert all((np.diff(d[:k]) >= 0).all() for d, k in zip(document, after.length, strict=True))
        for r in range(len(document)):
            for d in set(document[r, : after.length[r]].tolist()):
                place = np.flatnonzero(document[r] == d)
                np.testing.assert_array_equal(
                    after.tracks["position"][r, place], np.arange(len(place))
                )


def check_followed(
    before: Rows, after: Rows, name: str, new: frozenset[int], *, strict: bool = True
) -> None:
    """Spans and anchors stand where their tokens went, and (`strict`) all spans are there whose
    tokens stayed together.
    """
    seq, width = after.seqs[name], before.seqs["text"].ids.shape[1]
    moved = (np.arange(seq.ids.shape[1]) < seq.length[:, None]) & ~np.isin(seq.ids, list(new))
    place = {int(seq.tracks["origin"][r, c]): (int(r), int(c)) for r, c in np.argwhere(moved)}
    together = []
    for r, a, k, i in before.spans["entity"].tolist():
        found = [place.get(r * width + a + step) for step in range(k)]
        if found[0] and found == [(r, found[0][1] + step) for step in range(k)]:
            together.append([r, found[0][1], k, i])
    spans = after.spans["entity"].tolist()
    assert spans == sorted(spans)
    assert not strict or all(x in spans for x in together)
    given = {(r, i): (a, k) for r, a, k, i in before.spans["entity"].tolist()}
    for r, a, k, i in spans:  # a token that shows the mask is still in its place
        origin = seq.tracks["origin"][r, a : a + k] - r * width
        assert (origin[0], k) == given[r, i]
        assert (np.diff(origin) == 1).all()
    anchors = [place[r * width + c] for r, c in before.anchors.tolist()]  # on cls: it never leaves
    assert [tuple(x) for x in after.anchors.tolist()] == anchors
    np.testing.assert_array_equal(after.labels["class"], before.labels["class"])
