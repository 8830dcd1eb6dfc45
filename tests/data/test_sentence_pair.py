import random
from itertools import chain

import numpy as np
import pytest

from plmctl.data.formats.sentence_pair import SentencePair, _truncate
from plmctl.errors import ConfigError

CLS, SEP = 2, 3


def laid_out(fmt, shards, length, epoch=0, seed=3):
    plan = fmt.plan(shards, seed=seed, epoch=epoch, input_length=length)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


def pairs(rows):
    """(A, B, label) of every row, checking the special tokens and segments on the way."""
    seq = rows.seqs["text"]
    for r in range(len(rows.key)):
        ids = seq.ids[r, : seq.length[r]].tolist()
        segment = seq.tracks["segment"][r]
        first = ids.index(SEP)
        assert ids[0] == CLS
        assert ids[-1] == SEP
        assert ids.count(SEP) == 2
        assert segment.tolist() == [0] * (first + 1) + [1] * (len(ids) - first - 1) + [0] * (seq.ids.shape[1] - len(ids))
        yield ids[1:first], ids[first + 1 : -1], int(rows.labels["pair"][r])


def make(vocab, length=40, **options):
    return SentencePair(vocab=vocab, max_length=length, **{"short_rate": 0.1, "random_rate": 0.5, **options})


def test_rows_are_made_of_true_pairs(random_shards_of, vocab):
    shards = random_shards_of(200)
    document = np.repeat(np.arange(200), np.diff(shards.sentences[shards.documents]))
    plan, rows = laid_out(make(vocab, 40), shards, 40)
    assert rows.anchors.tolist() == [[r, 0] for r in range(plan.rows)]
    for a, b, label in pairs(rows):
        assert a
        assert b
        assert len(a) + len(b) <= 37
        assert a == list(range(a[0], a[-1] + 1))  # tokens are numbered, so a stretch is a range
        assert b == list(range(b[0], b[-1] + 1))
        documents = {int(document[t - 10]) for t in a}, {int(document[t - 10]) for t in b}
        assert len(documents[0]) == len(documents[1]) == 1
        assert (documents[0] != documents[1]) == (label == 1)
        assert label == 1 or a[-1] < b[0]


def test_all_true_pairs_without_limits_rebuild_the_corpus(shards_of, vocab):
    """No random B and no truncation: A and B one after the other are the corpus."""
    shards = shards_of([[3, 4, 5, 6], [2, 2], [7, 1, 1, 1, 1]])
    plan, rows = laid_out(make(vocab, 60, short_rate=0.0, random_rate=0.0), shards, 60)
    assert [t for a, b, _ in pairs(rows) for t in a + b] == shards.ids.tolist()
    assert plan.report["cut"] == plan.report["repeated"] == 0
    assert plan.rows == 3


def test_unused_sentences_are_put_back(random_shards_of, vocab):
    """With every B random, the As alone are the corpus (nothing is cut where rows are long enough)."""
    shards = random_shards_of(50, longest=6)
    _plan, rows = laid_out(make(vocab, 400, short_rate=0.0, random_rate=1.0), shards, 400)
    found = [t for a, _, _ in pairs(rows) for t in a]
    assert set(found) <= set(shards.ids.tolist())
    assert len(found) == len(set(found))
    assert rows.labels["pair"].all()


@pytest.mark.parametrize("length", [12, 40, 128])
def test_report_accounts_for_every_token(random_shards_of, vocab, length):
    shards = random_shards_of(100)
    plan, rows = laid_out(make(vocab, length), shards, length)
    report, seq = plan.report, rows.seqs["text"]
    assert report["tokens"] + report["repeated"] == report["laid_out"] + report["cut"]
    assert report["laid_out"] + report["specials"] + report["padding"] == seq.ids.size
    assert (seq.ids >= 10).sum() == report["laid_out"]
    assert report["specials"] == 3 * plan.rows


def loop_chunks(documents, targets, coins):
    """google-research/bert's loop over one document, in our words; `coins` = a_end and the random choice of each pair."""
    found = []
    for document, target in zip(documents, targets, strict=True):
        i, chunk, size = 0, [], 0
        while i < len(document):
            chunk.append(document[i])
            size += len(document[i])
            if i == len(document) - 1 or size >= target:
                a_end, other = coins(len(chunk))
                other = other or len(chunk) == 1
                a, rest = list(chain(*chunk[:a_end])), [] if other else list(chain(*chunk[a_end:]))
                found.append((a, rest, other))
                if other:
                    i -= len(chunk) - a_end
                chunk, size = [], 0
            i += 1
    return found


@pytest.mark.parametrize("seed", range(5))
def test_chunks_equal_the_loop(random_shards_of, vocab, seed):
    shards = random_shards_of(30, seed)
    fmt = make(vocab)
    targets = np.random.default_rng(seed).integers(2, 60, 30)
    bounds, documents = shards.sentences, shards.documents
    _, first, middle, last, other = fmt._cut(bounds, documents, targets, random.Random(7))
    coin = random.Random(7)

    def coins(count):
        a_end = 1 if count == 1 else 1 + int(coin.random() * (count - 1))
        return a_end, count > 1 and coin.random() < 0.5

    wanted = loop_chunks(shards.texts(), targets.tolist(), coins)
    assert [x[2] for x in wanted] == other.tolist()
    assert [x[0] for x in wanted] == [shards.ids[bounds[f] : bounds[m]].tolist() for f, m in zip(first, middle, strict=True)]
    rest = [[] if o else shards.ids[bounds[m] : bounds[e]].tolist() for m, e, o in zip(middle, last, other, strict=True)]
    assert [x[1] for x in wanted] == rest


@pytest.mark.parametrize("room", [4, 5, 17])
def test_truncation_equals_one_token_at_a_time(room):
    a, b = (x.ravel() for x in np.meshgrid(np.arange(1, 40), np.arange(1, 40)))
    zero = np.zeros_like(a)
    a_start, a_end, b_start, b_end = _truncate(zero, a, zero, b, room, np.random.default_rng(0))
    for i in range(len(a)):
        x, y = int(a[i]), int(b[i])
        while x + y > room:
            x, y = (x - 1, y) if x > y else (x, y - 1)
        assert (a_end[i] - a_start[i], b_end[i] - b_start[i]) == (x, y)
    cut, front = (a + b - (a_end - a_start) - (b_end - b_start)).sum(), (a_start + b_start).sum()
    assert abs(front - cut / 2) < 3 * np.sqrt(cut / 4)
    assert (a_start >= 0).all()
    assert (a_end <= a).all()


def test_random_b_reaches_its_length(random_shards_of, vocab):
    """A random B has at least target - len(A) tokens unless its document ends, and starts at a sentence."""
    shards = random_shards_of(200)
    _, rows = laid_out(make(vocab, 400, short_rate=0.0, random_rate=1.0), shards, 400)
    ends, starts = set(shards.ids[shards.sentences[1:] - 1].tolist()), set(shards.ids[shards.sentences[:-1]].tolist())
    last = set(shards.ids[shards.sentences[shards.documents[1:]] - 1].tolist())
    for a, b, _ in pairs(rows):
        if len(a) + len(b) < 397:  # not truncated
            assert b[0] in starts
            assert b[-1] in ends
            assert b[-1] in last


def test_rates_are_within_three_sigma(shards_of, vocab):
    shards = shards_of([[8] * 40 for _ in range(300)])
    plan, rows = laid_out(make(vocab, 67, short_rate=0.0), shards, 67)
    assert abs(rows.labels["pair"].mean() - 0.5) < 3 * 0.5 / np.sqrt(plan.rows) + 0.02  # document ends force some random ones
    plan, rows = laid_out(make(vocab, 67, short_rate=1.0), shards, 67)
    assert plan.rows > 1.4 * 300 * 40 * 8 / 64
    assert rows.seqs["text"].length.mean() < 60


def test_epochs_differ_and_copies_repeat(toy, vocab):
    fresh, copied = make(vocab), make(vocab, copies=2)
    assert fresh.copies is None
    assert copied.copies == 2
    one, two = (laid_out(fresh, toy, 40, epoch=e)[1].seqs["text"].ids for e in (0, 1))
    assert one.shape != two.shape or not np.array_equal(one, two)
    again = laid_out(fresh, toy, 40, epoch=0)[1].seqs["text"].ids
    assert np.array_equal(one, again)


def test_one_document_only(shards_of, vocab):
    _, rows = laid_out(make(vocab), shards_of([[5, 5, 5, 5, 5, 5, 5, 5, 5]]), 40)
    assert len(list(pairs(rows))) > 0


def test_roberta_template(toy, vocab_of):
    vocab = vocab_of(pair=("cls", "A", "sep", "sep", "B", "sep"))
    _, rows = laid_out(make(vocab), toy, 40)
    ids = rows.seqs["text"].ids
    assert ((ids == SEP).sum(1) == 3).all()
    assert rows.seqs["text"].length.max() <= 40


def test_wrong_settings(vocab, vocab_of):
    with pytest.raises(ConfigError, match="short_rate"):
        make(vocab, short_rate=1.5)
    with pytest.raises(ConfigError, match="pair template"):
        make(vocab_of(pair=("A", "B")))
    with pytest.raises(ConfigError, match="at least 5"):
        make(vocab, 4)
    with pytest.raises(ConfigError, match="copies"):
        make(vocab, copies=0)
