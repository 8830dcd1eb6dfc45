"""Documents to ids on all cores: chunks of documents go to a pool of processes and come back in order."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmctl.errors import DataError
from plmctl.text import annotate
from plmctl.text.reader import Document
from plmctl.text.tokenizer import Tokenizer

CHUNK = 1 << 20  # characters
COLUMNS = ("sentences", "tokens", "bytes", "characters", "words", "new")  # of `Encoded.documents`


@dataclass(frozen=True)
class Encoded:
    """The tokens of some documents of one split."""

    ids: np.ndarray  # [N]
    lengths: np.ndarray  # [S] tokens of each sentence, at least one
    documents: np.ndarray  # [D, 6] int64, see COLUMNS; new = 0: goes on with the document before it
    tracks: dict[str, np.ndarray]


class Encoder:
    """Documents -> `Encoded`, in this process."""

    def __init__(self, tokenizer: Tokenizer, segment: str | None) -> None:
        self._tokenizer, self._tracks = tokenizer, annotate.tracks(tokenizer, segment)

    def __call__(self, documents: list[Document]) -> Encoded:
        texts, rows, counts = [], [], []
        for document in documents:
            segments = document.segments if self._tokenizer.lossless else document.sentences
            text = "\n".join(document.paragraphs)
            broken = document.continues  # the line break before a further part
            size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            counts.append(len(segments))
            rows.append((size + broken, len(text) + broken, len(text.split()), not document.continues))
            texts += segments
        ids, lengths = self._tokenizer.encode_flat(texts)
        tracks = {name: track(texts, ids, lengths) for name, track in self._tracks.items()}
        owner = np.repeat(np.arange(len(documents)), counts)
        sentences = np.bincount(owner[lengths > 0], minlength=len(documents))  # texts without tokens are no sentences
        tokens = np.bincount(owner, weights=lengths, minlength=len(documents)).astype(np.int64)
        table = np.column_stack([sentences, tokens, np.array(rows, np.int64).reshape(-1, 4)])
        return Encoded(ids, lengths[lengths > 0], table, tracks)


Labelled = tuple[Document, str]  # with its split


def encoded(
    documents: Iterable[Labelled], tokenizer_folder: Path, segment: str | None, processes: int
) -> Iterator[dict[str, Encoded]]:
    """For each chunk of documents, what belongs to each split; the same whatever the number of processes."""
    chunks = _chunks(documents)
    first = list(itertools.islice(chunks, 3))  # little text is done sooner than a pool is up
    if processes < 2 or len(first) < 3:
        encoder = Encoder(Tokenizer.load(tokenizer_folder), segment)
        for chunk in itertools.chain(first, chunks):
            yield _by_split(encoder, chunk)
        return
    chosen = "fork" if sys.platform == "linux" else "spawn"
    warned = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # or the library complains at each fork
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context(chosen), _prepare, (tokenizer_folder, segment))
    try:
        waiting: deque[Future[dict[str, Encoded]]] = deque()
        for chunk in itertools.chain(first, chunks):
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) > processes + 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataError("a tokenizing process was killed (out of memory?)", fix="processes=1") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if warned is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = warned


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(documents: Iterable[Labelled]) -> Iterator[list[Labelled]]:
    chunk: list[Labelled] = []
    size = 0
    for document, split in documents:
        chunk.append((document, split))
        size += sum(map(len, document.paragraphs)) + 64
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _by_split(encoder: Encoder, chunk: list[Labelled]) -> dict[str, Encoded]:
    names = dict.fromkeys(split for _, split in chunk)
    return {name: encoder([document for document, split in chunk if split == name]) for name in names}


_encoder: Encoder | None = None  # of a pool's process


def _prepare(tokenizer_folder: Path, segment: str | None) -> None:
    global _encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    _encoder = Encoder(Tokenizer.load(tokenizer_folder), segment)


def _work(chunk: list[Labelled]) -> dict[str, Encoded]:
    assert _encoder is not None
    return _by_split(_encoder, chunk)
