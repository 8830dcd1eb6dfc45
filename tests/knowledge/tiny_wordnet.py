"""A WordNet of a few words in the files of the real one, with byte offsets that are right."""

from __future__ import annotations

from pathlib import Path

LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
# numbers of the lexicographer files: lexnames(5WN)
CLASSES = {
    **{"adj.all": 0, "adv.all": 2, "noun.Tops": 3, "noun.act": 4, "noun.animal": 5},
    **{"noun.artifact": 6, "noun.cognition": 9, "noun.communication": 10, "noun.group": 14},
    **{"noun.object": 17, "noun.person": 18, "noun.quantity": 23, "noun.relation": 24},
    **{"verb.change": 30, "verb.cognition": 31, "verb.motion": 38, "verb.perception": 39},
}
# name: (part, class, words, {symbol: [(name of the synset, source, target)]}, gloss)
SYNSETS: dict[str, tuple[str, str, list[str], dict[str, list[tuple[str, int, int]]], str]] = {
    "dog": ("noun", "noun.animal", ["dog", "domestic_dog"], {"@": [("animal", 0, 0)]}, "it barks"),
    "wolf": ("noun", "noun.animal", ["wolf"], {"@": [("animal", 0, 0)]}, "it howls"),
    "animal": ("noun", "noun.Tops", ["animal", "beast"], {}, "it lives"),
    "bass fish": ("noun", "noun.animal", ["bass"], {"@": [("animal", 0, 0)]}, "a fish"),
    "bass voice": ("noun", "noun.person", ["bass", "basso"], {}, "a singer"),
    "bass guitar": ("noun", "noun.artifact", ["bass", "bass_guitar"], {}, "an instrument"),
    "ax": ("noun", "noun.artifact", ["ax", "axe"], {}, "it chops"),
    "axis": ("noun", "noun.cognition", ["axis"], {}, "a line"),
    "object": ("noun", "noun.Tops", ["object"], {}, "a thing"),
    "list": ("noun", "noun.communication", ["list"], {}, "items in order"),
    "value": ("noun", "noun.quantity", ["value"], {}, "a number"),
    "name": ("noun", "noun.communication", ["name"], {}, "what it is called"),
    "string": ("noun", "noun.artifact", ["string"], {}, "a cord"),
    "function": ("noun", "noun.relation", ["function"], {}, "a map"),
    "method": ("noun", "noun.cognition", ["method"], {}, "a way"),
    "class": ("noun", "noun.group", ["class"], {}, "pupils"),
    "module": ("noun", "noun.artifact", ["module", "faculty"], {}, "a part"),
    "horse": ("noun", "noun.animal", ["horse"], {"@": [("animal", 0, 0)]}, "it is ridden"),
    "teacher": ("noun", "noun.person", ["teacher"], {}, "one who teaches"),
    "farmer": ("noun", "noun.person", ["farmer"], {}, "one who farms"),
    "river": ("noun", "noun.object", ["river"], {}, "it flows"),
    "garden": ("noun", "noun.artifact", ["garden"], {}, "plants grow there"),
    "remember": ("verb", "verb.cognition", ["remember", "follow"], {}, "know again"),
    "return": ("verb", "verb.motion", ["return"], {}, "come back"),
    "chase": ("verb", "verb.motion", ["chase", "dog"], {}, "run after"),
    "run": ("verb", "verb.motion", ["run"], {}, "move fast"),
    "flow": ("verb", "verb.change", ["run", "flow"], {}, "move like water"),
    "good": ("adj", "adj.all", ["good"], {"!": [("bad", 1, 1)]}, "right"),
    "bad": ("adj", "adj.all", ["bad(p)", "evil"], {"!": [("good", 1, 1)]}, "wrong"),
    "well": ("adv", "adv.all", ["well"], {}, "in a good way"),
}
EXCEPTIONS = {"noun": ["axes ax axis", "wolves wolf"], "verb": ["ran run"], "adj": ["better good"]}
NOTICE = "  1 This file is a test.  \n"


def write(folder: Path) -> Path:
    """Write the dictionary into a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    offsets: dict[str, int] = {}
    for _ in range(
        2
    ):  # all lines have their length at once, and their pointers in the second round
        texts = {part: NOTICE for part in LETTERS}
        for name, (part, *_rest) in SYNSETS.items():
            offsets[name] = len(texts[part])
            texts[part] += _line(name, offsets) + "\n"
    for part in LETTERS:
        (folder / f"data.{part}").write_text(texts[part], encoding="utf-8")
        index = "".join(line + "\n" for line in _index(part, offsets))
        (folder / f"index.{part}").write_text(NOTICE + index, encoding="utf-8")
        lines = "".join(f"{line}\n" for line in EXCEPTIONS.get(part, []))
        (folder / f"{part}.exc").write_text(lines, encoding="utf-8")
    return folder


def _line(name: str, offsets: dict[str, int]) -> str:
    part, supersense, words, pointers, gloss = SYNSETS[name]
    ends = [
        f"{symbol} {offsets.get(other, 0):08d} {letter(other)} {source:02x}{target:02x}"
        for symbol, others in pointers.items()
        for other, source, target in others
    ]
    spelled = " ".join(f"{word} 0" for word in words)
    frames = " 00" if part == "verb" else ""
    head = f"{offsets[name]:08d} {CLASSES[supersense]:02d} {LETTERS[part]}"
    links = " ".join([f"{len(ends):03d}", *ends])
    return f"{head} {len(words):02x} {spelled} {links}{frames} | {gloss}  "


def _index(part: str, offsets: dict[str, int]) -> list[str]:
    places: dict[str, list[int]] = {}
    for name, (own, _, words, *_rest) in SYNSETS.items():
        for word in words if own == part else ():
            places.setdefault(word.replace("(p)", "").lower(), []).append(offsets[name])
    return [
        f"{word} {LETTERS[part]} {len(at)} 0 {len(at)} 0 {' '.join(f'{n:08d}' for n in at)}  "
        for word, at in sorted(places.items())
    ]


def letter(name: str) -> str:
    """That of the part of speech of a synset."""
    return LETTERS[SYNSETS[name][0]]
