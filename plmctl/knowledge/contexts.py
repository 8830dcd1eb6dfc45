"""Words of a corpus with their contexts, found in two passes of bounded memory (Schick and Schütze,
2019, released preprocessing).

    words.tsv        a word and its count in each line; its number is its id
    contexts.jsonl   a word in each line, with contexts: {"text": "ctx\\nctx ...", "word": [marks]}
    contexts.json    settings and counts

`contexts.jsonl` is text with marks, as `data.path=<folder> data.spans=[word] data.lines=sentence`
reads it. A word is a document, a context a sentence, and the mark of a context is the word in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plmctl.core.errors import DataError
from plmctl.knowledge.words import WordCounts, find_words
from plmctl.storage.atomic import open_folder, write_json
from plmctl.storage.gate import admit, open_file
from plmctl.text.tabular import read_rows

CONTEXTS, RECORD = "contexts.jsonl", "contexts.json"
BUCKETS = 25  # files between the passes; one of them at a time is in memory
_BREAKS = re.compile(r"[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]")
ROOM = 1 << 22  # different words in memory; beyond it, those seen once so far are forgotten


class Context(NamedTuple):
    """A text with a word from character `start` to `end`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class ContextSettings:
    """The choice of words and contexts.

    Args:
        least: The least count of a word in the corpus, without a list of words.
        contexts: The most contexts of a word, spread evenly over the corpus.
        window: words on each side of the word, within its sentence.
    """

    least: int = 100
    contexts: int = 1000
    window: int = 25


def write_contexts(
    sentences: Callable[[], Iterable[str]],
    out: Path,
    settings: ContextSettings,
    *,
    words: Sequence[str] | None = None,
) -> dict[str, int]:
    """Write a folder of words with contexts, which appears when it is complete.

    Args:
        sentences: reads the corpus, once for each pass.
        words: The words to take; None: all that are frequent enough.

    Returns:
        How many words, contexts, and words without a context there are.

    Raises:
        DataError: if no word is frequent enough.
    """
    table = count_words(sentences(), settings.least, words)
    if not len(table):
        raise DataError(
            f"no word stands {settings.least} times in this text", fix="a smaller least="
        )
    with open_folder(out) as partial:
        kept = _fill_buckets(sentences(), table, settings, partial)
        _write_documents(partial)
        table.write(partial)
        counted = {
            "words": len(table),
            "contexts": sum(kept),
            "without": sum(number == 0 for number in kept),
        }
        write_json(partial / RECORD, {**asdict(settings), **counted})
    return counted


def read_contexts(folder: Path, table: WordCounts) -> dict[str, list[Context]]:
    """The contexts of each word of a folder, in memory; words without one have no entry.

    Raises:
        DataError: for a line that does not fit the table.
    """
    file, found = folder / CONTEXTS, dict[str, list[Context]]()
    for number, row in read_rows(file, ["text", "word"]) if file.is_file() else ():
        try:
            texts = str(row["text"]).split("\n")
            begins = np.cumsum([0, *(len(text) + 1 for text in texts)]).tolist()
            word = table.spellings[row["word"][0]["id"]]
            found[word] = [
                Context(text, mark["start"] - begin, mark["end"] - begin)
                for text, mark, begin in zip(texts, row["word"], begins, strict=False)
            ]
        except (KeyError, IndexError, TypeError) as error:
            fix = "write the folder again with plmctl data contexts"
            raise DataError("no contexts of a word", file=file, line=number, fix=fix) from error
    return found


def count_words(
    sentences: Iterable[str], least: int, words: Sequence[str] | None = None
) -> WordCounts:
    """The words of a text with their counts: all of `words`, or all with a count of at least
    `least`, most frequent first.
    """
    counts: Counter[str] = Counter()
    asked = None if words is None else frozenset(words)
    for _, found in find_words(sentences):
        counts.update(match[0] for match in found if asked is None or match[0] in asked)
        if len(counts) > ROOM:
            counts = Counter({word: count for word, count in counts.items() if count > 1})
    if words is not None:
        return WordCounts(tuple(words), tuple(counts[word] for word in words))
    ordered = sorted(
        ((word, count) for word, count in counts.items() if count >= least),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return WordCounts(tuple(word for word, _ in ordered), tuple(count for _, count in ordered))


def is_taken(number: int, count: int, most: int) -> bool:
    """Whether occurrence `number` of `count` is among the `most` that are spread evenly.

    count 5, most 2:  0 no | 1 no | 2 yes | 3 no | 4 yes
    """
    return count <= most or (number + 1) * most // count > number * most // count


def _fill_buckets(
    sentences: Iterable[str], table: WordCounts, settings: ContextSettings, folder: Path
) -> list[int]:
    """Write every context that is taken into the bucket of its word; how many each word has."""
    seen, kept = [0] * len(table), [0] * len(table)
    with ExitStack() as stack:
        buckets = [
            stack.enter_context(open_file(folder / f"bucket-{n}", "w")) for n in range(BUCKETS)
        ]
        for text, found in find_words(sentences):
            for place, match in enumerate(found):
                word = table.ids.get(match[0])
                if word is None:
                    continue
                seen[word] += 1
                if not is_taken(seen[word] - 1, table.counts[word], settings.contexts):
                    continue
                kept[word] += 1
                first = found[max(0, place - settings.window)].start()
                last = found[min(len(found) - 1, place + settings.window)].end()
                if last == found[-1].end():
                    last = len(text)  # with the mark that ends the sentence
                context = _BREAKS.sub(" ", text[first:last])
                start, end = match.start() - first, match.end() - first
                buckets[word % BUCKETS].write(f"{word}\t{start}\t{end}\t{context}\n")
    return kept


def _write_documents(folder: Path) -> None:
    """Gather the contexts of each word, bucket by bucket, and remove the buckets."""
    with open_file(folder / CONTEXTS, "w") as stream:
        for place in range(BUCKETS):
            bucket = folder / f"bucket-{place}"
            contexts: dict[int, list[Context]] = defaultdict(list)
            with bucket.open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    number, start, end, text = line.rstrip("\n").split("\t", 3)
                    contexts[int(number)].append(Context(text, int(start), int(end)))
            for word in sorted(contexts):
                stream.write(json.dumps(_document(word, contexts[word]), ensure_ascii=False) + "\n")
            admit(bucket).unlink()


def _document(word: int, contexts: Sequence[Context]) -> dict[str, object]:
    """The contexts of a word as a text with a mark in each line."""
    begins = np.cumsum([0, *(len(context.text) + 1 for context in contexts)]).tolist()
    marks = [
        {"start": begin + context.start, "end": begin + context.end, "id": word}
        for begin, context in zip(begins, contexts, strict=False)
    ]
    return {"text": "\n".join(context.text for context in contexts), "word": marks}
