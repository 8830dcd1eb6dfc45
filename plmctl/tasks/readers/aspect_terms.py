"""The terms of which texts say something, as tags of words, from the XML of SemEval-2014 task 4."""

from __future__ import annotations

from pathlib import Path

from plmctl.core.parts import part_of
from plmctl.tasks.readers.aspects import XML, read_sentences
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.record import Example
from plmctl.text.letters import unit_pattern

TYPE = "ASPECT"


@part_of("reader")
class AspectTerms(SplitFiles):
    """Reads sentences as words: runs of letters and digits, and single other characters. Their BIO
    tags mark where an aspect term begins (B-ASPECT) and goes on.

    A word belongs to a term if they share a character; of terms that share a word the longest has
    it. The fields also have the characters of words and terms.
    """

    leaves = "a sentence without a word"

    kinds = (XML,)
    bare_test = True

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The sentences of one file with words in them; without `labelled`, one in which no
        sentence has terms has no labels.
        """
        sentences = read_sentences(file)
        known = labelled or any(sentence.aspects is not None for sentence in sentences)
        examples = []
        for number, sentence in enumerate(sentences):
            words = [
                (match.start(), match.end()) for match in unit_pattern().finditer(sentence.text)
            ]
            spans = [aspect.span for aspect in sentence.aspects or () if aspect.span is not None]
            if words:
                fields = {
                    "words": [sentence.text[start:end] for start, end in words],
                    "places": words,
                    "terms": list(dict.fromkeys(spans)),
                }
                label = tag_words(words, spans) if known else None
                examples.append(Example(sentence.id or str(number), fields, label, sentence.place))
        self.skipped[str(file)] = len(sentences) - len(examples)
        return examples


def tag_words(words: list[tuple[int, int]], spans: list[tuple[int, int]]) -> list[str]:
    """The tag of each word, by the characters [start, end) of words and of terms."""
    tags = ["O"] * len(words)
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        inside = [n for n, (first, last) in enumerate(words) if first < end and last > start]
        if inside and all(tags[n] == "O" for n in inside):
            tags[inside[0]] = f"B-{TYPE}"
            for n in inside[1:]:
                tags[n] = f"I-{TYPE}"
    return tags
