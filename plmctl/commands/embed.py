"""`plmctl embed`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import WARN, counted, remark, tell
from plmctl.core.values import Batch, Count
from plmctl.storage.atomic import is_stream, refuse_existing, write_text
from plmctl.storage.paths import refuse_ending

if TYPE_CHECKING:
    from plmctl.tasks.short_vectors import Stored
    from plmctl.use.semantic_search import VectorFile

SHOWN = 10  # questions whose answers are printed


@dataclass(frozen=True)
class Embed(Command):
    """Write contextual embeddings of the lines of a file."""

    about = About(
        "embed",
        place=110,
        examples=(
            "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
            (
                "plmctl embed checkpoint=exported input=glue/SST-2/dev.tsv field=sentence"
                " out=means.npz layers=-1 pooling=mean"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="runtime",
    )

    # or a file of word vectors: of a line their mean is written
    checkpoint: str = MISSING
    input: str = MISSING  # lines of text, JSON lines, or a table (.csv, .tsv, .parquet)
    field: str = "text"  # column of a table, or key of JSON lines, that has the text
    # the words of Chinese lines, for word vectors: jieba, jieba_hmm (traditional text), or a
    # plugin's text -> (start, end); null: what is between spaces
    segment: str | None = None
    out: str = MISSING  # .npz; with among .jsonl
    overwrite: bool = False  # replace an existing file
    # a file of vectors that embed wrote, one for each line: among these lines, the nearest to each
    # of input are written
    among: str | None = None
    top: Count = 5  # how many of them
    # or numbers: 0 is the embedding output, -1 the last, [0,-1]
    layers: int | tuple[int, ...] | Literal["all"] = "all"
    # one vector a line, of all tokens but padding; mean_sqrt: the sum divided by the root of their
    # number; weighted: the mean, in which the t-th token weighs t; first_last: the mean over the
    # tokens of the first and the last layer; pooler: what predicts the next sentence; splade: a
    # weight of each token of the vocabulary, by the head of masked tokens; idf, sif: the mean over
    # the tokens, of which rare ones weigh more; trained: as the model learned to compare
    # texts (simcse, tasks of sentences, folders of sentence-transformers)
    pooling: Literal[
        "none",
        "mean",
        "first",
        "max",
        "last",
        "mean_sqrt",
        "weighted",
        "first_last",
        "pooler",
        "splade",
        "idf",
        "sif",
        "trained",
    ] = "none"
    # with pooling=trained: the name of a prompt of the model, such as query, whose text stands
    # before each text; null: the usual one, if the model has any
    prompt: str | None = None
    # a file like input, in which rare tokens are rare, for idf and sif; null: input itself
    weights_from: str | None = None
    normalize: bool = False  # vectors of length 1, whose product is their cosine
    # first columns of each vector, which normalize then brings to length 1; null: all
    dimensions: Count | None = None
    # of one vector a line: 8 bits by the range of each column, or one bit by the sign; a search
    # among them needs a quarter, or a 32nd, of the room
    numbers: Literal["fp32", "int8", "binary"] = "fp32"
    logits: bool = False  # write the scores of the heads of the model, too
    runtime: Any = None  # library of the computation: torch, onnx, openvino, auto; null: torch
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"

    def perform(self) -> Result:
        """Read `input` and write `out`; with `among`, the lines that are nearest to its lines."""
        from plmctl.artifacts.identity import hash_weights
        from plmctl.artifacts.loading import load_for
        from plmctl.knowledge.vector_files import find_static
        from plmctl.storage.arrays import write_npz
        from plmctl.use.embed import check_manner, choose_manner, embed
        from plmctl.use.embedding_lines import read, read_texts
        from plmctl.use.runtimes import open_runtime
        from plmctl.use.semantic_search import Manner, VectorFile, shorten
        from plmctl.use.sentence_vectors import check_prompt

        out, file = Path(self.out), Path(self.input).expanduser()
        if not is_stream(out):
            if self.among is None:
                refuse_ending(self.out, [".npz"], "arrays of numpy")
            else:
                refuse_ending(self.out, [".jsonl"], "an answer a line")
        refuse_existing(out, self.overwrite)
        if static := find_static(self.checkpoint):
            return self._embed_static(static)
        if self.segment is not None:
            allowed = "null: a model reads text by its own tokenizer"
            raise ConfigError("segment", self.segment, allowed, fix="leave it out")
        if self.among is not None:
            return self._search(self.among, VectorFile.read(Path(self.among).expanduser()))
        how: Any = {name: self[name] for name in ("pooling", "normalize", "dimensions")}
        check_manner(weights_from=self.weights_from, **how)
        loaded, precision = load_for(self.checkpoint, self.device, self.precision, self.plugins)
        manner = choose_manner(loaded, layers=self.layers, **how)
        runtime = open_runtime(self.runtime, precision, self.plugins)
        prompt = check_prompt(manner.whole, self.prompt)
        lines = read(file, loaded, field=self.field, prompt=prompt)
        self._remark_on_columns(loaded.own_task() or {})
        given: Any = {"weights_from": self.weights_from, "field": self.field}
        manner = manner.weigh(loaded, lines, source=self.input, **given)
        sizes: Any = {"batch_size": self.batch_size, "precision": precision, "runtime": runtime}
        arrays = embed(loaded, lines, manner, logits=self.logits, **sizes)
        if manner.of_lines:
            layers: Any = self.layers if isinstance(self.layers, int | str) else [*self.layers]
            texts = read_texts(file, self.field)
            numbers = self._choose_numbers(sparse=manner.sparse)
            how |= {"numbers": numbers, "model": hash_weights(loaded.model.state_dict())}
            made = Manner(self.checkpoint, layers=layers, texts=texts, **how)
            arrays = chain(shorten(arrays, numbers), made.write(manner.weights))
        elif self.numbers != "fp32":
            allowed = "fp32: only files with one vector a line have short numbers"
            raise ConfigError("numbers", self.numbers, allowed, fix="layers=-1 pooling=mean")
        write_npz(out, arrays)
        tokens = sum(len(line.ids) for line in lines)
        counts: dict[str, Any] = {"lines": len(lines), "tokens": tokens}
        counts |= {"cut": sum(line.cut for line in lines), "width": loaded.model.backbone.width}
        words = f"{counted(len(lines), 'line')}, {counted(tokens, 'token')}, {manner.words}"
        counts["of"] = manner.words
        return self._report(words, counts, runtime.describe())

    def _remark_on_columns(self, task: Mapping[str, Any]) -> None:
        """Say that the first columns alone were not trained as vectors."""
        if self.dimensions is not None and self.dimensions not in (task.get("matryoshka") or ()):
            remark(
                f"dimensions={self.dimensions}: no training of the first {self.dimensions} columns"
                f" as vectors is known; task.matryoshka=[{self.dimensions}] of finetune trains them"
            )

    def _choose_numbers(self, *, sparse: bool) -> Stored:
        """The numbers of a file; weights of the vocabulary are written without zeros."""
        if not sparse:
            return self.numbers
        if self.numbers != "fp32":
            allowed = "fp32: weights of the vocabulary are written without zeros"
            raise ConfigError("numbers", self.numbers, allowed, fix="leave it out")
        return "sparse"

    def _report(self, words: str, counts: Mapping[str, Any], runtime: str = "") -> Result:
        """Print what was written, and the library that computed it."""
        said = {"runtime": runtime} if runtime else {}
        if self.provenance.json:
            tell(json.dumps({"out": self.out, **counts, **said}))
        else:
            remark(f"{self.out}: {words}")
            for key, value in said.items():
                remark(f"{key}: {value}")
        return 0

    def _embed_static(self, file: Path) -> Result:
        """Write the mean of the vectors of the words of each line."""
        from plmctl.storage.arrays import write_npz
        from plmctl.text.segment import find as find_segmenter
        from plmctl.use.embedding_lines import read_texts
        from plmctl.use.runtimes import refuse_runtime
        from plmctl.use.static_embedding import average_words

        refuse_runtime(self.runtime, self.plugins, "vectors need no other library")

        only: dict[str, tuple[object, ...]] = {"layers": ("all",), "pooling": ("none", "mean")}
        only["numbers"] = ("fp32",)
        for name in ("layers", "pooling", "among", "weights_from", "dimensions", "numbers"):
            if self[name] not in only.get(name, (None,)):
                allowed = "a setting of models: a line is the mean of the vectors of its words"
                raise ConfigError(name, self[name], allowed, fix="leave it out")
        texts = read_texts(Path(self.input).expanduser(), self.field)
        words = find_segmenter(self.segment, self.plugins, "segment") if self.segment else None
        averaged = average_words(texts, file, normalize=self.normalize, segment=words)
        for line in averaged.warnings:
            remark(line, WARN)
        write_npz(Path(self.out), averaged.arrays)
        said = f"{averaged.covered:,} of {averaged.words:,} words have a vector"
        counts = {"words": averaged.words, "with a vector": averaged.covered}
        counts["lines without"] = len(averaged.empty)
        counts = {"lines": len(texts), **counts, "width": averaged.width}
        return self._report(f"{counted(len(texts), 'line')}, {said}", counts)

    def _search(self, among: str, file: VectorFile) -> Result:
        """Write the lines of `among` that are nearest to those of `input`."""
        from plmctl.artifacts.identity import hash_weights
        from plmctl.artifacts.loading import load_for
        from plmctl.use.embedding_lines import read, read_texts
        from plmctl.use.runtimes import open_runtime
        from plmctl.use.semantic_search import find_nearest
        from plmctl.use.sentence_vectors import TRAINED, check_prompt, find_trained

        made = file.manner
        if self.weights_from is not None:
            allowed = f"null: the tokens weigh what {among} says"
            raise ConfigError("weights_from", self.weights_from, allowed, fix="leave it out")
        layers: Any = made.layers if isinstance(made.layers, int | str) else tuple(made.layers)
        same = {"layers": layers}
        same |= {
            name: getattr(made, name) for name in ("pooling", "normalize", "dimensions", "numbers")
        }
        for name, value in same.items():
            if self[name] not in (value, getattr(Embed, name)):
                allowed = f"{value}, as the vectors in {among} were made"
                raise ConfigError(name, self[name], allowed, fix="leave it out")
        loaded, precision = load_for(self.checkpoint, self.device, self.precision, self.plugins)
        made.refuse_other(self.checkpoint, hash_weights(loaded.model.state_dict()), among)
        source = Path(self.input).expanduser()
        trained = find_trained(loaded) if made.pooling == TRAINED else None
        prompt = check_prompt(trained, self.prompt)
        if self.prompt is None and trained is not None:
            prompt = trained.find_prompt("query")  # these lines are questions
        lines = read(source, loaded, field=self.field, prompt=prompt)
        texts = read_texts(source, self.field)
        sizes: Any = {"top": self.top, "batch_size": self.batch_size, "precision": precision}
        runtime = open_runtime(self.runtime, precision, self.plugins)
        sizes |= {"runtime": runtime}
        answers = list(find_nearest(file, loaded, lines, texts, among=among, **sizes))
        rows = (json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
        write_text(Path(self.out), "".join(rows))
        if not self.provenance.json:
            for answer in answers[:SHOWN]:
                tell(answer["query"])
                for each in answer["found"]:
                    tell(f"  {each['score']:.4f}  line {each['line']}: {each['text'][:100]}")
        count = len(file.vectors)
        words = f"{counted(len(answers), 'question')}, among {counted(count, 'line')}"
        counts: dict[str, Any] = {"questions": len(answers), "among": count}
        return self._report(words, counts, runtime.describe())
