"""Tokenizers with more tokens, learned from another text."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError
from plmctl.text.injected import InjectedToken
from plmctl.text.merging import learn_merges
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import count_unknown_words

GENERAL = ["the cat sat on the mat, near a hat.", "a log of the path (was: sent) to the door;"] * 30
GENERAL += ["quick brown foxes jump over lazy old dogs in vain: bold lilies"] * 30
FIELD = [
    "nephrology and nephropathy: the nephrologist sent (nephrologist) a log",
    "pathology, pathologist; nephropathy",
] * 20
UNRELATED = [
    "quick brown foxes jump",
    "in vain",
    "bold lazy dogs",
    "a cat in a hat: (over) lilies;",
]
PARTS = ["nephrolog", "pathology", "log", "ist", *"nephrologyatsi"]
SIZES = {"wordpiece": 75, "byte_bpe": 280, "bpe": 50, "unigram": 46}


@pytest.fixture(scope="module")
def plain() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train(GENERAL, kind=kind, vocab_size=n) for kind, n in SIZES.items()}


def merge_by_the_definition(
    words: dict[tuple[str, ...], int], times: int, known: set[str]
) -> list[tuple[str, str]]:
    """Sennrich et al., 2016, algorithm 1: count all pairs anew for every merge."""
    merges = []
    for _ in range(times):
        pairs = Counter[tuple[str, str]]()
        for word, count in words.items():
            for pair in pairwise(word):
                if pair[0] + pair[1] not in known:
                    pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        known = {*known, best[0] + best[1]}
        made: dict[tuple[str, ...], int] = {}
        for word, count in words.items():
            out: list[str] = []
            for part in word:
                if out and (out[-1], part) == best:
                    out[-1] += part
                else:
                    out.append(part)
            made[tuple(out)] = count
        words = made
    return merges


def test_merges_are_those_of_the_algorithm() -> None:
    text = "abracadabra abba baobab cabala aaaa aaa banana bandana cab ab xabaxab"
    words = {tuple(word): 1 + n % 3 for n, word in enumerate(text.split())}
    known = {*"abcdnorx", "an"}
    made = learn_merges(words, tokens=12, least=1, join=str.__add__, known=known, keep_all=True)
    assert [(m.left, m.right) for m in made] == merge_by_the_definition(words, 12, known)
    assert all("".join(m.pieces) == m.token and {*m.pieces} <= known for m in made)


def test_what_is_merged_further_is_no_token_of_its_own() -> None:
    words = {("n", "e", "p"): 9, ("x", "y"): 3, ("y", "z"): 1}
    made = learn_merges(words, tokens=9, least=2, join=str.__add__, known=set(), keep_all=False)
    assert [(m.token, m.pieces, m.count) for m in made] == [
        ("nep", ("n", "e", "p"), 9),
        ("xy", ("x", "y"), 3),
    ]


@pytest.mark.parametrize("kind", SIZES)
def test_old_ids_stay_and_new_ones_follow(
    plain: dict[str, Tokenizer], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = plain[kind]
    size, tokens = own.vocab.size, 6 if kind == "wordpiece" else 12
    new, pieces = own.extend(FIELD, tokens=tokens, least=5)
    assert new.vocab.size == size + len(pieces)
    assert len(pieces) == tokens
    assert new.pieces(range(size)) == own.pieces(range(size))
    assert new.vocab.special.sum() == own.vocab.special.sum()
    used = Counter(token for text in FIELD for token in new.encode(text))
    before, after = (sum(len(each.encode(text)) for text in FIELD) for each in (own, new))
    assert after < 0.7 * before
    for number, parts in enumerate(pieces):
        token = new.pieces([size + number])[0]
        spelled = own.pieces(parts)
        spelled[1:] = [part.removeprefix("##") for part in spelled[1:]]
        assert "".join(spelled) == token
        if kind == "wordpiece":
            assert used[size + number] > 0
    for text in (*UNRELATED, *FIELD[::25], "a nephrological catalogue of pathology"):
        ids = new.encode(text)
        if max(ids) < size:
            assert ids == own.encode(text)
        assert new.decode(ids).strip() == own.decode(own.encode(text)).strip()
        spans = new.encode_offsets(text)[1]
        assert [a for a, _ in spans] == sorted(a for a, _ in spans)
    assert all(max(new.encode(text)) >= size for text in FIELD[::25])
    assert sum(max(new.encode(text)) < size for text in UNRELATED) >= 2
    letters = random.Random(0)
    words = ["".join(letters.choices(PARTS, k=letters.randint(1, 7))) for _ in range(800)]
    texts = [(new.encode(word), own.encode(word)) for word in words]
    plain_texts = [(ids, old) for ids, old in texts if max(ids) < size]
    assert 100 < len(plain_texts) < 800
    assert all(ids == old for ids, old in plain_texts)
    folder = tmp_path_factory.mktemp(kind)
    new.save(folder / "own")
    again = Tokenizer.load(folder / "own")
    assert again.fingerprint == new.fingerprint != own.fingerprint
    new.export_hf(folder / "hf", model_max_length=64)
    exported = Tokenizer.load(folder / "hf")
    assert all(exported.encode(text) == new.encode(text) for text in (*FIELD[::25], GENERAL[0]))
    # a published one, read from tokenizer.json
    own.export_hf(folder / "published", model_max_length=64)
    published, again_pieces = Tokenizer.load(folder / "published").extend(
        FIELD, tokens=tokens, least=5
    )
    assert again_pieces == pieces
    assert all(published.encode(text) == new.encode(text) for text in (*FIELD, *words))


def test_words_of_unknown_letters_are_passed_over(
    plain: dict[str, Tokenizer], tmp_path: Path
) -> None:
    own = plain["unigram"]
    own.export_hf(tmp_path, model_max_length=64)
    published = Tokenizer.load(tmp_path)
    _, wanted = own.extend(FIELD, tokens=12, least=5)
    for tokenizer in (own, published):
        _, pieces = tokenizer.extend([*FIELD, *["ωμέγα"] * 999], tokens=12, least=5)
        assert pieces == wanted


def test_words_that_stay_unknown_are_counted(plain: dict[str, Tokenizer]) -> None:
    texts = ["the ωμέγα sat (ωμέγα)", "nephrology ωμέγα", ""]
    for kind, own in plain.items():
        new, _ = own.extend(FIELD, tokens=4, least=5)
        found = count_unknown_words(new, texts)
        assert found == ({} if kind == "byte_bpe" else {"ωμέγα": 2, "(ωμέγα)": 1})
    injected = new.inject([InjectedToken("ωμέγα", "<word:ωμέγα>", "replace")])
    assert not count_unknown_words(injected, texts)


def test_a_word_never_joins_with_a_mark(plain: dict[str, Tokenizer]) -> None:
    for kind, own in plain.items():
        new, _ = own.extend(FIELD, tokens=1000, least=5)
        added = new.pieces(range(own.vocab.size, new.vocab.size))
        mixed = [token for token in added if set(token) & set("():;,.") and set(token) & set("aeo")]
        assert added, kind
        assert not mixed, kind


def test_extended_twice(plain: dict[str, Tokenizer]) -> None:
    own = plain["wordpiece"]
    once, _ = own.extend(FIELD, tokens=4, least=5)
    twice, pieces = once.extend(FIELD, tokens=4, least=5)
    assert twice.vocab.size == own.vocab.size + 8
    assert any(part >= own.vocab.size for parts in pieces for part in parts)


def test_what_cannot_be_extended(plain: dict[str, Tokenizer]) -> None:
    for text, fix in (
        ("a cat", r"of this text\n  fix: data\.path=MORE_TEXT"),
        ("a cat catkin", r"fix: least=2  # or data\.path=<more text>"),
        ("a ωμέγα cat", r"; 1 of its 3 words have letters that no token has\n  fix: data\.path="),
        ("ωμέγα", r"\n  fix: # a model whose tokenizer knows these words"),
    ):
        with pytest.raises(ConfigError, match=fix):
            plain["bpe"].extend([text], tokens=9, least=50)
    assert plain["bpe"].extend(["a cat catkin"], tokens=9, least=2)[1]
    char = Tokenizer.train(GENERAL, kind="char", vocab_size=40)
    injected = plain["wordpiece"].inject([InjectedToken("cat", "<word:cat>", "slash")])
    for tokenizer in (char, injected):
        with pytest.raises(ConfigError, match="a model whose tokenizer is plain wordpiece"):
            tokenizer.extend(FIELD, tokens=9, least=5)
