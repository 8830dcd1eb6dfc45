"""Tokens of whole words beside the pieces of any tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import DataError, UsageError
from plmctl.text.injected import InjectedToken
from plmctl.text.tokenizer import Tokenizer

TEXT = ["the unicycle of new york is a small bicycle / tricycle", "well-made cycles"] * 30
KINDS = ("bpe", "byte_bpe", "unigram", "wordpiece")


@pytest.fixture(scope="module")
def plain() -> dict[str, Tokenizer]:
    sizes = {"byte_bpe": 280, "unigram": 32, "bpe": 32, "wordpiece": 50}
    return {kind: Tokenizer.train(TEXT, kind=kind, vocab_size=sizes[kind]) for kind in KINDS}


def shown(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.pieces(tokenizer.encode(text))


def token(text: str, form: str, cased: bool = False) -> InjectedToken:
    return InjectedToken(text, f"<word:{text}>", form, cased)


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_token_stands(plain, kind):
    own = plain[kind]
    pieces, text = own.encode("the unicycle is"), "the unicycle is"
    new, size = "<word:unicycle>", own.vocab.size
    before, middle = own.encode("the"), own.encode("the unicycle")
    slash = own.encode("the / unicycle")[len(before) : -len(own.encode(" unicycle"))]
    for form in ("plain", "replace", "slash", "before"):
        tokenizer = own.inject([token("unicycle", form)])
        ids = tokenizer.encode(text)
        wanted = {
            "plain": pieces,
            "replace": [*before, size, *pieces[len(middle) :]],
            "slash": [*middle, *slash, size, *pieces[len(middle) :]],
            "before": [*before, size, *slash, *pieces[len(before) :]],
        }[form]
        assert ids == wanted
        assert tokenizer.vocab.size == size + 1
        assert tokenizer.pieces([size]) == [new]
        assert tokenizer.decode(ids).strip() == own.decode(pieces).strip()
        assert tokenizer.encode("the bicycle") == own.encode("the bicycle")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["replace", "slash", "before"])
def test_offsets(plain, kind, form):
    tokenizer = plain[kind].inject([token("unicycle", form)])
    text = "a unicycle, unicycles  Unicycle"
    ids, spans = tokenizer.encode_offsets(text)
    assert ids == tokenizer.encode(text)
    assert ids.count(plain[kind].vocab.size) == 2  # not in unicycles
    starts = [start for start, _ in spans]
    assert starts == sorted(starts)
    for number, (start, end) in zip(ids, spans, strict=True):
        if number == plain[kind].vocab.size:
            covered = {"replace": ("unicycle", "Unicycle")}.get(form, ("",))
            assert text[start:end] in covered


def test_names_of_several_words_and_capitals(plain):
    own = plain["wordpiece"]
    added = [token("new", "replace"), token("New York", "replace", True), token("york", "slash")]
    tokenizer = own.inject(added)
    assert "<word:New York>" in shown(tokenizer, "of New York")
    assert shown(tokenizer, "of new york").count("<word:new>") == 1
    assert "<word:york>" in shown(tokenizer, "of new york")
    assert "<word:york>" not in shown(tokenizer, "of New York")
    # added one after the other is the same
    twice = own.inject(added[:1]).inject(added[1:])
    assert twice.fingerprint == tokenizer.fingerprint != own.fingerprint
    # a word within a word is none
    assert shown(own.inject([token("made", "replace")]), "well-made") == shown(own, "well-made")


def test_it_is_saved_and_read(plain, tmp_path: Path):
    tokenizer = plain["byte_bpe"].inject([token("unicycle", "slash")])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("the unicycle is") == tokenizer.encode("the unicycle is")
    with pytest.raises(UsageError, match="cannot add tokens to words"):
        tokenizer.export_hf(tmp_path / "hf", model_max_length=8)
    for content in (b"[{}]", b"no", b'[{"text": "a", "token": "b", "form": "behind"}]'):
        (tmp_path / "injected.json").write_bytes(content)
        with pytest.raises(DataError, match="not a list of tokens"):
            Tokenizer.load(tmp_path)
