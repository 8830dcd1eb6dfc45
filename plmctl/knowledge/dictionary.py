"""Names in plain text: the longest match from the left of all aliases of a dictionary, at the edges
of words. Each name has its most frequent meaning.

A text is cut into units: a run of letters and digits, or one other sign; one character of a script
without spaces (Chinese) is a unit. An alias of n units is compared with every n units of the text,
all at the same time, by their hashes:

    text     The  New  York  City  Marathon      units 0..4
    n = 3          New York City                 hash known: a hit
    n = 2          New York                      a hit, shorter
    chosen         New York City                 the longest that begins at unit 1

An automaton (ahocorasick_rs) is somewhat faster, but finds names inside of words, too. The longest
name at the edges of words must then be chosen among many more (benchmarks/linking.py).

The hash of characters s..e is `(P[e] - P[s]) * B^-s` modulo 2^64. P are the sums before each
character of `(a random number of the character) * B^position`: one pass for all s and e.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.text.letters import compose, compose_with_places, normalize_spaces

_SPACE, _WORD, _SIGN = 0, 1, 2
_BASE = np.uint64(0x9E3779B97F4A7C55)  # odd, so that it has an inverse modulo 2^64
_INVERSE = np.uint64(pow(int(_BASE), -1, 1 << 64))
_UNUSED = 0.1  # count of a name that was never seen as a link
LONGEST = 12  # units of a name; longer ones are left out
# scripts without spaces between words: Thai to Khmer, Japanese, Chinese
_NO_SPACES = [(0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)]
_NO_SPACES += [(0x3400, 0x9FFF), (0xF900, 0xFAFF)]


class Mention(NamedTuple):
    """A name in a text."""

    start: int
    end: int
    id: int  # the entity that it means most often


class Hits(NamedTuple):
    """All names that a text has, with those inside others: by unit, longest first."""

    start: np.ndarray  # [h] character
    end: np.ndarray  # [h]
    alias: np.ndarray  # [h] number of the name


class Dictionary:
    """Names of entities, each with its possible meanings.

    Args:
        names: (text, entity, count) of each name: how often it was seen to mean that entity.
        fold: whether upper and lower case are the same.
        least_prior: names of which no meaning has at least this share are not linked.
        least_length: The least length of a name, in characters.
        lowercase: whether a name without any capital letter is linked; scripts that know none are
            always.
    """

    def __init__(
        self,
        names: Iterable[tuple[str, int, int]],
        *,
        fold: bool = False,
        least_prior: float = 0.5,
        least_length: int = 2,
        lowercase: bool = False,
    ) -> None:
        if not 0 <= least_prior <= 1:
            raise ConfigError("least_prior", least_prior, "a share from 0 to 1")
        self.fold, self.least_prior = fold, least_prior
        kept: dict[str, dict[int, float]] = {}
        self.left_out = 0  # names that are never linked
        for name, entity, count in names:
            name = compose(name)
            text = " ".join((fold_case(name) if fold else name).split())
            if len(text) < least_length or not _is_name(name, lowercase):
                self.left_out += 1
                continue
            meanings = kept.setdefault(text, {})
            meanings[entity] = meanings.get(entity, 0) + max(count, _UNUSED)
        self._index(kept)

    def _index(self, kept: dict[str, dict[int, float]]) -> None:
        """Lay out hashes and meanings as arrays."""
        texts = list(kept)
        joined = _Text("\n".join(texts), self.fold)
        ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1
        begins = ends - [len(text) for text in texts] if texts else ends
        hashes = joined.hash(begins, ends)
        units = np.searchsorted(joined.begins, ends) - np.searchsorted(joined.begins, begins)
        order = np.argsort(hashes)
        order = order[(units[order] <= LONGEST) & (units[order] > 0)]
        self.left_out += len(texts) - len(order)
        self.hashes, self.units = hashes[order], units[order]
        pairs = [sorted(kept[texts[n]].items(), key=lambda pair: -pair[1]) for n in order.tolist()]
        self._first = np.cumsum([0, *map(len, pairs)])
        self.ids = np.array([entity for each in pairs for entity, _ in each], np.int64)
        counts = np.array([count for each in pairs for _, count in each])
        totals = np.add.reduceat(counts, self._first[:-1]) if len(pairs) else counts
        self.priors = counts / np.repeat(totals, np.diff(self._first))
        self.linked = self.priors[self._first[:-1]] >= self.least_prior
        heads = joined.hash(begins, joined.ends[np.searchsorted(joined.begins, begins)])
        longer = order[self.units > 1]
        self._lengths = np.unique(self.units[self.units > 1]).tolist()
        self._known, self._heads = _Filter(self.hashes), _Filter(heads[longer])

    def __len__(self) -> int:
        return len(self.hashes)

    def candidates(self, name: str) -> list[tuple[int, float]]:
        """The possible meanings of a name: (entity, share of its uses), most frequent first."""
        text = _Text(normalize_spaces(name), self.fold)
        wanted = text.hash(np.zeros(1, np.int64), np.array([len(text.codes)]))
        at = int(np.searchsorted(self.hashes, wanted[0]))
        if at == len(self) or self.hashes[at] != wanted[0]:
            return []
        return self.meanings(at)

    def meanings(self, alias: int) -> list[tuple[int, float]]:
        """The possible meanings of the name with a number."""
        part = slice(self._first[alias], self._first[alias + 1])
        return list(zip(self.ids[part].tolist(), self.priors[part].tolist(), strict=True))

    def find(self, text: str) -> Hits:
        """All names in a text, those inside others too."""
        if not len(self) or not text:
            return Hits(*np.zeros((3, 0), np.int64))
        if (one_form := compose(text)) != text:
            spelled, places = compose_with_places(text)
            if spelled == one_form:
                hits, at = self.find(spelled), np.array(places)
                return Hits(at[hits.start], at[hits.end], hits.alias)
        read = _Text(text, self.fold)
        begin = np.arange(len(read.begins))
        single = read.hash(read.begins, read.ends)
        found = [self._look_up(begin, 1, single)]
        begin = begin[self._heads(single)]  # where a longer name may begin
        for length in self._lengths:
            begin = begin[begin + length <= len(read.begins)]
            ends = read.ends[begin + length - 1]
            found.append(self._look_up(begin, length, read.hash(read.begins[begin], ends)))
        unit, length, alias = np.concatenate(found, axis=1)
        order = np.lexsort((-length, unit))
        unit, last = unit[order], (unit + length - 1)[order]
        return Hits(read.original(read.begins[unit]), read.end_of(last), alias[order])

    def _look_up(self, begin: np.ndarray, length: int, hashes: np.ndarray) -> np.ndarray:
        """[3, h]: unit, length and name of the hashes that are names of so many units."""
        near = np.flatnonzero(self._known(hashes))
        at = np.minimum(np.searchsorted(self.hashes, hashes[near]), len(self) - 1)
        same = (self.hashes[at] == hashes[near]) & (self.units[at] == length)
        at, near = at[same], near[same]
        return np.stack([begin[near], np.full(len(near), length), at])

    def link(self, text: str) -> list[Mention]:
        """The longest names from the left, each with its most frequent meaning."""
        hits = self.find(text)
        kept = self.linked[hits.alias]
        return [
            Mention(start, end, int(self.ids[self._first[alias]]))
            for start, end, alias in choose_longest(Hits(*(part[kept] for part in hits)))
        ]

    def link_among(self, text: str, entities: Collection[int]) -> list[Mention]:
        """The longest names from the left that mean one of `entities` more often than any other
        of them; whatever else the names mean.
        """
        hits = self.find(text)
        known: dict[int, int] = {}
        for alias in np.unique(hits.alias).tolist():
            part = self.ids[self._first[alias] : self._first[alias + 1]].tolist()
            known[alias] = next((entity for entity in part if entity in entities), -1)
        kept = np.array([known[alias] >= 0 for alias in hits.alias.tolist()], bool)
        return [
            Mention(start, end, known[alias])
            for start, end, alias in choose_longest(Hits(*(part[kept] for part in hits)))
        ]


def choose_longest(hits: Hits) -> list[tuple[int, int, int]]:
    """(start, end, name) of the longest hits from the left, without overlap."""
    chosen, at = [], 0
    for start, end, alias in zip(*(part.tolist() for part in hits), strict=True):
        if start >= at:  # the longest of each start comes first
            chosen.append((start, end, alias))
            at = end
    return chosen


def fold_case(text: str) -> str:
    """The text in lower case, character by character, so that offsets stay."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _is_name(text: str, lowercase: bool) -> bool:
    """Whether a text has a letter, and a capital one unless `lowercase` or its script knows
    none.
    """
    letters = [char for char in text if char.isalpha()]
    return bool(letters) and (lowercase or any(not char.islower() for char in letters))


class _Text:
    """A text with single spaces, its units and the sums of their hashes."""

    def __init__(self, text: str, fold: bool) -> None:
        kinds, numbers = _tables()
        codes = np.frombuffer(
            (fold_case(text) if fold else text).encode("utf-32-le", "surrogatepass"), np.uint32
        )
        near = np.minimum(codes, len(kinds) - 1)
        kind = kinds[near]
        space = kind == _SPACE
        double = space[1:] & space[:-1]
        self._kept = None
        if double.any():
            self._kept = np.flatnonzero(np.append(True, ~double))
            codes, near, kind = codes[self._kept], near[self._kept], kind[self._kept]
        self.codes = codes
        value = numbers[near]
        if len(kinds) - 1 in near[-1:] or (codes >= len(kinds)).any():
            beyond = codes >= len(kinds)
            value[beyond] = _scramble(codes[beyond])
        power, self._inverse = _powers(len(codes))
        self._sums = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum(value * power, out=self._sums[1:])
        word, sign = kind == _WORD, kind == _SIGN
        first, last = sign | word, sign | word
        first[1:] &= ~(word[1:] & word[:-1])
        last[:-1] &= ~(word[1:] & word[:-1])
        self.begins, self.ends = np.flatnonzero(first), np.flatnonzero(last) + 1

    def hash(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint64: the hashes of characters begin..end - 1."""
        return (self._sums[end] - self._sums[begin]) * self._inverse[begin]

    def original(self, at: np.ndarray) -> np.ndarray:
        """Where characters stand in the text as it was given."""
        return at if self._kept is None else self._kept[at]

    def end_of(self, unit: np.ndarray) -> np.ndarray:
        """Where units end in the text as it was given."""
        return self.original(self.ends[unit] - 1) + 1


class _Filter:
    """Says of most hashes that are not known that they are not."""

    def __init__(self, hashes: np.ndarray) -> None:
        bits = min(30, max(12, len(hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, bool)
        self._table[hashes >> self._shift] = True

    def __call__(self, hashes: np.ndarray) -> np.ndarray:
        return self._table[hashes >> self._shift]


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """The kind and the number of each character of the basic plane, and of one beyond it."""
    kinds = np.full((1 << 16) + 1, _SIGN, np.uint8)
    for code in range(1 << 16):
        char = chr(code)
        if char.isspace():
            kinds[code] = _SPACE
        elif char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M":
            kinds[code] = _WORD
    for first, last in _NO_SPACES:
        kinds[first : last + 1] = _SIGN
    codes = np.arange(len(kinds), dtype=np.uint32)
    codes[kinds == _SPACE] = ord(" ")
    return kinds, _scramble(codes)


def _scramble(codes: Sequence[int] | np.ndarray) -> np.ndarray:
    """A random number of 64 bits for each code (the finalizer of SplitMix64)."""
    x = (np.asarray(codes, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


_POWERS = [np.ones(1, np.uint64), np.ones(1, np.uint64)]


def _powers(length: int) -> tuple[np.ndarray, np.ndarray]:
    """B^0..B^(length - 1), and B^0..B^-length."""
    if len(_POWERS[0]) <= length:
        size = 1 << (length + 1).bit_length()
        for place, base in enumerate((_BASE, _INVERSE)):
            factors = np.full(size, base, np.uint64)
            factors[0] = 1
            _POWERS[place] = np.multiply.accumulate(factors)
    return _POWERS[0][:length], _POWERS[1]
