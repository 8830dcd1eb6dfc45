"""Words of two vocabularies: each is cut as one of the two tokenizers cuts it, and masking never
leaves the vocabulary of a token. The reference is a loop over words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.noise.mixed_vocabulary import MixedVocabulary, confirm
from plmctl.noise.token_mask import TokenMask
from plmctl.text.tokenizer import Tokenizer
from tests.noise.plain_rows import mark_words
from tests.noise.worded import some

TEXT = "players played a playful game while the other player was replaying older games"
WORDS = TEXT.split()
LARGE = Tokenizer.train([TEXT] * 3, kind="wordpiece", vocab_size=81, unused=7)
SMALL = Tokenizer.train([TEXT] * 3, kind="wordpiece", vocab_size=48)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("small")
    SMALL.save(home)
    return home


def make_rows(n: int, words: int, width: int, *, end: bool = True) -> Rows:
    """cls words (sep), of the large vocabulary."""
    rng, vocab = np.random.default_rng(0), LARGE.vocab
    ids, length = np.full((n, width), vocab.pad, np.int32), np.zeros(n, np.int64)
    for row in range(n):
        text = " ".join(rng.choice(WORDS, words))
        own = [vocab.cls, *LARGE.encode(text)[: width - 1 - end], *[vocab.sep] * end]
        ids[row, : len(own)], length[row] = own, len(own)
    return mark_words(Rows(np.arange(n) * 7, {"text": Seq(ids, length)}), vocab)


def make(folder: Path, **settings: float) -> MixedVocabulary:
    return MixedVocabulary(vocab=LARGE.vocab, path=str(folder), **settings)


def units_of(rows: Rows, row: int) -> list[list[int]]:
    """The words and special tokens of a row."""
    seq, found = rows.seqs["text"], []
    for token in seq.ids[row, : seq.length[row]].tolist():
        if LARGE.vocab.word_start[token]:
            found.append([])
        found[-1].append(token)
    return found


def cut_small(unit: list[int]) -> list[int]:
    roles = ("cls", "sep", "pad")
    special = [SMALL.vocab.id(r) for r in roles if LARGE.vocab.id(r) == unit[0]]
    return special or SMALL.encode(LARGE.decode(unit))


def test_every_word_is_cut_as_one_of_the_tokenizers_cuts_it(folder: Path) -> None:
    rows = make_rows(60, 6, 64)
    cut, small = make(folder, share=0.3).cut(rows, Draws(0, 0))
    seq, taken, total = cut.seqs["text"], 0, 0
    for row in range(60):
        at = 0
        for unit in units_of(rows, row):
            is_small = small[row, at] >= 0
            wanted = cut_small(unit) if is_small else unit
            found = (small if is_small else seq.ids)[row, at : at + len(wanted)].tolist()
            assert found == wanted
            starts = seq.tracks["word_start"][row, at : at + len(wanted)].tolist()
            assert starts == [True] + [False] * (len(wanted) - 1)
            if not is_small:
                assert (small[row, at : at + len(wanted)] == -1).all()
            taken, total, at = taken + is_small, total + 1, at + len(wanted)
        assert at == seq.length[row]
        assert (small[row, at:] == -1).all()
    assert taken / total == pytest.approx(0.3, abs=4 * (0.21 / total) ** 0.5)
    assert len(SMALL.encode("players")) > len(LARGE.encode("players"))


def test_hidden_tokens_stay_in_their_vocabulary(folder: Path) -> None:
    rows, noise = make_rows(200, 6, 64), make(folder, rate=0.3, random_share=0.3, mask_share=0.4)
    cut, before = noise.cut(rows, Draws(0, 1).child("cut"))
    noised = noise(rows, Draws(0, 1))
    after, ids = noised.seqs["text"].tracks["small"], noised.seqs["text"].ids
    large, own = (noised.targets[name] for name in ("mlm", "small_mlm"))
    assert ((before >= 0) == (after >= 0)).all()  # no token changes its vocabulary
    assert (before[large != IGNORE] == -1).all()
    assert np.array_equal(own[own != IGNORE], before[own != IGNORE])
    assert np.array_equal(large[large != IGNORE], cut.seqs["text"].ids[large != IGNORE])
    for shown, labels, vocab in ((ids, large, LARGE.vocab), (after, own, SMALL.vocab)):
        hidden = labels != IGNORE
        assert not vocab.special[labels[hidden]].any()
        assert (shown[hidden] == vocab.mask).mean() == pytest.approx(0.4, abs=0.1)
        assert (shown[hidden] < vocab.size).all()
        assert (shown[hidden] != labels[hidden]).mean() == pytest.approx(0.7, abs=0.1)
    still = (large == IGNORE) & (own == IGNORE)
    assert np.array_equal(after[still], before[still])
    kept = still & (after < 0)
    assert np.array_equal(ids[kept], cut.seqs["text"].ids[kept])
    counts = (large != IGNORE).sum(1) + (own != IGNORE).sum(1)
    assert counts.tolist() == [max(1, round(0.3 * n)) for n in noised.seqs["text"].length.tolist()]
    roles = {SMALL.vocab.id(r): LARGE.vocab.id(r) for r in ("cls", "sep", "mask", "pad")}
    means = [roles.get(token, LARGE.vocab.unk) for token in after[after >= 0].tolist()]
    assert ids[after >= 0].tolist() == means


def test_without_words_of_the_smaller_one_it_is_token_mask(folder: Path) -> None:
    rows = make_rows(40, 9, 32)
    mixed = make(folder, share=0)(rows, Draws(3, 2))
    plain = TokenMask(vocab=LARGE.vocab, rate=0.15)(rows, Draws(3, 2))
    assert np.array_equal(mixed.seqs["text"].ids, plain.seqs["text"].ids)
    assert np.array_equal(mixed.targets["mlm"], plain.targets["mlm"])
    assert (mixed.targets["small_mlm"] == IGNORE).all()


def test_all_tokens_may_be_of_the_smaller_one(folder: Path) -> None:
    noised = make(folder, share=1)(make_rows(40, 6, 64), Draws(3, 2))
    seq = noised.seqs["text"]
    assert (seq.tracks["small"][seq.real] >= 0).all()
    assert (noised.targets["mlm"] == IGNORE).all()


@pytest.mark.parametrize("end", [True, False])
def test_the_last_words_of_a_row_that_gets_too_long_are_left_out(folder: Path, end: bool) -> None:
    rows, noise = make_rows(40, 9, 20, end=end), make(folder)
    wide = make_rows(40, 9, 20, end=end)
    seq = wide.seqs["text"]
    pad = [(0, 0), (0, 60)]
    wide = mark_words(wide.with_seq("text", Seq(np.pad(seq.ids, pad), seq.length)), LARGE.vocab)
    (cut, small), (whole, all_small) = noise.cut(rows, Draws(0, 0)), noise.cut(wide, Draws(0, 0))
    short = 0
    for row in range(40):
        length, full = cut.seqs["text"].length[row], int(whole.seqs["text"].length[row])
        both = np.where(all_small >= 0, 1000 + all_small, whole.seqs["text"].ids)[row, :full]
        found = np.where(small >= 0, 1000 + small, cut.seqs["text"].ids)[row, :length].tolist()
        assert found == both.tolist()[: length - end] + both.tolist()[full - 1 :] * end
        short += int(length) < full
    assert short > 10
    assert cut.seqs["text"].ids.shape == (40, 20)


def test_same_bytes_whatever_the_batch(folder: Path) -> None:
    rows, noise = make_rows(24, 6, 40), make(folder)
    whole = noise(rows, Draws(0, 3))
    part = np.random.default_rng(0).permutation(24)[:9]
    noised = noise(some(rows, part), Draws(0, 3))
    assert np.array_equal(noised.seqs["text"].ids, whole.seqs["text"].ids[part])
    for name in ("mlm", "small_mlm"):
        assert np.array_equal(noised.targets[name], whole.targets[name][part])
    assert not np.array_equal(noise(rows, Draws(0, 4)).targets["mlm"], whole.targets["mlm"])


def test_the_smaller_tokenizer_is_there_and_wordpiece(tmp_path: Path) -> None:
    with pytest.raises(AbsentData, match="no such tokenizer"):
        confirm(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="path=FOLDER"):
        assert MixedVocabulary(vocab=LARGE.vocab).tokenizer
    Tokenizer.train([TEXT] * 3, kind="char", vocab_size=40).save(tmp_path)
    with pytest.raises(ConfigError, match="WordPiece, and this is char"):
        assert make(tmp_path).tokenizer
    (tmp_path / "none.txt").touch()
    with pytest.raises(DataError, match=r"no tokenizer here[^\n]*\n  fix: noise.mixed_vocabulary"):
        assert make(tmp_path / "none.txt").tokenizer
