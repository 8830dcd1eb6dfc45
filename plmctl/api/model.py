"""A trained model, and what one asks of it from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from plmctl.api.records import RowList
from plmctl.api.settings import Settings, check_path, take_value, to_words
from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.loading import Loaded
from plmctl.config.build import build
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.core.values import Batch
from plmctl.generation.answers import Answer, MaskAnswers, TextAnswers, answer_in_order
from plmctl.generation.writer import writer_of
from plmctl.heads.sentences import REDUCTIONS
from plmctl.runs.deciding import advise, decide
from plmctl.runs.published_search import choose_search
from plmctl.runtime.eager import EagerRuntime
from plmctl.tasks import inference
from plmctl.tasks.calibration import LabelDecision
from plmctl.tasks.predictions import beside
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task, as_task
from plmctl.tasks.trained_texts import leave_trained
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.training.device.precision import Precision
from plmctl.use.answering import answer_examples
from plmctl.use.asked_task import ask_all, choose_task, describe_model, open_task, read_examples
from plmctl.use.embed import EmbeddingManner, check_manner, choose_manner, embed
from plmctl.use.embedding_lines import PlainLine, find_longest, lay_out_lines, lay_out_text
from plmctl.use.generate import build_search, make_answerer
from plmctl.use.items import PLACE, Item, as_line, read_items, refuse_single, take_texts
from plmctl.use.labeller import ModelLabeller
from plmctl.use.prompting import LANGUAGES, make_prompt_reader
from plmctl.use.runtimes import let_write, open_runtime
from plmctl.use.sentence_vectors import check_prompt

Pooling = Literal[
    "mean",
    "first",
    "max",
    "last",
    "mean_sqrt",
    "weighted",
    "first_last",
    "pooler",
    "idf",
    "sif",
    "trained",
]
Layers = int | Sequence[int] | Literal["all"]


@dataclass(frozen=True)
class TrainedModel(Loaded):
    """A trained model with its tokenizer, on its device.

    `.model` is a torch module in eval mode, `.config` what it was made from. Each method does what
    a command does, with the same numbers, and writes no file.
    """

    precision: Precision

    def tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text as pieces of it, without special ones."""
        listed = take_texts(texts, "model.tokenize([text])")
        return [self.tokenizer.pieces(ids) for ids in self.tokenizer.encode_batch(listed)]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text as the model reads them: with special tokens, cut to its length."""
        listed = take_texts(texts, "model.encode([text])")
        length = find_longest(self)
        return [list(lay_out_text(text, self, length).ids) for text in listed]

    def embed(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        pooling: Pooling = "mean",
        layer: int = -1,
        prompt: str | None = None,
        weights_from: str | os.PathLike[str] | None = None,
        normalize: bool = False,
        dimensions: int | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """One vector for each text, [n, W], as `plmctl embed pooling=... layers=<layer>`.

        Args:
            texts: texts, or pairs for a model whose task reads pairs; an empty one gives zeros.
            pooling: The pooling of tokens; those after "last" choose the layers themselves.
            layer: 0 is the embedding output, -1 the last.
            prompt: With "trained": the name of a prompt of the model, before each text.
            weights_from: A file of lines in which rare tokens are rare, for "idf" and "sif"; None:
                the texts themselves.
            normalize: vectors of length 1, whose product is their cosine.
            dimensions: The first columns of each vector, before `normalize`; None: all.
            batch_size: texts at the same time.
        """
        if weights_from is not None:
            check_path("weights_from", weights_from)
        whole = pooling not in REDUCTIONS and layer == -1
        arrays = self._embed(
            texts,
            pooling=pooling,
            layers="all" if whole else [layer],
            prompt=prompt,
            weights_from=None if weights_from is None else os.fspath(weights_from),
            normalize=normalize,
            dimensions=dimensions,
            batch_size=batch_size,
        )
        return np.stack([arrays[f"hidden_{n}"][0] for n in range(len(texts))])

    def embed_tokens(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        layers: Layers = "all",
        batch_size: int = 32,
    ) -> list[np.ndarray]:
        """The states of the tokens of each text, [layers, T, W], as `plmctl embed`; `encode` gives
        the tokens.
        """
        arrays = self._embed(texts, pooling="none", layers=layers, batch_size=batch_size)
        return [arrays[f"hidden_{n}"] for n in range(len(texts))]

    def predict(
        self,
        texts: Sequence[Item] | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        batch_size: int = 32,
    ) -> RowList:
        """The answer of a fine-tuned model to each text: label and probabilities, answer, tags or
        text, as `plmctl predict` writes it.

        Args:
            texts: texts, pairs of texts, or records {column: value} with the columns of the task.
            path: Instead of texts: a file of lines, or a .csv, .tsv, .jsonl or .parquet table.
            batch_size: examples at the same time.
        """
        if (texts is None) == (path is None):
            raise UsageError("predict: either texts, or path=<a file>")
        if path is None:
            refuse_single(texts, "model.predict([text]), or model.predict(path=...) of a file")
        else:
            check_path("path", path)
        size = take_value("batch_size", batch_size, Batch)
        task = self._need_task(self._own_task)
        if texts is None:
            file = os.fspath(cast(Any, path))
            return self._label(task, file, read_unlabelled(task, file)[1], size)
        with read_items(task, texts) as (source, examples):
            return self._label(task, source, examples, size)

    def evaluate(
        self,
        split: str = "dev",
        *,
        path: str | os.PathLike[str] | Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> dict[str, dict[str, float]]:
        """{split: {metric: value}} as `plmctl eval --json` has them.

            model.evaluate("test")
            model.evaluate(path="more.tsv")  # of the task of the model, with labels
            model.evaluate(settings={"task": "lm", "data.path": "other.txt"})

        A task that ranks writes its rankings, as the command does.

        Args:
            split: A split of the task.
            path: other files of the task than those of training.
            settings: further settings of `plmctl eval`.
        """
        words = to_words({"checkpoint": self.source.folder, "split": split, **(settings or {})})
        given = Provenance("eval", overrides=words, plugins=tuple(self.source.plugins))
        with advise(given):
            spec: Any = decide(given)
            if path is None:
                task = open_task(self.source, spec.task, given.keys, checkpoint=spec.checkpoint)
            else:
                files = path if isinstance(path, Mapping) else os.fspath(path)
                node = {
                    **choose_task(self.source, spec.task, given.keys, checkpoint=spec.checkpoint),
                    "path": files,
                }
                task = build(node, describe_model(self, spec.plugins), spec.plugins, path="task")
            table = spec.measure(self, self.precision, task, spec.checkpoint)
            if table is None:
                how: dict[str, Any] = {"split": spec.split, "checkpoint": spec.checkpoint}
                ask_all(self._need_task(task), self.source, given.keys, **how)
                name, examples = read_examples(task, spec.split, spec.input)
                if spec.only:
                    examples, _ = leave_trained(self.source.home, examples)
                how = {"precision": self.precision, "batch_size": spec.batch_size}
                how |= {"runtime": open_runtime(spec.runtime, self.precision, spec.plugins, self)}
                how |= {"new_texts": spec.input is not None, "calibrated": spec.calibrate}
                how["abstain"] = spec.abstain
                answered = answer_examples(self, task, name, examples, **how)
                vars(self).pop("_decision", None)  # another may be fitted now
                table = answered.tabulate(task, {}, seed=spec.seed)
        return dict(table.to_json()["metrics"])

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new: int | None = None,
        search: str | None = None,
        options: Settings | None = None,
        batch_size: int = 32,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> list[Answer]:
        """{"prompt", "texts": [{"text", "score", "finished"}]} of each prompt, best text first, as
        `plmctl generate --json`.

            model.generate(["Return the"], search="sample", options={"top_p": 0.9}, max_new=20)

        Args:
            prompts: texts that are continued, or rewritten by an encoder-decoder.
            max_new: tokens of a text at most; None: as many as the model has room for, or 128.
            search: greedy, sample or beam; None: as the folder of a published model says, else
                greedy.
            options: settings of the search.
            batch_size: prompts at the same time.
            source_language: The token of the language of the prompts, such as de_DE; None: as in
                training.
            target_language: The token of the language that is written; None: as in training.
        """
        settings: dict[str, Any] = {"batch_size": batch_size}
        settings |= {} if search is None else {"search": search}
        languages = dict(zip(LANGUAGES, (source_language, target_language), strict=True))
        settings |= {name: token for name, token in languages.items() if token is not None}
        settings |= {f"search.{name}": value for name, value in (options or {}).items()}
        settings |= {} if max_new is None else {"max_new": max_new}
        return self._answer(prompts, settings, TextAnswers, "model.fill fills masks")

    def fill(self, texts: Sequence[str], *, top: int = 5, batch_size: int = 32) -> list[Answer]:
        """{"prompt", "text", "masks": [[{"token", "probability"}]]} of each text with [MASK] in it,
        as `plmctl generate --json`.
        """
        settings = {"top": top, "batch_size": batch_size}
        return self._answer(texts, settings, MaskAnswers, "model.generate writes texts")

    def _answer(
        self, texts: Sequence[str], settings: dict[str, Any], kind: type, other: str
    ) -> list[Answer]:
        listed = take_texts(texts, "[text]")
        if writer_of(self.model) is None:
            self._need_weights()
        checkpoint = {"checkpoint": self.source.folder}
        given = self._provenance("generate", to_words({**checkpoint, **settings}))
        with advise(given):
            spec: Any = choose_search(decide(given), self)
            search = build_search(spec.search, self.tokenizer.encode, spec.plugins)
            languages = {name: getattr(spec, name) for name in LANGUAGES}
            reader = make_prompt_reader(self, PLACE, **languages)
            if self.runtime is not None and reader.kind != "fill":
                reader = let_write(reader, self.runtime)
            lengths = {"max_new": spec.max_new, "min_length": spec.search.get("min_length", 0)}
            where = self.precision.device
            answerer = make_answerer(reader, search, top=spec.top, device=where, **lengths)
            if not isinstance(answerer, kind):
                raise UsageError(f"this model does something else\n  fix: {other}")
            prompts = reader.all(iter(listed), spec.max_new)
            with self.precision.autocast():
                return list(answer_in_order(prompts, answerer, spec.batch_size))

    def _label(
        self, task: Task, source: str | None, examples: list[Example], batch_size: int
    ) -> RowList:
        runtime = self.runtime or EagerRuntime()
        labeller = ModelLabeller(
            self, task, {}, self.precision, batch_size, runtime, self._decision
        )
        split = inference.encode_piece(task, PLACE, examples, self.tokenizer)
        unread = inference.find_unread(split, self.tokenizer, refuse=True)
        answers, _ = labeller.ask(split, unread)
        return RowList(beside(source, examples, answers))

    def _embed(
        self, texts: Sequence[str | tuple[str, str]], **settings: Any
    ) -> dict[str, np.ndarray]:
        refuse_single(texts, "model.embed([text])")
        self._need_weights()
        given = {"checkpoint": str(self.source.folder), "input": PLACE, "out": PLACE}
        spec = spec_of("embed", given | settings, self._provenance())
        how = {name: spec[name] for name in ("pooling", "normalize", "dimensions")}
        check_manner(weights_from=spec.weights_from, **how)
        lines = ((n, PlainLine(as_line(text, n))) for n, text in enumerate(texts, 1))
        key = repr((spec.layers, how))
        if key not in self._manners:
            self._manners[key] = choose_manner(self, layers=spec.layers, **how)
        manner = self._manners[key]
        rows = lay_out_lines(lines, self, PLACE, prompt=check_prompt(manner.whole, spec.prompt))
        manner = manner.weigh(self, rows, source=PLACE, weights_from=spec.weights_from)
        sizes: Any = {"batch_size": spec.batch_size, "precision": self.precision}
        sizes |= {"runtime": self.runtime}
        return dict(embed(self, rows, manner, **sizes))

    @cached_property
    def _own_task(self) -> Any:
        """The task that it was fine-tuned on: one, so that a runtime prepares its graph once."""
        return open_task(self.source, None, (), checkpoint=str(self.source.folder))

    @cached_property
    def _decision(self) -> LabelDecision | None:
        """The decision that was fitted to it, read once."""
        return read_decision(self.source.folder)

    @cached_property
    def _manners(self) -> dict[str, EmbeddingManner]:
        """How vectors are made, by settings: one for each, for the same reason."""
        return {}

    def _provenance(self, verb: str = "", words: tuple[str, ...] = ()) -> Provenance:
        return Provenance(verb, overrides=words, plugins=tuple(self.source.plugins))

    def _need_weights(self) -> None:
        """UsageError for an exported folder, which has the answers of one task alone."""
        if not self.source.tensors:
            what = f"{self.source.folder} has the answers of one task, and no weights"
            raise UsageError(f"{what}\n  fix: plmctl.load(<the run that it is from>)")

    def _need_task(self, task: Any) -> Task:
        """The task, if it reads examples; else UsageError."""
        if (labels := as_task(task)) is None:
            raise UsageError(
                f"{self.source.folder} was not fine-tuned on a task that labels texts\n"
                "  fix: a run of plmctl finetune"
            )
        return labels
