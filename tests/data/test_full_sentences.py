import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.data.formats import packing
from plmctl.data.formats.full_sentences import FullSentences

CLS, SEP = 2, 3


def loop_full_sentences(documents, length, crossing):
    """Section 4.2, literally: add whole sentences while they fit; a new document in the same row
    costs one separator.
    """
    rows, row, has_tokens = [], [CLS], False
    for document in documents:
        begins = True
        units = [s[i : i + length - 2] for s in document for i in range(0, len(s), length - 2)]
        for sentence in units:
            extra = [SEP] if begins and has_tokens else []
            if has_tokens and len(row) + len(extra) + len(sentence) + 1 > length:
                rows.append([*row, SEP])
                row, extra = [CLS], []
            row += extra + sentence
            has_tokens, begins = True, False
        if not crossing and has_tokens:
            rows.append([*row, SEP])
            row, has_tokens = [CLS], False
    return rows + ([[*row, SEP]] if has_tokens else [])


@pytest.mark.parametrize("crossing", [True, False])
@pytest.mark.parametrize("length", [6, 20, 31, 64, 200])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_the_loop(random_shards_of, vocab, length, crossing, seed):
    shards = random_shards_of(25, seed)
    fmt = FullSentences(vocab=vocab, max_length=length, crossing=crossing)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=length)
    seq = fmt.rows(shards, plan, np.arange(plan.rows)).seqs["text"]
    mine = [seq.ids[r, : seq.length[r]].tolist() for r in range(plan.rows)]
    assert mine == loop_full_sentences(shards.texts(), length, crossing)
    report = plan.report
    assert report["tokens"] == report["laid_out"] == len(shards.ids)
    assert report["laid_out"] + report["specials"] + report["padding"] == seq.ids.size


def test_every_token_once_and_no_sentence_cut_that_fits(toy, vocab):
    fmt = FullSentences(vocab=vocab, max_length=64, crossing=True)
    plan = fmt.plan(toy, seed=0, epoch=0, input_length=64)
    ids = fmt.rows(toy, plan, np.arange(plan.rows)).seqs["text"].ids
    assert np.array_equal(ids[ids >= 10], toy.ids)
    starts = set(toy.ids[toy.sentences[:-1]].tolist())
    assert all(int(row[1]) in starts for row in ids)


def test_too_short_rows(vocab):
    with pytest.raises(ConfigError, match="more than the 2 special tokens"):
        FullSentences(vocab=vocab, max_length=2, crossing=True)
    with pytest.raises(ConfigError, match="packed"):
        FullSentences(vocab=vocab, max_length=20, crossing=True, packed=True)


@pytest.mark.parametrize("length", [6, 31, 200])
def test_packed_rows_hold_the_same_inputs(random_shards_of, vocab, length):
    shards = random_shards_of(25, 1)
    fmt = FullSentences(vocab=vocab, max_length=length, crossing=False, packed=True)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=length)
    seq = fmt.rows(shards, plan, np.arange(plan.rows)).seqs["text"]
    found = []
    for row in range(plan.rows):
        document, position = seq.tracks["document"][row], seq.tracks["position"][row]
        assert ((document == -1) == ~seq.real[row]).all()
        for number in range(document.max() + 1):
            inside = np.flatnonzero(document == number)
            assert position[inside].tolist() == list(range(len(inside)))
            found.append(seq.ids[row, inside].tolist())
    assert sorted(found) == sorted(loop_full_sentences(shards.texts(), length, False))
    assert fmt.provides >= {"tracks.document", "tracks.position"}


@pytest.mark.parametrize(
    ("crossing", "room", "wanted"),
    [
        (True, 8, [[0, 8], [9, 16]]),  # complete; a separator at the edge of a row is left out
        (True, 9, [[0, 8], [9, 16]]),
        (True, 16, [[0, 16]]),
        (False, 8, [[0, 8], [9, 16]]),  # complete_doc: flushed at the separator
        (False, 16, [[0, 8], [9, 16]]),
        (False, 7, [[0, 5], [5, 8], [9, 16]]),
    ],
)
def test_break_modes_of_fairseq(shards_of, vocab, crossing, room, wanted):
    """sizes=[5, 3, 1, 7] in fairseq's token blocks: two documents with its separator, the 1,
    between; offsets as there.
    """
    shards = shards_of([[5, 3], [7]])
    fmt = FullSentences(vocab=vocab, max_length=room + 2, crossing=crossing)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=room + 2)
    seq = fmt.rows(shards, plan, np.arange(plan.rows)).seqs["text"]
    found = []
    for ids, length in zip(seq.ids, seq.length, strict=True):
        token = ids[:length][ids[:length] >= 10].astype(int) - 10
        offset = token + (token >= 8)
        found.append([int(offset[0]), int(offset[-1]) + 1])
    assert found == wanted


def test_links_over_several_blocks(monkeypatch):
    monkeypatch.setattr(packing, "BLOCK", 7)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        following = np.minimum(np.arange(50) + rng.integers(1, 20, 50), 50)
        wanted = [0]
        while wanted[-1] < 50:
            wanted.append(int(following[wanted[-1]]))
        assert packing.follow_links(following).tolist() == wanted
    assert packing.follow_links(np.array([], np.int64)).tolist() == [0]
