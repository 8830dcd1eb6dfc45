"""`plmctl vectors`: static vectors of words, learned from a text or taken out of a model."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import load
from plmctl.config.build import build, plain
from plmctl.config.schema import Vectors
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import ProgressLine
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark, tell
from plmctl.data.words import describe_runs
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.vector_files import choose_writer, write_static
from plmctl.probes.word_similarity import take_vectors
from plmctl.storage.atomic import name_written, refuse_existing
from plmctl.storage.gate import admit
from plmctl.text import segment
from plmctl.text.reader import read_documents
from plmctl.text.segmented import space_words
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.vectors.base import VectorMethod
from plmctl.vectors.corpus import SPLITS, WordCorpus, count_corpus
from plmctl.vectors.distilled import Distilled

ASIDE = ".words-"  # what the name of the folder of words begins with
LOOKED = 1000  # sentences, in which runs of Chinese characters are looked for


def make_vectors(spec: Vectors) -> int:
    """Write `out` and say what is in it."""
    out = choose_writer(spec.out)
    refuse_existing(out, spec.overwrite)
    method: Any = build(spec.method, plugins=spec.plugins, path="method")
    _check_model(spec, method)
    torch.set_num_threads(spec.threads)
    if line := describe_runs(islice(read_sentences(spec), LOOKED), SPLITS[spec.split]()):
        remark(line)
    admit(out.parent).mkdir(parents=True, exist_ok=True)
    with (
        name_written(out, out.parent / ASIDE),
        tempfile.TemporaryDirectory(prefix=ASIDE, dir=admit(out.parent)) as folder,
    ):
        began = time.monotonic()
        corpus = count_corpus(
            read_sentences(spec),
            Path(folder),
            least=spec.least,
            split=spec.split,
            lowercase=spec.lowercase,
        )
        remark(
            f"{corpus.total:,} words of {len(corpus.words):,} different ones, read in"
            f" {time.monotonic() - began:.1f} s"
        )
        remark("valid: no text is held out; lists of similar words judge vectors")
        began = time.monotonic()
        make = _learn if isinstance(method, VectorMethod) else _distil
        made = make(spec, method, corpus)
        seconds, read = time.monotonic() - began, corpus.total * getattr(method, "epochs", 1)
    write_static(made, out)
    _report(spec, made, read, seconds)
    return 0


def read_sentences(spec: Vectors) -> Iterator[str]:
    """The sentences of `data.path`, with spaces between Chinese words where data.segment tells
    them.
    """
    path, data = plain(spec.data.path), spec.data
    words = segment.find(data.segment, spec.plugins) if data.segment else None
    for document in read_documents(path, field=data.field, lines=data.lines):
        for sentence in document.sentences:
            yield sentence if words is None else space_words(sentence, words)[0]


def _check_model(spec: Vectors, method: Any) -> None:
    """Raise ConfigError for a model that is not needed, or needed and not given."""
    if isinstance(method, Distilled) and spec.checkpoint is None:
        allowed = "must be given: which model makes the vectors?"
        raise ConfigError("checkpoint", ..., allowed, fix="checkpoint=<run>")
    if isinstance(method, VectorMethod) and spec.checkpoint is not None:
        allowed = "null: this method learns from the text alone"
        raise ConfigError("checkpoint", spec.checkpoint, allowed, fix="method=distilled")


def _learn(spec: Vectors, method: VectorMethod, corpus: WordCorpus) -> StaticVectors:
    show = ProgressLine("words", method.epochs * corpus.total)
    return method.learn(corpus, width=spec.width, seed=spec.seed, show=show)


def _distil(spec: Vectors, method: Distilled, corpus: WordCorpus) -> StaticVectors:
    """What the model makes of the most frequent words."""
    precision = choose("fp32", device_of(spec.device, "device"))
    loaded = load(str(spec.checkpoint), plugins=spec.plugins)
    loaded.model.to(precision.device).eval()
    words = corpus.words[: method.words]
    found = take_vectors(
        loaded,
        words,
        of=method.of,
        sentences=read_sentences(spec),
        most=method.contexts,
        layer=method.layer,
        batch_size=spec.batch_size,
        precision=precision,
    )
    kept = [n for n, word in enumerate(words) if word in found]
    if not kept:
        what = f"the model knows none of the {len(words):,} words of this text"
        raise DataError(what, fix="data.path=<text in its language>")
    table = np.stack([found[words[n]] for n in kept])
    if method.reduce and table.shape[1] < spec.width:
        allowed = f"at most {table.shape[1]}, as many numbers as this model has"
        raise ConfigError("width", spec.width, allowed, fix=f"width={table.shape[1]}")
    shares = corpus.counts[kept] / corpus.total
    return StaticVectors([words[n] for n in kept], method.finish(table, shares, spec.width))


def _report(spec: Vectors, made: StaticVectors, read: int, seconds: float) -> None:
    rate = read / max(seconds, 1e-9)
    if spec.provenance.json:
        about = {"out": spec.out, "words": len(made.words), "width": made.width}
        tell(json.dumps({**about, "seconds": round(seconds, 2), "words a second": round(rate)}))
        return
    tell(
        f"{spec.out}: {len(made.words):,} words of {made.width} numbers, in {seconds:.1f} s"
        f" ({rate:,.0f} words of text a second)"
    )
    if made.subwords is not None and Path(spec.out).suffix != ".safetensors":
        tell("  without the n-grams, which only .safetensors holds: unseen words have no vector")
    vectors = spell_setting("checkpoint", spec.out)
    tell(f"next: plmctl eval {vectors} task=word_similarity task.path=<lists>")
