"""WordNet 3.0 (Miller, 1995) from the files of its dictionary: lemmas, synsets, and the classes
and relations between them.

    index.noun   lemma and the byte offsets of its synsets: "dog n 7 5 @ ~ ... 02084071 10114209"
    data.noun    a synset at each offset: class, words, relations, gloss
    noun.exc     irregular forms: "geese goose"
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from plmctl.core.errors import AbsentData, DataError, nearest

PARTS = ("noun", "verb", "adj", "adv")
# the lexicographer files by number: lexnames(5WN)
SUPERSENSES = (
    *("adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact"),
    *("noun.attribute", "noun.body", "noun.cognition", "noun.communication", "noun.event"),
    *("noun.feeling", "noun.food", "noun.group", "noun.location", "noun.motive", "noun.object"),
    *("noun.person", "noun.phenomenon", "noun.plant", "noun.possession", "noun.process"),
    *("noun.quantity", "noun.relation", "noun.shape", "noun.state", "noun.substance"),
    *("noun.time", "verb.body", "verb.change", "verb.cognition", "verb.communication"),
    *("verb.competition", "verb.consumption", "verb.contact", "verb.creation", "verb.emotion"),
    *("verb.motion", "verb.perception", "verb.possession", "verb.social", "verb.stative"),
    *("verb.weather", "adj.ppl"),
)
RELATIONS = ("synonym", "antonym", "hypernym")
_POINTERS = {"antonym": "!", "hypernym": "@"}
_LETTERS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
# morphy(7WN): endings of inflected words, and those of their lemmas
_ENDINGS = {
    "noun": (
        *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
        *(("men", "man"), ("ies", "y")),
    ),
    "verb": (
        *(("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", "")),
        *(("ing", "e"), ("ing", "")),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}
_MARKER = re.compile(r"\((?:a|p|ip)\)$")  # where an adjective may stand
_PLACES = ("WNSEARCHDIR", "WNHOME")  # variables of WordNet's own programs
_USUAL = ("/usr/share/wordnet", "/usr/local/WordNet-3.0/dict", "/opt/wordnet/dict")
INSTALL = (
    "apt-get install wordnet-base, or unpack WNdb-3.0.tar.gz from"
    " https://wordnet.princeton.edu/download and name its dict folder in the variable WNSEARCHDIR,"
    " or as `path` where the settings name WordNet"
)


@dataclass(frozen=True)
class Synset:
    """Words of one meaning.

    Args:
        part: The part of speech, one of `PARTS`.
        offset: The offset in the file of data.
        supersense: index into `SUPERSENSES`.
        words: its lemmas as written, with `_` between the words of a compound.
        pointers: (symbol, part, offset, source, target); source and target are numbers of words
            from 1, 0 for all.
        gloss: definition and examples.
    """

    part: str
    offset: int
    supersense: int
    words: tuple[str, ...]
    pointers: tuple[tuple[str, str, int, int, int], ...]
    gloss: str


class WordNet:
    """The dictionary in one folder.

    Differs: lemmas are found by the rules of morphy(7WN); its rules for compounds and for nouns
    in "-ful" are left out.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Read the indexes.

        Raises:
            AbsentData: a file of the dictionary is missing.
            DataError: a file is damaged.
        """
        self.folder = Path(folder).expanduser()
        self._index = {part: self._read_index(part) for part in PARTS}
        self._exceptions = {part: self._read_exceptions(part) for part in PARTS}
        self._data = {part: self._read(f"data.{part}") for part in PARTS}
        self._known: dict[tuple[str, int], tuple[str, ...]] = {}

    @staticmethod
    def open(path: str | os.PathLike[str] | None = None) -> WordNet:
        """The dictionary at `path`; None: where WordNet's variables say, or where it is usual.

        Raises:
            AbsentData: the dictionary is missing; the message says what to install.
        """
        return _read_once(str(WordNet.find(path)))

    @staticmethod
    def find(path: str | os.PathLike[str] | None = None) -> Path:
        """The folder that `open` reads, with an index of nouns.

        Raises:
            AbsentData: as of `open`.
        """
        if path is not None:
            folder = Path(path).expanduser()
            if not (folder / "index.noun").is_file():
                what = "no index.noun here: this is no WordNet dictionary"
                raise AbsentData(what, file=folder, fix=INSTALL)
            return folder
        named = [value for name in _PLACES if (value := os.environ.get(name))]
        places = [place for value in named for place in (value, f"{value}/dict")] + list(_USUAL)
        for place in places:
            if Path(place, "index.noun").is_file():
                return Path(place)
        raise AbsentData("there is no WordNet on this machine", fix=INSTALL)

    def lemmas(self, part: str) -> list[str]:
        """All lemmas of a part of speech, in the order of the index."""
        return list(self._index[part])

    def lemmatize(self, word: str, part: str) -> list[str]:
        """The lemmas of which `word` may be a form: the word itself and its exceptions, or what
        the rules make of it.

        Args:
            word: in any case, with spaces or `_` in compounds.
            part: one of `PARTS`.
        """
        word, known = word.lower().replace(" ", "_"), self._index[part]
        forms = self._exceptions[part].get(word) or inflect(word, part)
        return [form for form in dict.fromkeys([word, *forms]) if form in known]

    def synsets(self, word: str, part: str | None = None) -> list[Synset]:
        """The synsets of a word, by its lemmas, of one part of speech or of all."""
        return [self.synset(each, offset) for each, offset in self._places(word, part)]

    def supersenses(self, word: str, part: str | None = None) -> frozenset[int]:
        """The classes of the synsets of a word: indices into `SUPERSENSES`."""
        return frozenset(self._class_of(*place) for place in self._places(word, part))

    def synset(self, part: str, offset: int) -> Synset:
        """The synset at an offset of the data of a part of speech."""
        data = self._data[part]
        line = data[offset : data.find(b"\n", offset)].decode("utf-8", "replace")
        try:
            return _parse(part, line)
        except (ValueError, IndexError, KeyError):
            raise self._damaged(f"data.{part}", f"no synset at byte {offset}") from None

    def pairs(self, relation: str) -> Iterator[tuple[str, str]]:
        """All pairs of words in a relation.

        `synonym`: two words of a synset, each pair once; `antonym`: each pair once; `hypernym`: a
        word, and one of a synset directly above its own.

        Args:
            relation: one of `RELATIONS`.
        """
        if relation not in RELATIONS:
            known = f"{', '.join(RELATIONS)}{nearest(relation, RELATIONS)}"
            raise ValueError(f"'{relation}' is no relation: {known}")
        seen: set[tuple[str, str]] = set()
        for synset in self._all():
            if relation == "synonym" and len(synset.words) == 1:
                continue
            for first, second in self._pairs_of(synset, relation):
                pair = (first, second)
                if relation != "hypernym":
                    pair = min(pair, (second, first))
                if first != second and pair not in seen:
                    seen.add(pair)
                    yield pair

    def _pairs_of(self, synset: Synset, relation: str) -> Iterator[tuple[str, str]]:
        words = synset.words
        if relation == "synonym":
            yield from ((first, second) for first in words for second in words)
            return
        for symbol, part, offset, source, target in synset.pointers:
            if symbol == _POINTERS[relation]:
                others = self._words(part, offset)
                for first in words[source - 1 : source] if source else words:
                    for second in others[target - 1 : target] if target else others:
                        yield first, second

    def _words(self, part: str, offset: int) -> tuple[str, ...]:
        """The words of a synset, of which many others may point to it."""
        place = (part, offset)
        if place not in self._known:
            self._known[place] = self.synset(part, offset).words
        return self._known[place]

    def _all(self) -> Iterator[Synset]:
        for part in PARTS:
            offset = 0
            for line in self._data[part].split(b"\n"):
                if line[:1].isdigit():
                    yield self.synset(part, offset)
                offset += len(line) + 1

    def _places(self, word: str, part: str | None) -> list[tuple[str, int]]:
        """(part, offset) of every synset of a word."""
        return [
            (each, offset)
            for each in ((part,) if part else PARTS)
            for lemma in self.lemmatize(word, each)
            for offset in self._index[each][lemma]
        ]

    def _class_of(self, part: str, offset: int) -> int:
        # "02084071 05 n ...": the number of the lexicographer file
        number = self._data[part][offset + 9 : offset + 11]
        if not number.isdigit() or int(number) >= len(SUPERSENSES):
            raise self._damaged(f"data.{part}", f"no synset at byte {offset}")
        return int(number)

    def _read_index(self, part: str) -> dict[str, tuple[int, ...]]:
        lines = self._read(f"index.{part}").decode("utf-8", "replace").splitlines()
        index = {}
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.startswith("  "):  # the licence is indented
                fields = line.split()
                try:
                    index[fields[0]] = tuple(map(int, fields[-int(fields[2]) :]))
                except (ValueError, IndexError):
                    raise self._damaged(f"index.{part}", "not an entry", number) from None
        return index

    def _read_exceptions(self, part: str) -> dict[str, list[str]]:
        """{form: lemmas}; {} without the file."""
        file = self.folder / f"{part}.exc"
        if not file.is_file():
            return {}
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return {fields[0]: fields[1:] for line in lines if len(fields := line.split()) > 1}

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            what = f"no {name} here: this is no WordNet dictionary ({error.strerror})"
            raise AbsentData(what, file=self.folder, fix=INSTALL) from None

    def _damaged(self, name: str, what: str, line: int | None = None) -> DataError:
        return DataError(what, file=self.folder / name, line=line, fix=f"again: {INSTALL}")


@lru_cache(maxsize=4)
def _read_once(folder: str) -> WordNet:
    return WordNet(folder)


def inflect(word: str, part: str) -> list[str]:
    """The words of which `word` may be a form, by the rules alone."""
    return [
        word[: len(word) - len(ending)] + lemma
        for ending, lemma in _ENDINGS[part]
        if word.endswith(ending) and len(word) > len(ending)
    ]


def _parse(part: str, line: str) -> Synset:
    """A line of data: "02084071 05 n 03 dog 0 ... 022 @ 02083346 n 0000 ... | gloss"."""
    head, _, gloss = line.partition("|")
    fields = head.split()
    count = int(fields[3], 16)
    words = tuple(_MARKER.sub("", word) for word in fields[4 : 4 + 2 * count : 2])
    at = 4 + 2 * count
    pointers = []
    for number in range(int(fields[at])):
        symbol, offset, letter, ends = fields[at + 1 + 4 * number : at + 5 + 4 * number]
        source, target = int(ends[:2], 16), int(ends[2:], 16)
        pointers.append((symbol, _LETTERS[letter], int(offset), source, target))
    return Synset(part, int(fields[0]), int(fields[1]), words, tuple(pointers), gloss.strip())
