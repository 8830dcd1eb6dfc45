"""`plmctl vectors`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING, build, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data, list_unread
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.core.values import Batch, Count, Processes, Whole
from plmctl.storage.atomic import name_written, refuse_existing
from plmctl.storage.gate import admit

if TYPE_CHECKING:
    from plmctl.knowledge.static_vectors import StaticVectors
    from plmctl.vectors.corpus import WordCorpus

ASIDE = ".words-"  # the first letters of the name of the folder of words
LOOKED = 1000  # sentences, in which runs of Chinese characters are looked for


@dataclass(frozen=True)
class Vectors(Command):
    """Make static vectors of words, from a text or out of a model.

    They are written as word2vec, GloVe or fastText write them, and read by every setting that names
    a file of word vectors.
    """

    about = About(
        "vectors",
        place=107,
        examples=(
            (
                "plmctl vectors method=cbow data.path=README.md width=50 least=2"
                " out=words.safetensors"
            ),
            (
                "plmctl vectors method=distilled checkpoint=runs/first data.path=README.md"
                " width=16 out=static.vec"
            ),
        ),
        options="json print_config config_dir plugin",
        slots="method",
    )

    data: Data = Data()
    method: Any = MISSING
    # a run, a checkpoint or a Hugging Face folder, for method=distilled
    checkpoint: str | None = None
    width: Count = 100  # numbers of a vector
    least: Count = 5  # words that stand fewer times in the text get no vector
    # words are runs of letters, or what is between spaces
    split: Literal["words", "spaces"] = "words"
    lowercase: bool = True  # upper and lower case are the same
    # .safetensors (with n-grams), .txt (GloVe's), .vec (fastText's), .bin (word2vec's)
    out: str = MISSING
    overwrite: bool = False  # replace an existing file
    threads: Processes = 1  # threads that learn at the same time
    seed: Whole = 0  # seed of the first vectors and of the order
    batch_size: Batch = 64  # texts that the model reads at the same time, for method=distilled
    device: Literal["auto", "cpu", "cuda"] = "auto"  # device of the model, for method=distilled

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """As in RunSpec: sentences are read one after the other, all of them."""
        return list_unread(
            "path", "field", "lines", "segment", why="the whole text is read as it stands"
        )

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        import torch

        from plmctl.data.words import describe_runs
        from plmctl.knowledge.vector_files import choose_writer, write_static
        from plmctl.vectors.corpus import SPLITS, count_corpus

        out = choose_writer(self.out)
        refuse_existing(out, self.overwrite)
        method: Any = build(self.method, plugins=self.plugins, path="method")
        self._check_model(method)
        torch.set_num_threads(self.threads)
        if line := describe_runs(islice(self._read(), LOOKED), SPLITS[self.split]()):
            remark(line)
        admit(out.parent).mkdir(parents=True, exist_ok=True)
        with (
            name_written(out, out.parent / ASIDE),
            tempfile.TemporaryDirectory(prefix=ASIDE, dir=admit(out.parent)) as folder,
        ):
            began = time.monotonic()
            how: Any = {"least": self.least, "split": self.split, "lowercase": self.lowercase}
            corpus = count_corpus(self._read(), Path(folder), **how)
            remark(
                f"{corpus.total:,} words of {len(corpus.words):,} different ones, read in"
                f" {time.monotonic() - began:.1f} s"
            )
            remark("valid: no text is held out; lists of similar words judge vectors")
            began = time.monotonic()
            made = self._make(method, corpus)
            seconds, read = time.monotonic() - began, corpus.total * getattr(method, "epochs", 1)
        write_static(made, out)
        rate = read / max(seconds, 1e-9)
        found = {"out": self.out, "words": len(made.words), "width": made.width}
        found |= {"seconds": round(seconds, 2), "words a second": round(rate)}
        return self.report(found, self._describe(made, seconds, rate))

    def _read(self) -> Iterator[str]:
        """The sentences of `data.path`, with spaces between the Chinese words of data.segment."""
        from plmctl.core.progress import follow
        from plmctl.text import segment
        from plmctl.text.reader import read_sentences
        from plmctl.text.segmented import space_words

        path, data = plain(self.data.path), self.data
        sentences = read_sentences(path, field=data.field, lines=data.lines)
        if not data.segment:
            return sentences
        words = segment.find(data.segment, self.plugins)
        spaced = (space_words(sentence, words)[0] for sentence in sentences)
        return follow(spaced, len, "characters")

    def _check_model(self, method: Any) -> None:
        """Raise ConfigError for a needless model, or a missing one."""
        from plmctl.vectors.base import VectorMethod
        from plmctl.vectors.distilled import Distilled

        if isinstance(method, Distilled) and self.checkpoint is None:
            allowed = "must be given: which model makes the vectors?"
            raise ConfigError("checkpoint", ..., allowed, fix="checkpoint=<run>")
        if isinstance(method, VectorMethod) and self.checkpoint is not None:
            allowed = "null: this method learns from the text alone"
            raise ConfigError("checkpoint", self.checkpoint, allowed, fix="method=distilled")

    def _make(self, method: Any, corpus: WordCorpus) -> StaticVectors:
        """The vectors that a method learns, or that a model gives."""
        from plmctl.artifacts.loading import load
        from plmctl.core.progress import ProgressLine
        from plmctl.datasets.word_vectors import distil
        from plmctl.training.device.precision import choose
        from plmctl.training.processes.world import device_of
        from plmctl.vectors.base import VectorMethod

        if isinstance(method, VectorMethod):
            show = ProgressLine("words", method.epochs * corpus.total)
            return method.learn(corpus, width=self.width, seed=self.seed, show=show)
        precision = choose("fp32", device_of(self.device, "device"))
        loaded = load(str(self.checkpoint), plugins=self.plugins)
        sizes: Any = {"width": self.width, "batch_size": self.batch_size}
        return distil(loaded, method, corpus, self._read(), **sizes, precision=precision)

    def _describe(self, made: StaticVectors, seconds: float, rate: float) -> Iterator[str]:
        yield (
            f"{self.out}: {len(made.words):,} words of {made.width} numbers, in {seconds:.1f} s"
            f" ({rate:,.0f} words of text a second)"
        )
        if made.subwords is not None and Path(self.out).suffix != ".safetensors":
            without = "  without the n-grams, which only .safetensors holds"
            yield f"{without}: unseen words have no vector"
        vectors = spell_setting("checkpoint", self.out)
        yield f"next: plmctl eval {vectors} task=word_similarity task.path=<lists>"
