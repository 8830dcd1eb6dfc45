"""Tokens per second of the loader alone on one core: rows, token masking, collation to tensors, no
model.

    OMP_NUM_THREADS=1 python benchmarks/loader.py [--tokens 20000000] [--batch 65536] [--seconds 3]

The corpus is made up (documents of log-normal length around 400 tokens, sentences around 20, uint16
ids of a 30,522-word vocabulary). Each figure is the fastest of many batches of rows in shuffled
order. "noise" is masking alone on rows that exist; "rows" is format + noise in numpy; "batches" is
all of it, as training sees it without the prefetch thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from made_vocab import SIZE, VOCAB

from plmctl.core.collate import collate
from plmctl.data.formats.base import Format
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.full_sentences import FullSentences
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import RowSource
from plmctl.data.reader import ReadPosition, RowReader
from plmctl.noise.token_mask import TokenMask
from plmctl.text.vocab import Vocab


@dataclass
class Corpus:
    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    tracks: dict[str, np.ndarray] = field(default_factory=dict)
    spans: dict[str, Any] = field(default_factory=dict)
    pairs: bool = False
    fingerprint: str = "made up"
    vocab_size: int = SIZE


def corpus(tokens: int) -> Corpus:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(3.0, 0.5, tokens // 18).astype(np.int64) + 1
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    sentences = sentences[sentences <= tokens]
    per_document = rng.lognormal(2.7, 0.8, len(sentences) // 10).astype(np.int64) + 1
    documents = np.concatenate([[0], np.cumsum(per_document)])
    documents = np.append(documents[documents < len(sentences) - 1], len(sentences) - 1)
    ids = rng.integers(1000, SIZE, int(sentences[-1]), dtype=np.uint16)
    return Corpus(ids, sentences, documents)


def best(make: Callable[[], int], seconds: float) -> float:
    """Million tokens a second of the fastest round."""
    fastest, stop = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < stop:
        begun = time.perf_counter()
        count = make()
        fastest = max(fastest, count / (time.perf_counter() - begun) / 1e6)
    return fastest


def measure(
    name: str, shards: Any, format: Format, vocab: Vocab, batch: int, seconds: float
) -> None:
    begun = time.perf_counter()
    rows = batch // format.max_length
    reader = RowReader(shards, format, seed=0, batch_size=rows)
    reader.order(0)
    planned = time.perf_counter() - begun
    source = RowSource(reader, TokenMask(vocab=vocab, rate=0.15))
    plain = reader.rows(0, reader.order(0)[:rows])
    place = ReadPosition()

    def noise() -> int:
        source.noise(plain, reader.draws(0))  # type: ignore[misc]
        return rows * format.max_length

    def numpy_rows() -> int:
        nonlocal place
        parts, place = reader.take(place)
        source.rows("text", parts, None)
        return rows * format.max_length

    def batches() -> int:
        nonlocal place
        parts, place = reader.take(place)
        collate(source.rows("text", parts, None), source.capacity())
        return rows * format.max_length

    batches()  # imports torch
    found = [best(each, seconds) for each in (noise, numpy_rows, batches)]
    padding = reader.plan(0).report["padding"] / (reader.plan(0).rows * format.max_length)
    print(
        f"{name:<24}{format.max_length:>5}  "
        + "".join(f"{x:>9.0f}" for x in found)
        + f"{planned:>9.2f}{padding:>10.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--batch", type=int, default=65_536, help="tokens of a batch")
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    shards = corpus(chosen.tokens)
    print(
        f"{len(shards.ids):,} tokens, {len(shards.documents) - 1:,} documents; million tokens/s,"
        " padding included"
    )
    print(
        f"{'format':<24}{'T':>5} "
        f" {'noise':>9}{'rows':>9}{'batches':>9}{'plan, s':>9}{'padding':>10}"
    )
    for length in (128, 512):
        formats: dict[str, Format] = {
            "blocks, crossing": Blocks(
                vocab=VOCAB, max_length=length, crossing=True, specials=False
            ),
            "blocks, packed": Blocks(vocab=VOCAB, max_length=length, crossing=False, specials=True),
            "full_sentences": FullSentences(vocab=VOCAB, max_length=length, crossing=True),
            "sentence_pair": SentencePair(
                vocab=VOCAB, max_length=length, short_rate=0.1, random_rate=0.5
            ),
        }
        for name, format in formats.items():
            measure(name, shards, format, VOCAB, chosen.batch, chosen.seconds)


if __name__ == "__main__":
    main()
