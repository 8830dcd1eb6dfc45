"""Streams that keep their slots, and a loader that is killed at ten places."""

import multiprocessing
import time

import numpy as np
import pytest

from plmctl.data.formats.segments import Segments
from plmctl.data.loader import Loader, RowSource
from plmctl.data.reader import RowReader

torch = pytest.importorskip("torch")
from tests.data import killed_loader  # noqa: E402

STREAMS = 12


def make_loader(shards, vocab, *, micro, world=1, rank=0):
    fmt = Segments(vocab=vocab, max_length=10, streams=STREAMS, shuffled=False)
    return Loader(
        {
            "text": RowSource(
                RowReader(shards, fmt, seed=1, batch_size=STREAMS, world=world, rank=rank)
            )
        },
        micro_batch_size=micro,
    )


def read(loader, updates):
    """For each update and slot: the tokens of each row, and whether it goes on."""
    with loader:
        return [
            [
                [
                    row[:n]
                    for row, n in zip(b.text.ids.tolist(), b.text.length.tolist(), strict=True)
                ],
                b.values["continues"].tolist(),
            ]
            for _ in range(updates)
            for b in next(loader)
        ]


@pytest.mark.parametrize(("world", "micro"), [(1, 12), (1, 5), (2, 6), (3, 4), (3, 2)])
def test_streams_keep_their_slot_whatever_the_ranks_and_micro_batches(toy, vocab, world, micro):
    """Row b of a rank's slot s is the same part of the corpus in every update of an epoch, read
    from its start to its end.
    """
    reader = make_loader(toy, vocab, micro=micro).sources["text"].reader
    steps = reader.plan(0).rows // STREAMS
    text = [
        token
        for document in toy.texts()
        for sentence in document
        for token in sentence + ([5] if sentence is document[-1] else [])
    ]
    part = len(text) // STREAMS
    found = []  # the stream of each row
    for rank in range(world):
        slots = -(-STREAMS // world // micro)
        batches = read(make_loader(toy, vocab, micro=micro, world=world, rank=rank), steps)
        for slot in range(slots):
            mine = batches[slot::slots]
            assert [any(goes_on) for _, goes_on in mine] == [False, *[True] * (steps - 1)]
            found += [
                [token for rows, _ in mine for token in rows[b]] for b in range(len(mine[0][0]))
            ]
    assert found == [text[b * part : (b + 1) * part] for b in range(STREAMS)]


def test_streams_resume_in_the_middle_and_begin_again_together(toy, vocab):
    whole = read(make_loader(toy, vocab, micro=6), 150)
    steps = make_loader(toy, vocab, micro=6).sources["text"].reader.plan(0).rows // STREAMS
    assert 5 < steps < 70
    for done in (1, steps - 1, steps, steps + 3):
        first = make_loader(toy, vocab, micro=6)
        for _ in range(done):
            next(first)
        again = make_loader(toy, vocab, micro=6)
        again.load_state_dict(first.state_dict())
        first.close()
        assert read(again, 8) == whole[2 * done : 2 * done + 16]
    assert [any(goes_on) for _, goes_on in whole[2 * steps - 2 : 2 * steps + 3]] == [
        True,
        True,
        False,
        False,
        True,
    ]


def lines(folder):
    """{update: {what its batches hashed to}} of the whole lines of all processes."""
    found = {}
    for line in (folder / "digests.txt").read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            number, _, digests = line.strip().partition(" ")
            found.setdefault(int(number), set()).add(digests)
    return found


@pytest.mark.slow  # test_streams_resume_in_the_middle_and_begin_again_together stays
@pytest.mark.parametrize("kills", [3, 10])
def test_killed_at_several_places_the_batches_are_the_same(tmp_path, kills):
    """SIGKILL; each process goes on from the state its predecessor saved last, so some updates
    are read several times.
    """
    updates, context = 72, multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "tests.data.killed_loader"])
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    killed_loader.main(tmp_path / "whole", updates, 0.0)
    killed, reached = tmp_path / "killed", []
    for place in np.linspace(3, updates - 6, kills).astype(int):
        child = context.Process(target=killed_loader.main, args=(killed, updates, 0.01))
        child.start()
        while child.is_alive() and not (
            (killed / "digests.txt").exists() and max(lines(killed), default=-1) >= place
        ):
            time.sleep(0.002)
        child.kill()
        child.join()
        assert child.exitcode == -9
        reached.append(max(lines(killed)))
    assert len(set(reached)) == kills
    killed_loader.main(killed, updates, 0.0)
    assert lines(killed) == lines(tmp_path / "whole")
    assert sorted(lines(killed)) == list(range(updates))
    # what was lost was read again
    assert len((killed / "digests.txt").read_text().splitlines()) > updates
