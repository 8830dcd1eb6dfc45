import numpy as np
import pytest

from plmctl.data.formats.full_sentences import FullSentences
from plmctl.errors import ConfigError

CLS, SEP = 2, 3


def loop_full_sentences(documents, length, crossing):
    """Section 4.2, literally: add whole sentences while they fit; a new document in the same row costs one separator."""
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
