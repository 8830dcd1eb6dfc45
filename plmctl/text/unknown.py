"""The share of a text that its tokenizer does not know, and from which a model learns nothing."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.errors import DataError, list_some
from plmctl.core.terminal import counted
from plmctl.text.hanzi import count_forms
from plmctl.text.sentences import CJK
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.text.tokenizer import Tokenizer

KNOWING = "checkpoint=RUN # a run whose tokenizer knows this text"  # the fix for new texts
LISTED = 10  # characters that a message names
SAID = 0.0005  # share of unknown tokens; a smaller one is 0.0%
MOST = 0.5  # a text with a larger unknown share is refused
SPELLED = 0.75  # a text with a larger share of small tokens is in a script that few pieces spell
_FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]+")  # digits and letters
_LETTERS = re.compile(f"[^\\W\\d_{CJK}]+")


def unknown_share(ids: Any, vocab: Vocab) -> float:
    """The share of unknown tokens among the tokens `ids` that stand for text; 0 if the vocabulary
    has no token only for unknown text.
    """
    unknown, ordinary = find_unknown(ids, vocab)
    return int(unknown.sum()) / max(1, int(ordinary.sum()))


def find_unknown(ids: Any, vocab: Vocab) -> tuple[np.ndarray, np.ndarray]:
    """(whether each of the tokens `ids` is unknown, whether it stands for text, which a space alone
    does not); False for all if the vocabulary has no token only for unknown text.
    """
    ids = np.asarray(ids)
    if (unk := _find_id(vocab)) is None:
        none = np.zeros(ids.shape, bool)
        return none, none
    unknown = ids == unk
    # a transform may add tokens behind those of the tokenizer, which are special
    own = np.minimum(ids, vocab.size - 1)
    return unknown, unknown | ((ids < vocab.size) & ~vocab.blank[own])


def _find_id(vocab: Vocab) -> int | None:
    """The id for unknown text alone; None without one."""
    others = (vocab.pad, vocab.cls, vocab.sep, vocab.mask, vocab.bos, vocab.eos)
    return None if vocab.unk in others else vocab.unk


def count_unknown_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often each word between spaces stands in the texts of which a part is unknown."""
    return _keep_unknown(tokenizer, Counter(word for text in texts for word in text.split()))


def count_unknown_characters(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often each character stands in the texts that is unknown by itself."""
    found = Counter[str]()
    for text in texts:
        found.update(text)
    seen = Counter({character: times for character, times in found.items() if character.split()})
    return _keep_unknown(tokenizer, seen)


def _keep_unknown(tokenizer: Tokenizer, words: Counter[str]) -> Counter[str]:
    if (unk := _find_id(tokenizer.vocab)) is None:
        return Counter()
    ids, lengths = tokenizer.encode_flat(words)
    before = np.append(0, np.cumsum(ids == unk))  # unknown ids before each position
    ends = np.cumsum(lengths)
    lost = before[ends] > before[ends - lengths]
    pairs = zip(words.items(), lost, strict=True)
    return Counter({word: times for (word, times), is_lost in pairs if is_lost})


def find_full_width(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[int, Counter[str]]:
    """{number of a text: its full-width letters and digits, word by word}. Those are left out where
    the tokenizer reads them as usual ones.
    """
    lists = {number: own for number, text in enumerate(texts) if (own := _FULL_WIDTH.findall(text))}
    if not lists:
        return {}
    usual = {each: unicodedata.normalize("NFKC", each) for own in lists.values() for each in own}
    apart = {each for each in usual if tokenizer.encode(each) != tokenizer.encode(usual[each])}
    return {
        number: Counter(word for word in own if word in apart)
        for number, own in lists.items()
        if not apart.isdisjoint(own)
    }


def describe_full_width(words: Counter[str], texts: int) -> str:
    """A remark on the words of `find_full_width` in so many texts; "" without any."""
    if not words:
        return ""
    return (
        f"{counted(texts, 'text')} with full-width letters or digits ({list_characters(words)}),"
        " which this tokenizer does not read as usual ones: write those, or train one with"
        " tokenizer.normalize=nfkc"
    )


def measure_full_width(words: Counter[str], text: str) -> float:
    """The share of the signs of a text that stand in these words."""
    letters = sum(len(word) * times for word, times in words.items())
    return letters / max(1, len("".join(text.split())))


def list_characters(characters: Counter[str]) -> str:
    """The most frequent characters with their numbers, as in `😀 12, １ 8 and 5 more`."""
    return list_some([f"{each} {times:,}" for each, times in characters.most_common()], LISTED)


def describe_unknown(share: float, characters: Counter[str] | None = None) -> str:
    """The share in words, or "" if it is 0.0% of the tokens.

    Args:
        share: The share of unknown tokens.
        characters: The unknown characters and how often they occur, where they are known.
    """
    if share < SAID:
        return ""
    forms = count_forms(characters or {}).most_common(1)
    form = f", such as {forms[0][0]} characters" if forms and forms[0][0] else ""
    listed = f": {list_characters(characters)}" if characters else ""
    return f"{share:.1%} of the tokens are unknown{form}{listed}"


def find_spelled(ids: Any, vocab: Vocab) -> float:
    """The share of tokens that are unknown, bytes of characters, or single letters of an alphabet;
    0 if it is at most 0.75, or no larger than that of the vocabulary.

    Letters do not count in a vocabulary without longer pieces.
    """
    if not vocab.texts or not len(ids):
        return 0.0
    pieces = any(len(text) > 1 and _LETTERS.search(text) for text in vocab.texts)
    small = np.array(
        [
            not text or (pieces and len(text) == 1 and bool(_LETTERS.match(text)))
            for text in vocab.texts
        ]
    )
    share = float(small[np.asarray(ids)].mean())
    return share if share > max(SPELLED, small[~vocab.special].mean()) else 0.0


def describe_spelled(share: float) -> str:
    """The share of `find_spelled` in words."""
    return (
        f"{share:.0%} of the tokens are unknown, bytes or single letters: the tokenizer has hardly"
        " seen this script, nor has the model"
    )


def refuse_unknown(
    share: float, *, file: object = None, line: int | None = None, where: str = "", fix: str
) -> None:
    """Raise DataError if most of a text is unknown; `where`: words on its rows."""
    if share > MOST:
        why = (
            f"{share:.0%} of its tokens are unknown to the tokenizer{where},"
            " so that little of the text is left"
        )
        raise DataError(why, file=file, line=line, fix=fix)
