import hashlib
import random
from itertools import chain, pairwise

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import WARN, gather
from plmctl.data.formats import sentence_pair
from plmctl.data.formats.pairs import SegmentPairs
from plmctl.data.formats.sentence_pair import NEXT, PREVIOUS, RANDOM, SentencePair, _truncate

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
        assert segment.tolist() == [0] * (first + 1) + [1] * (len(ids) - first - 1) + [0] * (
            seq.ids.shape[1] - len(ids)
        )
        yield ids[1:first], ids[first + 1 : -1], int(rows.labels["pair"][r])


def make(vocab, length=40, **options):
    return SentencePair(
        vocab=vocab, max_length=length, **{"short_rate": 0.1, "random_rate": 0.5, **options}
    )


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
    """With every B random, the As alone are the corpus (nothing is cut where rows are long
    enough).
    """
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
    """google-research/bert's loop over one document, in our words; `coins` = a_end and the
    random choice of each pair.
    """
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
def test_chunks_equal_the_loop(random_shards_of, vocab, seed, monkeypatch):
    monkeypatch.setattr(sentence_pair, "BLOCK", 20)  # several blocks of documents
    shards = random_shards_of(30, seed)
    targets = np.random.default_rng(seed).integers(2, 60, 30)
    bounds = shards.sentences
    cuts = make(vocab)._cut(bounds, shards.documents, targets, random.Random(7))
    coin = random.Random(7)

    def coins(count):
        a_end = 1 if count == 1 else 1 + int(coin.random() * (count - 1))
        return a_end, count > 1 and coin.random() < 0.5

    wanted = loop_chunks(shards.texts(), targets.tolist(), coins)
    other = cuts.fate == RANDOM
    assert [x[2] for x in wanted] == other.tolist()
    pieces = zip(cuts.first, cuts.middle, cuts.last, other, strict=True)
    found = [(f, m, e, o) for f, m, e, o in pieces]
    assert [x[0] for x in wanted] == [
        shards.ids[bounds[f] : bounds[m]].tolist() for f, m, _, _ in found
    ]
    rest = [[] if o else shards.ids[bounds[m] : bounds[e]].tolist() for _, m, e, o in found]
    assert [x[1] for x in wanted] == rest


@pytest.mark.parametrize("room", [4, 5, 17])
def test_truncation_equals_one_token_at_a_time(room):
    a, b = (x.ravel() for x in np.meshgrid(np.arange(1, 40), np.arange(1, 40)))
    zero = np.zeros_like(a)
    a_start, a_end, b_start, b_end = _truncate(
        SegmentPairs(zero, a, zero, b), room, np.random.default_rng(0)
    )
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
    """A random B has at least target - len(A) tokens unless its document ends, and starts at a
    sentence.
    """
    shards = random_shards_of(200)
    _, rows = laid_out(make(vocab, 400, short_rate=0.0, random_rate=1.0), shards, 400)
    ends, starts = (
        set(shards.ids[shards.sentences[1:] - 1].tolist()),
        set(shards.ids[shards.sentences[:-1]].tolist()),
    )
    last = set(shards.ids[shards.sentences[shards.documents[1:]] - 1].tolist())
    for a, b, _ in pairs(rows):
        if len(a) + len(b) < 397:  # not truncated
            assert b[0] in starts
            assert b[-1] in ends
            assert b[-1] in last


def test_rates_are_within_three_sigma(shards_of, vocab):
    shards = shards_of([[8] * 40 for _ in range(300)])
    plan, rows = laid_out(make(vocab, 67, short_rate=0.0), shards, 67)
    # document ends force some random ones
    assert abs(rows.labels["pair"].mean() - 0.5) < 3 * 0.5 / np.sqrt(plan.rows) + 0.02
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
    with pytest.raises(ConfigError, match="random_rate \\+ swap_rate <= 1"):
        make(vocab, swap_rate=0.6)


def within_binomial(count, n, rate):
    return abs(count - n * rate) < 4 * np.sqrt(n * rate * (1 - rate)) + 1e-9


def test_albert_swaps_half_of_the_pairs(shards_of, vocab_of):
    vocab = vocab_of(300_000)
    shards = shards_of([[8] * 80 for _ in range(200)])
    plan, rows = laid_out(
        make(vocab, 67, short_rate=0.0, random_rate=0.0, swap_rate=0.5), shards, 67
    )
    found = list(pairs(rows))
    for a, b, label in found:
        # neighbours, one way or the other
        assert a[-1] + 1 == b[0] if label == 0 else b[-1] + 1 == a[0]
    assert within_binomial(rows.labels["pair"].sum(), plan.rows, 0.5)
    assert plan.report["swapped_pairs"] == rows.labels["pair"].sum()
    assert plan.report["cut"] == plan.report["repeated"] == plan.report["dropped"] == 0


def test_a_lone_sentence_gets_a_random_partner_or_is_dropped(shards_of, vocab):
    """ALBERT's released code labels it as swapped; with lone_rate=0 it is left out and counted."""
    shards = shards_of([[9]] * 50 + [[5, 5, 5]] * 50)
    options = {"short_rate": 0.0, "random_rate": 0.0, "swap_rate": 0.5}
    plan, rows = laid_out(make(vocab, 40, **options), shards, 40)
    assert plan.report["random_pairs"] == 50
    assert all(label == 1 for a, _, label in pairs(rows) if a[0] < 10 + 9 * 50)
    plan, rows = laid_out(make(vocab, 40, lone_rate=0.0, **options), shards, 40)
    assert plan.rows == 50
    assert plan.report["dropped"] == 9 * 50
    assert plan.report["laid_out"] == 15 * 50
    plan, _ = laid_out(make(vocab, 40, lone_rate=0.4, **options), shards_of([[9]] * 900), 40)
    assert within_binomial(plan.rows, 900, 0.4)


@pytest.mark.parametrize(("alone", "warned"), [(60, True), (30, False)])
def test_a_text_of_lone_sentences_has_a_warning(shards_of, vocab, alone, warned):
    """Half of the pairs at the most may begin with a sentence that has no next one."""
    shards = shards_of([[9]] * alone + [[5, 5]] * 40)
    fmt = make(vocab, 40, short_rate=0.0, random_rate=0.0)
    with gather(WARN) as said:
        fmt.check(shards, fmt.plan(shards, seed=1, epoch=0, input_length=40))
    assert bool(said) == warned
    assert all("60% of the pairs" in line and "objective=[mlm]" in line for line in said)


def test_structbert_has_thirds_of_next_previous_random(shards_of, vocab_of):
    vocab = vocab_of(300_000)
    shards = shards_of([[8] * 400 for _ in range(60)])
    third = 1 / 3
    plan, rows = laid_out(
        make(vocab, 67, short_rate=0.0, random_rate=third, swap_rate=third, lone_rate=0.0),
        shards,
        67,
    )
    for kind in (NEXT, PREVIOUS, RANDOM):
        assert within_binomial((rows.labels["pair"] == kind).sum(), plan.rows, third)
    for a, b, label in pairs(rows):
        same = (a[0] - 10) // 3200 == (b[0] - 10) // 3200
        assert same == (label != RANDOM)
        assert not same or (a[-1] < b[0] if label == NEXT else b[-1] < a[0])
    report = plan.report
    assert (
        report["tokens"] + report["repeated"]
        == report["laid_out"] + report["cut"] + report["dropped"]
    )


def test_single_sentences_by_the_loop(random_shards_of, vocab):
    """SENTENCE-PAIR: A one sentence, B the next or a random one of another document; what is put
    back begins the next pair.
    """
    shards = random_shards_of(40)
    fmt = make(vocab, 100, short_rate=0.0, single=True)
    sentences = {tuple(s) for d in shards.texts() for s in d}
    _, rows = laid_out(fmt, shards, 100)
    following = {tuple(x): tuple(y) for d in shards.texts() for x, y in pairwise(d)}
    seen = []
    for a, b, label in pairs(rows):
        assert {tuple(a), tuple(b)} <= sentences
        assert label == 1 or following[tuple(a)] == tuple(b)
        seen += [tuple(a), *([tuple(b)] if label == 0 else [])]
    # every sentence once, besides the random ones
    assert seen == [tuple(s) for d in shards.texts() for s in d]


def test_packed_pairs_are_the_same_pairs(random_shards_of, vocab):
    shards = random_shards_of(60)
    alone, packed = (make(vocab, 100, short_rate=0.0, single=True, packed=p) for p in (False, True))
    _, rows = laid_out(alone, shards, 100)
    wanted = sorted(pairs(rows))
    plan, rows = laid_out(packed, shards, 100)
    text, found = rows.seqs["text"], []
    assert plan.rows < len(wanted) / 2
    for (row, place), label in zip(rows.anchors, rows.labels["pair"], strict=True):
        document = text.tracks["document"][row]
        inside = np.flatnonzero(document == document[place])
        assert inside[0] == place
        assert inside.tolist() == list(range(place, place + len(inside)))
        assert text.tracks["position"][row, inside].tolist() == list(range(len(inside)))
        ids, segment = text.ids[row, inside].tolist(), text.tracks["segment"][row, inside]
        first = ids.index(SEP)
        assert segment.tolist() == [0] * (first + 1) + [1] * (len(ids) - first - 1)
        found.append((ids[1:first], ids[first + 1 : -1], int(label)))
    assert sorted(found) == wanted
    some = packed.rows(shards, plan, np.array([3, 1]))
    assert np.array_equal(some.seqs["text"].ids, text.ids[[3, 1]])
    chosen = [rows.labels["pair"][rows.anchors[:, 0] == r].tolist() for r in (3, 1)]
    assert some.labels["pair"].tolist() == chosen[0] + chosen[1]
    assert some.anchors[:, 0].tolist() == [0] * len(chosen[0]) + [1] * len(chosen[1])
    assert packed.provides >= {"tracks.document", "tracks.position"}


def test_bytes_of_bert_pairs(random_shards_of, vocab):
    """The rows of BERT's setting stay what they were when checkpoints of them were written."""
    fmt, digest = make(vocab), hashlib.sha256()
    for epoch in (0, 1):
        _, rows = laid_out(fmt, random_shards_of(100, 4), 38, epoch=epoch)
        for array in (
            rows.seqs["text"].ids,
            rows.seqs["text"].tracks["segment"],
            rows.labels["pair"],
        ):
            digest.update(array.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "c5dfa41ff3963827"
