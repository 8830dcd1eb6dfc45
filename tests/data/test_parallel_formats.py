"""prefix, seq2seq and text_pair: rows of two texts, from parallel text or from plain text."""

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.prefix import Prefix
from plmctl.data.formats.seq2seq import Seq2Seq
from plmctl.data.formats.text_pair import TextPair

CLS, SEP, EOS = 2, 3, 5


@pytest.fixture
def parallel(shards_of):
    rng = np.random.default_rng(0)
    made = shards_of(
        [list(pair) for pair in rng.integers(1, 30, (80, 2)).tolist()] + [[0, 5], [40, 3], [4, 60]]
    )
    made.pairs = True
    return made


def laid(fmt, shards, length=None):
    plan = fmt.plan(shards, seed=1, epoch=0, input_length=length or fmt.max_length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


def real(seq):
    return [ids[:n].tolist() for ids, n in zip(seq.ids, seq.length, strict=True)]


def accounted(plan):
    report = plan.report
    assert (
        report["tokens"] + report["repeated"]
        == report["laid_out"] + report["cut"] + report["dropped"]
    )
    assert report["laid_out"] + report["specials"] + report["padding"] == plan.rows * plan.width


def test_prefix_of_parallel_text(parallel, vocab):
    plan, rows = laid(
        Prefix(vocab=vocab, max_length=40, short_rate=0.0, target_length=20), parallel
    )
    wanted = []
    for a, b in parallel.texts():
        if a and b:
            b = b[:20]
            wanted.append([CLS, *a[: 37 - len(b)], SEP, *b, SEP])
    assert real(rows.seqs["text"]) == wanted
    assert rows.values["prefix"].tolist() == [row.index(SEP) + 1 for row in wanted]
    segment = rows.seqs["text"].tracks["segment"]
    assert [s[: len(w)].tolist() for s, w in zip(segment, wanted, strict=True)] == [
        [0] * (w.index(SEP) + 1) + [1] * (len(w) - w.index(SEP) - 1) for w in wanted
    ]
    accounted(plan)
    assert plan.report["dropped"] == 5
    assert plan.report["cut"] > 0


def test_prefix_of_plain_text_is_text_that_goes_on(random_shards_of, vocab):
    shards = random_shards_of(60)
    document = np.repeat(np.arange(60), np.diff(shards.sentences[shards.documents]))
    fmt = Prefix(vocab=vocab, max_length=60, short_rate=0.1, target_length=20)
    plan, rows = laid(fmt, shards)
    accounted(plan)
    for ids, prefix in zip(real(rows.seqs["text"]), rows.values["prefix"], strict=True):
        a, b = np.array(ids[1 : prefix - 1]) - 10, np.array(ids[prefix:-1]) - 10
        assert ids[prefix - 1] == SEP
        assert a[-1] < b[0]
        assert document[a[0]] == document[b[-1]]
    lone = sum(sum(map(len, d)) for d in shards.texts() if len(d) == 1)
    assert plan.report["dropped"] >= lone > 0
    assert plan.report["repeated"] == 0
    other = fmt.plan(shards, seed=1, epoch=1, input_length=60)
    assert not np.array_equal(plan.arrays["start"], other.arrays["start"])


@pytest.mark.parametrize("truncated", [True, False])
def test_seq2seq(parallel, vocab, truncated):
    fmt = Seq2Seq(
        vocab=vocab,
        max_length=22,
        target_length=15,
        truncated=truncated,
        source_template=["A", "eos"],
        target_template=None,
    )
    plan, rows = laid(fmt, parallel, 20)
    wanted = [
        (a, b)
        for a, b in parallel.texts()
        if a and b and (truncated or (len(a) <= 19 and len(b) <= 13))
    ]
    assert real(rows.seqs["source"]) == [[*a[:19], EOS] for a, _ in wanted]
    assert real(rows.seqs["target"]) == [[CLS, *b[:13], SEP] for _, b in wanted]
    assert rows.seqs["source"].ids.shape[1] == 20
    assert rows.seqs["target"].ids.shape[1] == 15
    assert rows.input == "source"
    accounted(plan)
    assert (plan.report["cut"] > 0) == truncated
    some = fmt.rows(parallel, plan, np.array([4, 0]))
    assert np.array_equal(some.seqs["target"].ids, rows.seqs["target"].ids[[4, 0]])


@pytest.mark.parametrize("packed", [True, False])
def test_text_pair(parallel, vocab, packed):
    fmt = TextPair(vocab=vocab, max_length=50, packed=packed)
    plan, rows = laid(fmt, parallel)
    accounted(plan)
    wanted = [
        [CLS, *a, SEP, CLS, *b, SEP]
        for a, b in parallel.texts()
        if a and b and len(a) + len(b) <= 46
    ]
    seq, found = rows.seqs["text"], []
    for row in range(plan.rows):
        document = seq.tracks["document"][row] if packed else np.where(seq.real[row], 0, -1)
        for number in range(document.max() + 1):
            inside = np.flatnonzero(document == number)
            ids = seq.ids[row, inside].tolist()
            turn = ids.index(SEP) + 1
            positions = [*range(turn), *range(len(ids) - turn)]
            assert seq.tracks["position"][row, inside].tolist() == positions
            assert seq.tracks["language"][row, inside].tolist() == [0] * turn + [1] * (
                len(ids) - turn
            )
            found.append(ids)
    assert sorted(found) == sorted(wanted)
    assert plan.rows == len(wanted) or packed
    assert ("document" in seq.tracks) == packed == ("tracks.document" in fmt.provides)


def test_languages_of_the_token_directory_come_first(parallel, vocab):
    number = np.repeat(np.arange(len(parallel.sentences) - 1), np.diff(parallel.sentences))
    parallel.tracks["language"] = (number % 2 * 3 + 4).astype(np.int32)
    _, rows = laid(TextPair(vocab=vocab, max_length=50, packed=False), parallel)
    seq = rows.seqs["text"]
    turn = (seq.ids == SEP).argmax(1)[:, None]
    column = np.arange(50)
    assert (seq.tracks["language"][seq.real & (column <= turn)] == 4).all()
    assert (seq.tracks["language"][seq.real & (column > turn)] == 7).all()


def test_plain_text_is_refused(toy, vocab):
    for fmt in (
        Seq2Seq(vocab=vocab, max_length=20, target_length=20, truncated=True),
        TextPair(vocab=vocab, max_length=50, packed=True),
    ):
        with pytest.raises(DataError, match="parallel text"):
            fmt.plan(toy, seed=0, epoch=0, input_length=fmt.max_length)
    toy.pairs = True
    with pytest.raises(DataError, match="not one source and one target"):
        TextPair(vocab=vocab, max_length=50, packed=True).plan(
            toy, seed=0, epoch=0, input_length=50
        )


def test_wrong_settings(vocab):
    with pytest.raises(ConfigError, match="target_length"):
        Prefix(vocab=vocab, max_length=20, short_rate=0.0, target_length=17)
    with pytest.raises(ConfigError, match="max_length"):
        TextPair(vocab=vocab, max_length=5, packed=True)
    with pytest.raises(ConfigError, match="source_template"):
        Seq2Seq(
            vocab=vocab,
            max_length=20,
            target_length=20,
            truncated=True,
            source_template=["cls", "B"],
        )
    with pytest.raises(ConfigError, match="target_length"):
        Seq2Seq(vocab=vocab, max_length=20, target_length=2, truncated=True)
