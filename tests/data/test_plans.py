import json

import numpy as np
import pytest

from plmctl.data import plans
from plmctl.data.formats.base import Plan
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.plans import cache_plan
from plmctl.data.reader import RowReader


@pytest.fixture
def folder(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "LARGE", 1)
    toy.folder = str(tmp_path)
    return tmp_path


def make(calls, size=5):
    def made():
        calls.append(size)
        return Plan(size, {"start": np.arange(size), "none": np.zeros(0, np.int8)}, {"cut": 3}, 7)

    return made


def same(one, two):
    assert (one.rows, one.report, one.width, set(one.arrays)) == (
        two.rows,
        two.report,
        two.width,
        set(two.arrays),
    )
    for name, array in one.arrays.items():
        assert np.array_equal(array, two.arrays[name])
        assert array.dtype == two.arrays[name].dtype


def test_a_plan_is_made_once(toy, folder):
    calls = []
    first = cache_plan(toy, ("a", 1), make(calls))
    same(cache_plan(toy, ("a", 1), make(calls)), first)
    assert calls == [5]
    cache_plan(toy, ("a", 2), make(calls))
    toy.fingerprint = "other"
    cache_plan(toy, ("a", 1), make(calls))
    assert calls == [5, 5, 5]
    assert not list(folder.glob("plans/.new-*"))


@pytest.mark.parametrize("damage", ["cut", "note", "gone", "shape"])
def test_a_damaged_plan_is_made_again(toy, folder, damage):
    calls = []
    cache_plan(toy, "a", make(calls))
    (place,) = folder.glob("plans/*")
    if damage == "cut":
        (place / "start.npy").write_bytes((place / "start.npy").read_bytes()[:-9])
    elif damage == "note":
        (place / "plan.json").write_text("{", encoding="utf-8")
    elif damage == "gone":
        (place / "start.npy").unlink()
    else:
        note = json.loads((place / "plan.json").read_text(encoding="utf-8"))
        note["arrays"]["start"] = 4
        (place / "plan.json").write_text(json.dumps(note), encoding="utf-8")
    made = make([])()
    same(cache_plan(toy, "a", make(calls)), made)
    same(cache_plan(toy, "a", make(calls)), made)
    assert calls == [5, 5]


def test_nothing_is_written_where_it_cannot_be_or_need_not(toy, folder, monkeypatch):
    calls = []
    (folder / "plans").write_text("a file in the way", encoding="utf-8")
    for _ in range(2):
        same(cache_plan(toy, "a", make(calls)), make([])())
    assert calls == [5, 5]
    (folder / "plans").unlink()
    monkeypatch.setattr(plans, "LARGE", len(toy.sentences) + 1)
    cache_plan(toy, "a", make(calls))
    toy.folder = str(folder / "absent")
    monkeypatch.setattr(plans, "LARGE", 1)
    cache_plan(toy, "a", make(calls))
    assert not list(folder.iterdir())


def test_an_interrupted_write_leaves_nothing(toy, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache_plan(toy, "a", make([]))
    assert not list((folder / "plans").iterdir())


def test_the_oldest_plans_go(toy, folder):
    calls = []
    many = toy.ids.nbytes // 8 // 4
    for key in range(6):
        cache_plan(toy, key, make(calls, many))
        cache_plan(toy, 0, make(calls, many))  # read again and again
    places = list(folder.glob("plans/*"))
    assert sum(f.stat().st_size for p in places for f in p.iterdir()) <= toy.ids.nbytes
    assert len(calls) == 6
    cache_plan(toy, 1, make(calls, many))
    assert len(calls) == 7


def test_a_reader_reads_the_same_with_kept_plans(toy, folder, vocab, monkeypatch):
    fmt = SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5)

    def rows(reader):
        return [reader.rows(epoch, reader.order(epoch)[:20]).seqs["text"].ids for epoch in (0, 1)]

    first = rows(RowReader(toy, fmt, seed=1, batch_size=4))
    assert list(folder.glob("plans/*"))
    with monkeypatch.context() as patched:
        patched.setattr(SentencePair, "plan", lambda *_, **__: pytest.fail("planned again"))
        again = rows(RowReader(toy, fmt, seed=1, batch_size=4))
    other = rows(
        RowReader(
            toy,
            SentencePair(vocab=vocab, max_length=32, short_rate=0.9, random_rate=0.5),
            seed=1,
            batch_size=4,
        )
    )
    for epoch in (0, 1):
        assert np.array_equal(first[epoch], again[epoch])
        assert not np.array_equal(first[epoch], other[epoch])
