"""From documents to ids on all cores: a pool of processes encodes chunks of documents in order."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from plmctl.core.children import follow_maker
from plmctl.core.errors import PlmctlError
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.text.annotate import Wanted, choose_word_starts
from plmctl.text.document import Document
from plmctl.text.marks import Placer, make_track
from plmctl.text.tokenizer import Tokenizer

CHUNK = 1 << 20  # characters
# columns of `Encoded.documents`
COLUMNS = ("sentences", "tokens", "bytes", "characters", "words", "new")


@dataclass(frozen=True)
class Encoded:
    """The tokens of some documents of one split."""

    ids: np.ndarray  # [N]
    lengths: np.ndarray  # [S] tokens of each sentence, at least one
    documents: np.ndarray  # [D, 6] int64, see COLUMNS; new = 0: continues the document before it
    tracks: dict[str, np.ndarray]
    spans: dict[str, np.ndarray]  # [m, 3] int64 start, length, id
    left: Counter[str]  # how many marks and pairs were left out, by reason
    read: int  # documents that were read, including documents that were left out


class DocumentEncoder:
    """Encodes documents in this process."""

    def __init__(self, tokenizer: Tokenizer, wanted: Wanted) -> None:
        self._tokenizer, self._tags = tokenizer, wanted.tags
        self._words = choose_word_starts(tokenizer, wanted.segment)
        self._placer = Placer(tokenizer, (*wanted.spans, *wanted.tags))

    def __call__(self, documents: Sequence[Document]) -> Encoded:
        texts = [
            document.segments if self._tokenizer.lossless else document.sentences
            for document in documents
        ]
        flat = [text for texts_of_document in texts for text in texts_of_document]
        ids, lengths = self._encode(flat, pairs=bool(documents) and documents[0].pair)
        if documents and documents[0].pair and not lengths.all():
            return self._encode_complete_pairs(documents, lengths)
        words = {} if self._words is None else {"word_start": self._words(flat, ids, lengths)}
        spans, left = self._placer([document.marks for document in documents], texts, lengths)
        tags = {name: make_track(spans.pop(name), len(ids)) for name in self._tags}
        if documents and documents[0].running:
            ids, lengths, ends = close_lines(flat, ids, lengths, self._tokenizer)
            words = {name: np.insert(track, ends, 1) for name, track in words.items()}
        owner = np.repeat(
            np.arange(len(documents)),
            np.array([len(texts_of_document) for texts_of_document in texts], np.int64),
        )
        # texts without tokens do not count as sentences
        sentences = np.bincount(owner[lengths > 0], minlength=len(documents))
        tokens = np.bincount(owner, weights=lengths, minlength=len(documents)).astype(np.int64)
        table = np.column_stack([sentences, tokens, _measure(documents)])
        return Encoded(ids, lengths[lengths > 0], table, words | tags, spans, left, len(documents))

    def _encode(self, texts: Sequence[str], *, pairs: bool) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_flat`; of pairs, each second text is a target."""
        own, other = self._tokenizer, self._tokenizer.for_targets
        if other is own or not pairs:
            return own.encode_flat(texts)
        encoded = [(other if place % 2 else own).encode(text) for place, text in enumerate(texts)]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        return np.array([n for ids in encoded for n in ids], own.dtype), lengths

    def _encode_complete_pairs(self, documents: Sequence[Document], lengths: np.ndarray) -> Encoded:
        """Encode only the pairs that have tokens on both sides."""
        complete = lengths.reshape(-1, 2).min(1) > 0
        encoded = self(
            [document for document, kept in zip(documents, complete, strict=True) if kept]
        )
        encoded.left["pairs with an empty side"] = int((~complete).sum())
        return replace(encoded, read=len(documents))


def _measure(documents: Sequence[Document]) -> np.ndarray:
    """[D, 4] int64: bytes, characters, words, new."""
    rows = []
    for document in documents:
        text = ("" if document.running else "\n").join(document.paragraphs)
        line_break = document.continues and not document.running  # before a further part
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        rows.append(
            (size + line_break, len(text) + line_break, len(text.split()), not document.continues)
        )
    return np.array(rows, np.int64).reshape(-1, 4)


def close_lines(
    pieces: Sequence[str], ids: np.ndarray, lengths: np.ndarray, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids, lengths, where tokens were added): the end-of-text token stands behind each line of
    running text; with a tokenizer that keeps line breaks none is added.

    Args:
        ids: [N] of all pieces.
        lengths: [S] ids of each piece.
    """
    closed = np.array([piece.endswith("\n") for piece in pieces], bool) & (not tokenizer.lossless)
    ends = np.cumsum(lengths)[closed]
    if len(ends):
        ids = np.insert(ids, ends, make_closing_wrap(tokenizer.vocab).after[0])
    return ids, lengths + closed, ends


Labelled = tuple[Document, str]  # with its split


def encode_documents(
    documents: Iterable[Labelled], tokenizer_folder: Path, wanted: Wanted, processes: int
) -> Iterator[dict[str, Encoded]]:
    """Encode documents in chunks, with `processes` processes; their number does not change the
    result.

    Yields:
        For each chunk, the encoded documents of each split.
    """
    chunks = _chunks(documents)
    first = list(
        itertools.islice(chunks, 3)
    )  # little text takes less time than the start of a pool
    if processes < 2 or len(first) < 3:
        encoder = DocumentEncoder(Tokenizer.load(tokenizer_folder), wanted)
        for chunk in itertools.chain(first, chunks):
            yield _by_split(encoder, chunk)
        return
    method = "fork" if sys.platform == "linux" else "spawn"
    warned = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # or the library complains at each fork
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context(method), _prepare, (tokenizer_folder, wanted)
    )
    try:
        waiting: deque[Future[dict[str, Encoded]]] = deque()
        for chunk in itertools.chain(first, chunks):
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) > processes + 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        message = "a tokenizing process was killed (out of memory?)\n  fix: processes=1"
        raise PlmctlError(f"{message}; finished chunks are kept") from error
    finally:
        # wait for the chunks in work, since the pool may otherwise close its pipes twice
        pool.shutdown(cancel_futures=True)
        if warned is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = warned


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


def _by_split(encoder: DocumentEncoder, chunk: list[Labelled]) -> dict[str, Encoded]:
    names = dict.fromkeys(split for _, split in chunk)
    return {
        name: encoder([document for document, split in chunk if split == name]) for name in names
    }


_encoder: DocumentEncoder | None = None  # the encoder of a process of a pool


def _prepare(tokenizer_folder: Path, wanted: Wanted) -> None:
    global _encoder
    # if the main process is killed, its pool would otherwise wait for work for ever
    follow_maker(patience=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    _encoder = DocumentEncoder(Tokenizer.load(tokenizer_folder), wanted)


def _work(chunk: list[Labelled]) -> dict[str, Encoded]:
    assert _encoder is not None
    return _by_split(_encoder, chunk)
