"""Corpora of word senses in the layout of Raganato et al. (2017): `semcor.data.xml` with
`semcor.gold.key.txt` next to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from plmctl.core.errors import AbsentData, DataError
from plmctl.knowledge.wordnet import SUPERSENSES
from plmctl.storage.xml_tree import Element, parse_xml
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

XML = ".xml"
_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_SHOWN = (
    '<sentence id="d0.s0"><wf lemma="the" pos="DET">The</wf>'
    '<instance id="d0.s0.t0" lemma="art" pos="NOUN">art</instance></sentence>'
)
_KEY = re.compile(r"[^%\s]+%[1-5]:(\d\d):\d\d:[^:\s]*:\d*")  # lemma%kind:file:number:head:number


def read_sense_corpus(file: Path, unlabelled: str) -> list[Example]:
    """The sentences of a corpus, each annotated word with its supersense: `noun.person`.

    The supersense is the lexicographer file that the sense key names (WordNet, senseidx(5WN)). A
    word with several keys has that of the first. A group of words (`New_York`) is one word with
    spaces.

    Args:
        file: `NAME.data.xml`.
        unlabelled: The label of words that are not annotated.
    """
    senses = _read_keys(_find_keys(file))
    examples: list[Example] = []
    for start, sentence in _split_sentences(file):
        words: list[str] = []
        labels: list[str] = []
        for element in sentence.children:
            text = " ".join(element.text.replace("_", " ").split())
            name = element.attributes.get("id", "") if element.name == "instance" else ""
            if name and name not in senses:
                problem = f"'{name}' has no sense in {_find_keys(file).name}"
                raise DataError(problem, file=file, line=start + element.line - 1)
            if text:
                words.append(text)
                labels.append(senses[name] if name else unlabelled)
        if words:
            given = sentence.attributes.get("id", str(len(examples)))
            examples.append(Example(given, {"words": words}, labels, f"{file}:{start}"))
    if not examples:
        raise DataError("no <sentence> with words", file=file, fix=_SHOWN)
    return examples


def _split_sentences(file: Path) -> Iterator[tuple[int, Element]]:
    """(the line on which it begins, the sentence), one at a time, since such files are large."""
    lines: list[str] = []
    for number, line in need_lines(file):
        if lines or "<sentence" in line:
            lines.append(line)
        if lines and "</sentence>" in line:
            yield number - len(lines) + 1, parse_xml(_cut("".join(lines)), file)
            lines = []
    if lines:
        raise DataError("a sentence without its end, </sentence>", file=file, fix=_SHOWN)


def _cut(text: str) -> str:
    end = "</sentence>"
    return text[text.index("<sentence") : text.rindex(end) + len(end)]


def _find_keys(file: Path) -> Path:
    """The file of sense keys next to a corpus; AbsentData if it is missing."""
    name = file.name.removesuffix(".gz")
    place = file.with_name(name.removesuffix(_DATA).removesuffix(XML) + _KEYS)
    for found in (place, place.with_name(f"{place.name}.gz")):
        if found.is_file():
            return found
    fix = "unpack http://lcl.uniroma1.it/wsdeval/data/WSD_Evaluation_Framework.zip"
    raise AbsentData(f"the senses of {file.name} are missing", file=place, fix=fix)


def _read_keys(file: Path) -> dict[str, str]:
    """{name of a word: its supersense}, from lines `d0.s0.t0 art%1:06:00:: art%1:04:00::`."""
    senses = {}
    for number, line in need_lines(file):
        if not (cells := line.split()):
            continue
        found = _KEY.fullmatch(cells[1]) if len(cells) > 1 else None
        if found is None or int(found[1]) >= len(SUPERSENSES):
            problem = "not the name of a word and its sense keys"
            raise DataError(problem, file=file, line=number, fix="d0.s0.t0 art%1:06:00::")
        senses[cells[0]] = SUPERSENSES[int(found[1])]
    return senses
