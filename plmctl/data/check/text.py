"""The check of raw text: one pass over the documents, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.core.rounding import spell_size
from plmctl.core.terminal import counted
from plmctl.data.check import overlap
from plmctl.data.check.characters import CharacterCounts, judge_characters, judge_markup
from plmctl.data.check.finding import (
    Finding,
    LengthHistogram,
    Report,
    format_percent,
    judge,
    shorten,
)
from plmctl.data.check.hashes import Repeats, hash_texts
from plmctl.data.check.overlap import OverlapCounter, report_overlap
from plmctl.data.survey import TextSource, ignore_progress
from plmctl.data.words import MENTIONED
from plmctl.text.letters import normalize_spaces
from plmctl.text.markup import is_html, spell_remedy
from plmctl.text.reader import Document
from plmctl.text.segment import Segmenter
from plmctl.text.segmented import count_words

LONG, LONG_CHINESE = 32, 12  # a line of so many characters is not a heading
_BATCH = 1 << 20  # characters that are checked together
_SHOWN = 1000  # repeated lines that are kept, to show the most frequent


class TextCounts:
    """The counts of one pass over documents; `words`: the segmenter of Chinese words, if any."""

    def __init__(self, words: Segmenter | None = None) -> None:
        self.segmenter = words
        self.characters, self.lengths = CharacterCounts(), LengthHistogram()
        self.documents, self.folded, self.lines = Repeats(), Repeats(), Repeats()
        self.bytes = self.words = self.all_lines = self.joined = self.html = 0
        self.example = ""  # the position of the first document in HTML
        self.often: Counter[str] = Counter()  # lines that occur more than once in a batch
        self._open = 0  # characters of the last document, whose next part may still come

    def add(self, batch: list[Document]) -> None:
        """Count a batch of documents."""
        texts = ["\n".join(document.paragraphs) for document in batch]
        joined = "\n".join(texts)
        self.characters.add(joined)
        self.bytes += len(joined.encode("utf-8", "surrogatepass"))
        self.words += count_words(joined, self.segmenter)
        for document, text in zip(batch, texts, strict=True):
            self.joined += document.joined
            if not document.continues and is_html(text):
                self.html, self.example = self.html + 1, self.example or document.place
            if not document.continues:
                self.lengths.add([self._open])
                self._open = 0
            self._open += len(text)
        starts = [
            (document, text)
            for document, text in zip(batch, texts, strict=True)
            if not document.continues
        ]
        self.documents.add(np.array([document.identity for document, _ in starts], np.uint64))
        self.folded.add(hash_texts(normalize_spaces(text.lower()) for _, text in starts))
        lines = [line for document in batch for line in document.paragraphs]
        self.all_lines += len(lines)
        long = [line for line in lines if _is_long(line)]
        self.lines.add(hash_texts(long))
        self.often.update({line: count for line, count in Counter(long).items() if count > 1})
        if len(self.often) > _SHOWN:
            self.often = Counter(dict(self.often.most_common(_SHOWN // 2)))

    def close(self) -> None:
        """Count the last document, which no further part can follow now."""
        self.lengths.add([self._open])
        self._open = 0


def check(
    source: TextSource,
    valid: TextSource | None = None,
    *,
    segmenter: Segmenter | None = None,
    say: Say = ignore_progress,
) -> Report:
    """Check the documents of `source`, and what `valid` shares with them.

    Args:
        valid: the text that is held out.
        segmenter: The segmenter of Chinese words; without, a character counts as a word.

    Raises:
        DataError: if there are no documents.
    """
    counts, words, runs = TextCounts(segmenter), overlap.Words(), OverlapCounter()
    held_out = TextCounts()
    for batch in _batches(valid.documents()) if valid else ():
        held_out.add(batch)
        runs.add_held_out(*words(["\n".join(document.paragraphs) for document in batch]))
    for batch in _batches(source.documents()):
        counts.add(batch)
        if valid:
            runs.add_training(*words(["\n".join(document.paragraphs) for document in batch]))
        say("reading", counts.bytes, 0)
    counts.close()
    held_out.close()
    if not counts.lengths.count:
        raise DataError(
            "there are no documents in it", file=source.path, fix="name files with text"
        )
    findings = [
        *_sizes(counts),
        _judge_joined(counts, source),
        _judge_html(counts, source),
        *_repeats(counts),
        *judge_characters(counts.characters, counts.words),
    ]
    if valid:
        findings += report_overlap(
            (held_out.folded, counts.folded), (held_out.lines, counts.lines), runs, "line"
        )
    path: Any = source.path
    return Report(str(path or "builtin"), "text", findings, counts.lengths, "characters")


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += sum(map(len, document.paragraphs))
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_long(line: str) -> bool:
    return len(line) >= LONG or (len(line) >= LONG_CHINESE and line[0] > "\u2e7f")


def _sizes(counts: TextCounts) -> list[Finding]:
    lengths, letters = counts.lengths, int(counts.characters.counts.sum())
    largest = lengths.largest / max(1, lengths.total)
    numbers = {
        "documents": lengths.count,
        "bytes": counts.bytes,
        "words": counts.words,
        "lines": counts.all_lines,
    }
    quantiles = {f"{share:.0%}": lengths.quantile(share) for share in (0.05, 0.5, 0.95)}
    single = (
        lengths.count > 100
        and counts.all_lines / lengths.count < 1.1
        and lengths.quantile(0.5) < 200
    )
    summary = (
        f"5% below {quantiles['5%']:,} characters,"
        f" half below {quantiles['50%']:,}, 95% below {quantiles['95%']:,}"
    )
    advice = (
        "Nearly every document is one short line:"
        " is there a blank line between the lines of one text?"
    )
    return [
        judge(
            "size",
            f"{counted(lengths.count, 'document')}, {spell_size(counts.bytes)},"
            f" {counted(counts.words, 'word')}{_explain_words(counts)},"
            f" {counted(letters, 'character')}; blank lines and lines such as <doc> do not count",
            -letters,
            look=-1_000_000,
            bad=-20_000,
            advice="Little text for pretraining: a model will soon have memorised it.",
            numbers=numbers,
        ),
        judge(
            "largest document",
            f"{lengths.largest:,} characters, {format_percent(largest)} of the text",
            largest,
            look=0.2,
            bad=0.9,
            advice=(
                "One document holds most of the text:"
                " blank lines end documents (data.lines says how lines are read)."
            ),
            numbers={"characters": lengths.largest},
        ),
        judge("lengths", summary, float(single), look=0.5, bad=2, advice=advice, numbers=quantiles),
    ]


def _judge_joined(counts: TextCounts, source: TextSource) -> Finding:
    found = source.lines == "auto"
    return judge(
        "joined lines",
        f"{counted(counts.joined, 'line')} joined to the one before (data.lines={source.lines})",
        float(found and counts.joined > 0),
        look=0.5,
        bad=2,
        advice=(
            "The text looks broken at a width, so its lines were joined:"
            " data.lines=paragraph keeps each."
        ),
        numbers={"lines": counts.joined},
    )


def _judge_html(counts: TextCounts, source: TextSource) -> Finding:
    first = counts.example.rpartition(":")[0]
    advice = f": {spell_remedy(first, source.field)}"
    return judge_markup(counts.html, counts.lengths.count, counts.example, "documents", advice)


def _explain_words(counts: TextCounts) -> str:
    """The definition of a word, if much of the text is Chinese."""
    if counts.characters.scripts().get("Han", 0) < MENTIONED:
        return ""
    return " of the segmenter" if counts.segmenter else " (of Chinese, its characters)"


def _repeats(counts: TextCounts) -> list[Finding]:
    exact, folded, lines = counts.documents.share, counts.folded.share, counts.lines.share
    top = [(line, _count(counts.lines, line)) for line, _ in counts.often.most_common(100)]
    top = sorted(((line, count) for line, count in top if count > 1), key=lambda item: -item[1])[:5]
    examples = "".join(f"; {count:,} x '{shorten(line, 40)}'" for line, count in top[:2])
    advice = (
        "Copies are read as often as they occur and may be in train and validation:"
        " remove them before tokenizing."
    )
    return [
        judge(
            "duplicate documents",
            f"{format_percent(exact)} are copies of an earlier one{_estimate(counts.documents)}",
            exact,
            look=0.001,
            bad=0.05,
            advice=advice,
            numbers={"share": exact},
        ),
        judge(
            "near-duplicate documents",
            f"{format_percent(folded)} are copies but for case and white space"
            f"{_estimate(counts.folded)}",
            folded,
            look=0.001,
            bad=0.05,
            advice=advice,
            numbers={"share": folded},
        ),
        judge(
            "duplicate lines",
            f"{format_percent(lines)} of the longer lines repeat an earlier"
            f" one{_estimate(counts.lines)}{examples}",
            lines,
            look=0.05,
            bad=0.3,
            advice="Remove what repeats (menus, notices, licences): a model learns it first.",
            numbers={"share": lines, "most frequent": {line: count for line, count in top}},
        ),
    ]


def _count(lines: Repeats, line: str) -> int:
    return lines.count(hash_texts([line])[0])


def _estimate(repeats: Repeats) -> str:
    return "" if repeats.kept == 1 else f" (estimated from 1 in {1 / repeats.kept:.0f})"
