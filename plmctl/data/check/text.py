"""A look at raw text: one pass over the documents, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.data.check import overlap
from plmctl.data.check.characters import CharacterCounts
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
from plmctl.text.reader import Document

LONG, LONG_CHINESE = 32, 12  # characters from which on a line is no heading
_BATCH = 1 << 20  # characters looked at together
_SHOWN = 1000  # repeated lines that are remembered, to show the most frequent


class TextCounts:
    """What one pass has counted."""

    def __init__(self) -> None:
        self.characters, self.lengths = CharacterCounts(), LengthHistogram()
        self.documents, self.folded, self.lines = Repeats(), Repeats(), Repeats()
        self.bytes = self.words = self.all_lines = 0
        self.often: Counter[str] = Counter()  # lines that occur more than once in a batch
        self._open = 0  # characters of the last document, whose next part may still come

    def add(self, batch: list[Document]) -> None:
        texts = ["\n".join(document.paragraphs) for document in batch]
        joined = "\n".join(texts)
        self.characters.add(joined)
        self.bytes += len(joined.encode("utf-8", "surrogatepass"))
        self.words += len(joined.split())
        for document, text in zip(batch, texts, strict=True):
            if not document.continues:
                self.lengths.add([self._open])
                self._open = 0
            self._open += len(text)
        whole = [
            (document, text)
            for document, text in zip(batch, texts, strict=True)
            if not document.continues
        ]
        self.documents.add(np.array([document.identity for document, _ in whole], np.uint64))
        self.folded.add(hash_texts(" ".join(text.lower().split()) for _, text in whole))
        lines = [line for document in batch for line in document.paragraphs]
        self.all_lines += len(lines)
        long = [line for line in lines if _is_long(line)]
        self.lines.add(hash_texts(long))
        self.often.update({line: count for line, count in Counter(long).items() if count > 1})
        if len(self.often) > _SHOWN:
            self.often = Counter(dict(self.often.most_common(_SHOWN // 2)))

    def close(self) -> None:
        self.lengths.add([self._open])
        self._open = 0


def check(
    source: TextSource, valid: TextSource | None = None, *, say: Say = ignore_progress
) -> Report:
    """The report on the documents of `source`, and on what `valid` shares with them."""
    found, words, runs = TextCounts(), overlap.Words(), OverlapCounter()
    other = TextCounts()
    for batch in _batches(valid.documents()) if valid else ():
        other.add(batch)
        runs.held(*words(["\n".join(document.paragraphs) for document in batch]))
    for batch in _batches(source.documents()):
        found.add(batch)
        if valid:
            runs.seen(*words(["\n".join(document.paragraphs) for document in batch]))
        say("reading", found.bytes, 0)
    found.close()
    other.close()
    if not found.lengths.count:
        raise DataError(
            "there are no documents in it", file=source.path, fix="name files with text"
        )
    findings = [*_sizes(found), *_repeats(found), *found.characters.findings(found.words)]
    if valid:
        findings += report_overlap(
            (other.folded, found.folded), (other.lines, found.lines), runs, "line"
        )
    path: Any = source.path
    return Report(str(path or "builtin"), "text", findings, found.lengths, "characters")


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


def _sizes(found: TextCounts) -> list[Finding]:
    lengths, letters = found.lengths, int(found.characters.counts.sum())
    largest = lengths.largest / max(1, lengths.total)
    numbers = {
        "documents": lengths.count,
        "bytes": found.bytes,
        "words": found.words,
        "lines": found.all_lines,
    }
    quantiles = {f"{share:.0%}": lengths.quantile(share) for share in (0.05, 0.5, 0.95)}
    single = (
        lengths.count > 100
        and found.all_lines / lengths.count < 1.1
        and lengths.quantile(0.5) < 200
    )
    shown = (
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
            f"{lengths.count:,} documents, {found.bytes / 1e6:,.1f} MB,"
            f" {found.words:,} words, {letters:,} characters",
            -letters,
            look=-1_000_000,
            bad=-20_000,
            advice="Little text for pretraining: a model will soon know it by heart.",
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
        judge("lengths", shown, float(single), look=0.5, bad=2, advice=advice, numbers=quantiles),
    ]


def _repeats(found: TextCounts) -> list[Finding]:
    exact, folded, lines = found.documents.share, found.folded.share, found.lines.share
    top = [(line, _count(found.lines, line)) for line, _ in found.often.most_common(100)]
    top = sorted(((line, count) for line, count in top if count > 1), key=lambda item: -item[1])[:5]
    shown = "".join(f"; {count:,} x '{shorten(line, 40)}'" for line, count in top[:2])
    advice = (
        "Copies are read once for each copy and may stand in train and validation:"
        " remove them before tokenizing."
    )
    return [
        judge(
            "duplicate documents",
            f"{format_percent(exact)} are copies of an earlier one{_estimated(found.documents)}",
            exact,
            look=0.001,
            bad=0.05,
            advice=advice,
            numbers={"share": exact},
        ),
        judge(
            "near-duplicate documents",
            f"{format_percent(folded)} are copies but for case and white space"
            f"{_estimated(found.folded)}",
            folded,
            look=0.001,
            bad=0.05,
            advice=advice,
            numbers={"share": folded},
        ),
        judge(
            "duplicate lines",
            f"{format_percent(lines)} of the longer lines repeat an earlier"
            f" one{_estimated(found.lines)}{shown}",
            lines,
            look=0.05,
            bad=0.3,
            advice="Strip what repeats (menus, notices, licences): a model learns it first.",
            numbers={"share": lines, "most frequent": {line: count for line, count in top}},
        ),
    ]


def _count(lines: Repeats, line: str) -> int:
    return lines.count(hash_texts([line])[0])


def _estimated(repeats: Repeats) -> str:
    return "" if repeats.kept == 1 else f" (estimated from 1 in {1 / repeats.kept:.0f})"
