"""Every row format on one corpus: planning time, rows, padding, documents cut, and the time to a
first row anywhere.

    OMP_NUM_THREADS=1 python benchmarks/formats.py [--tokens DIR | --synthetic 100000000]
        [--length 128 512]

`--tokens` reads a token directory; `--synthetic` writes one of made-up numbers (documents of
log-normal length around 400 tokens, sentences around 20; parallel text of pairs of such sentences)
into a temporary folder, mapped like a real one.

plan     seconds to plan an epoch and to draw its order of reading, on one core (CPU seconds;
         nothing of it kept before)
again    seconds to the first row at a random row number when a new reader opens the directory for
         the second time; the worst of some numbers. Large corpora have their plans in files then.
row      milliseconds to a row at a random row number from then on, the median of 100
padding  share of the places of all rows; docs cut: share of the documents (pairs) that no row
         holds whole; lost and repeated: of the tokens; peak: memory so far, mapped files included
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from made_vocab import SIZE, VOCAB

from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.edges import document_edges
from plmctl.data.formats.full_sentences import FullSentences
from plmctl.data.formats.prefix import Prefix
from plmctl.data.formats.segments import Segments
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.formats.seq2seq import Seq2Seq
from plmctl.data.formats.stream_pair import StreamPair
from plmctl.data.formats.text_pair import TextPair
from plmctl.data.reader import RowReader
from plmctl.data.shards import Shards
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

STREAMS = 256
SHARES = ("padding", "docs cut", "lost", "repeated")
WANTED = frozenset({"tracks.document", "tracks.position", "tracks.segment"})


class Made:
    """Arrays in files, mapped, with the attributes of `Shards`."""

    def __init__(self, folder: Path, pairs: bool) -> None:
        self.folder, self.pairs = folder, pairs
        self.ids, self.sentences, self.documents = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("ids", "sentences", "documents")
        )
        self.tracks: dict[str, Any] = {}
        self.spans: dict[str, Any] = {}
        self.fingerprint = f"made up {len(self.ids)} {pairs}"
        self.vocab_size = SIZE


def write(folder: Path, tokens: int, pairs: bool) -> None:
    """A corpus of about `tokens` made-up tokens."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    lengths = rng.lognormal(3.0, 0.5, tokens // 22).astype(np.int64) + 1
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    sentences = sentences[: len(sentences) - (len(sentences) - 1) % 2]
    if pairs:
        documents = np.arange(0, len(sentences), 2)
    else:
        documents = np.concatenate(
            [[0], np.cumsum(rng.lognormal(2.7, 0.8, len(sentences) // 10).astype(np.int64) + 1)]
        )
        documents = np.append(documents[documents < len(sentences) - 1], len(sentences) - 1)
    ids = np.lib.format.open_memmap(folder / "ids.npy", "w+", np.uint16, (int(sentences[-1]),))
    for low in range(0, len(ids), 1 << 24):
        ids[low : low + (1 << 24)] = rng.integers(
            1000, SIZE, len(ids[low : low + (1 << 24)]), dtype=np.uint16
        )
    ids.flush()
    np.save(folder / "sentences.npy", sentences)
    np.save(folder / "documents.npy", documents)


def formats(vocab: Vocab, length: int, pairs: bool) -> dict[str, Format]:
    """Those that read plain text, or those that read parallel text."""
    same: dict[str, Any] = {"vocab": vocab, "max_length": length}
    if pairs:
        return {
            "prefix (parallel)": Prefix(**same, short_rate=0.0, target_length=length // 2 - 2),
            "seq2seq": Seq2Seq(**same, target_length=length, truncated=False),
            "text_pair, packed": TextPair(**same, packed=True),
            "text_pair, one a row": TextPair(**same, packed=False),
        }
    return {
        "blocks, best fit": Blocks(**same, crossing=False, specials=True),
        "blocks, concatenate and cut": Blocks(**same, crossing=True, specials=False),
        "full_sentences": FullSentences(**same, crossing=True),
        "doc_sentences, packed": FullSentences(**same, crossing=False, packed=True),
        "doc_sentences, one a row": FullSentences(**same, crossing=False),
        "sentence_pair (BERT)": SentencePair(**same, short_rate=0.1, random_rate=0.5),
        "sentence_order (ALBERT)": SentencePair(
            **same, short_rate=0.1, random_rate=0.0, swap_rate=0.5
        ),
        "sentence_structure (StructBERT)": SentencePair(
            **same, short_rate=0.1, random_rate=1 / 3, swap_rate=1 / 3, lone_rate=0.0
        ),
        "segment_pair": SentencePair(**same, short_rate=0.0, random_rate=0.5),
        "sentence_pair_single": SentencePair(
            **same, short_rate=0.0, random_rate=0.5, single=True, packed=True
        ),
        "prefix (plain text)": Prefix(**same, short_rate=0.0, target_length=length // 2 - 2),
        "segments": Segments(**same, streams=STREAMS, shuffled=False),
        "stream_pair (XLNet)": StreamPair(
            **same, reuse_length=length // 2, streams=STREAMS, random_rate=0.5, reversed=True
        ),
    }


def documents_cut(shards: Any, plan: Plan) -> float:
    """The share of documents (pairs) of which no row, or no two neighbouring pieces of a row,
    hold every token.
    """
    edges = document_edges(shards)
    start, end = plan.arrays["start"], plan.arrays["start"] + plan.arrays["size"]
    # pieces that go on where the one before them ends
    joined = np.flatnonzero(start[1:] == end[:-1]) + 1
    joined = joined[~np.isin(joined, plan.arrays["row_start"])]
    start = np.concatenate([start, start[joined - 1]])
    end = np.concatenate([end, end[joined]])
    document = np.searchsorted(edges, start, side="right") - 1
    whole = (start <= edges[document]) & (end >= edges[np.minimum(document + 1, len(edges) - 1)])
    return 1 - len(np.unique(document[whole])) / (len(edges) - 1)


def timed(make: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    begun = clock()
    made = make()
    return clock() - begun, made


def measure(name: str, open_shards: Callable[[], Any], format: Format) -> None:
    shards = open_shards()
    shutil.rmtree(Path(shards.folder) / "plans", ignore_errors=True)

    def read() -> RowReader:
        reader = RowReader(open_shards(), format, seed=0, batch_size=STREAMS, wanted=WANTED)
        reader.order(0)
        return reader

    planned, reader = timed(read, time.process_time)
    plan, rng = reader.plan(0), np.random.default_rng(1)
    places = rng.integers(0, plan.rows, 5)
    again = max(
        timed(lambda p=p: (fresh := read()).rows(0, fresh.order(0)[p : p + 1]), time.perf_counter)[
            0
        ]
        for p in places
    )
    rows = [
        timed(lambda p=p: reader.rows(0, reader.order(0)[p : p + 1]), time.perf_counter)[0]
        for p in rng.integers(0, plan.rows, 100)
    ]
    report = plan.report
    kept = report["tokens"] - report["cut"] - report["dropped"]
    print(
        f"{name:<32}{format.max_length:>5}{planned:>9.2f}{again:>9.3f}"
        f"{np.median(rows) * 1e3:>8.2f}{plan.rows:>13,}"
        f"{report['padding'] / (plan.rows * plan.width):>9.2%}{documents_cut(shards, plan):>9.2%}"
        f"{1 - kept / report['tokens']:>9.2%}{report['repeated'] / report['tokens']:>9.2%}"
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:>9.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tokens", type=Path, help="a token directory (plmctl tokenize)")
    parser.add_argument(
        "--synthetic", type=float, default=1e7, help="made-up tokens, where no directory is given"
    )
    parser.add_argument("--length", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--only", default="", help="formats whose name has this in it")
    chosen = parser.parse_args()
    columns = (
        ("plan s", 9),
        ("again s", 9),
        ("row ms", 8),
        ("rows", 13),
        *((x, 9) for x in SHARES),
        ("peak GB", 9),
    )
    head = "".join(f"{column:>{width}}" for column, width in columns)
    with tempfile.TemporaryDirectory() as folder:
        for pairs in (False, True):
            vocab, opened = _corpus(chosen, Path(folder) / f"pairs-{pairs}", pairs)
            shards = opened()
            if shards.pairs != pairs:
                continue
            print(
                f"{len(shards.ids):,} tokens, {len(shards.sentences) - 1:,} sentences,"
                f" {len(shards.documents) - 1:,} documents"
            )
            print(f"{'format':<32}{'T':>5}{head}")
            for length in chosen.length:
                for name, format in formats(vocab, length, pairs).items():
                    if chosen.only in name:
                        measure(name, opened, format)


def _corpus(
    chosen: argparse.Namespace, folder: Path, pairs: bool
) -> tuple[Vocab, Callable[[], Any]]:
    if chosen.tokens:
        return Tokenizer.load(chosen.tokens).vocab, lambda: Shards.open(chosen.tokens)
    write(folder, int(chosen.synthetic), pairs)
    return VOCAB, lambda: Made(folder, pairs)


if __name__ == "__main__":
    main()
