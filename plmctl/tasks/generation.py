"""Text for text: translation, summarization, dialogue, and labels in words."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.generation.decode import generate, score_texts
from plmctl.generation.languages import choose_opening, find_language, name_language
from plmctl.generation.search import Search
from plmctl.generation.writer import writer_of
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.models.encoder_decoder import LAST
from plmctl.noise.base import Noise
from plmctl.noise.target_mask import TargetMask
from plmctl.objectives.base import Output, Term
from plmctl.objectives.seq2seq import ask_smoothed
from plmctl.tasks.facts import ModelNeeds, RowLengths, TaskFacts
from plmctl.tasks.layouts import sequences
from plmctl.tasks.readers import files
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import novelty, written
from plmctl.tasks.scores.novelty import TrainedTexts
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text.vocab import Vocab

SPREADS = ("all", "others")
_NONE = -1  # in `written`: no token


@dataclass(frozen=True, kw_only=True)
class GenerationSettings(TaskSettings):
    """Settings of tasks whose labels are texts that a model writes.

    Args:
        max_target: tokens that are written at most.
        search: The search for texts.
        smoothing: the share of the probability that label smoothing gives to other tokens.
        prefix: words before every source.
        tokenize: the tokenizer of sacrebleu by which BLEU counts.
        lowercase: BLEU and chrF compare texts in lower case.
        kind: The kind of the model, for messages.
        writes: the sequence that the model writes: "target", or "text", behind the source.
        directed: Whether tokens that the model writes do not see later ones.
        segments: The segments of source and target where both stand in one row.
        masked: the share of the target's tokens that is masked and predicted; None: every token is
            predicted from those before it.
        source_template: special tokens around the source.
        target_template: special tokens around the target.
        spread: over which tokens smoothing spreads; None: as the model was published.
        source_language: The token of the language of sources; None: the tokenizer's own.
        target_language: The token of the language of targets; None: `forced`, else the tokenizer's
            own.
        start: The token with which the decoder begins: a role, an id, or "last".
        forced: The first token of every text that the model writes.
    """

    reader: Pairs
    max_target: int
    search: Search
    smoothing: float = 0.0
    prefix: str = ""
    tokenize: str = "13a"
    lowercase: bool = False
    kind: str = ""
    writes: str = "target"
    directed: bool = True
    segments: Sequence[int] = (0, 1)
    masked: float | None = None
    source_template: Sequence[str] | None = None
    target_template: Sequence[str] | None = None
    spread: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    start: str | int | None = None
    forced: str | int | None = None

    def check(self) -> None:
        """ConfigError for settings that do not fit the model or each other."""
        if not self.directed:
            raise ConfigError(
                "model",
                self.kind,
                f"task={self.name} needs a model that writes: an encoder-decoder, or a decoder,"
                " whose tokens do not see what follows them",
                fix="checkpoint=<such a model>, or from scratch model=encoder_decoder",
            )
        if not 0 <= self.smoothing < 1:
            raise ConfigError(
                "task.smoothing", self.smoothing, "0 (none) up to 1, which is not allowed"
            )
        if self.spread not in (None, *SPREADS):
            allowed = f"one of {', '.join(SPREADS)}, or null{nearest(self.spread, SPREADS)}"
            raise ConfigError("task.spread", self.spread, allowed)
        if self.columns["source"] == self.columns.get("target"):
            allowed = "the source, so that there is nothing to learn"
            fix = "task.columns.target=<the column or language that is written>"
            raise ConfigError("task.columns.target", self.columns["target"], allowed, fix=fix)
        _check_masked(self.masked, self.writes, self.kind)


@part_of("task")
class Generation(Task):
    """Predicts the target, token by token, from the source; scored on texts that the model writes
    itself.

    `loss = - sum_t log p(y_t | y_1 .. y_{t-1}, source)` over the target and its end. `smoothing` is
    that of `objectives.seq2seq`. Its share is spread over `all` tokens, or over all `others` than
    the right one and the padding; null: `others` with `masked`. UniLM's code does so (s2s loss.py:
    e / (V - 2) each). An encoder-decoder reads the source at one end and writes at the other (Lewis
    et al., 2020, sec. 3.3). The first token of the source is global if the pattern has global
    tokens (Beltagy et al., 2020, arXiv:2004.05150, sec. 7). A decoder reads both in one row and
    predicts the second part alone (Radford et al., 2019, sec. 3.6). `masked` is UniLM's way (Dong
    et al., 2019, arXiv:1905.03197, sec. 2.5). This share of the target, its end among the
    candidates, is masked by `noise.TargetMask`, anew in every epoch, and predicted at the masks. A
    text is written token by token, each at a mask behind it. The likelihood of a given target is
    computed in the same way. `prefix` stands before every source ("translate English to German: ";
    Raffel et al., 2020, arXiv:1910.10683, sec. 2.4). Predictions keep nll (plain, in nats) and
    number of tokens of the first reference, so that scores follow from them alone.
    """

    facts = TaskFacts(outputs=0, answer="text", has_classes=False, writes=True)
    requires = ModelNeeds(reads_ids=True)

    percent = frozenset(written.NAMES) - {"perplexity"}
    Settings: ClassVar[type[GenerationSettings]] = GenerationSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        own.check()
        head = "seq2seq" if own.writes == "target" else "clm" if own.masked is None else "mlm"
        read = {"source", "target"} if own.writes == "target" else {"text"}
        self.facts = replace(self.facts, head=head, needs=frozenset({*read, f"targets.{head}"}))
        self.requires = replace(self.requires, heads_about="next" if own.masked is None else "text")
        super().__init__(own, metrics=self.check_metrics(own))
        self.pairs, self.search = own.reader, own.search
        self.max_target, self.smoothing, self.prefix = own.max_target, own.smoothing, own.prefix
        self.spread = own.spread or ("all" if own.masked is None else "others")
        self.tokenize, self.lowercase = own.tokenize, own.lowercase
        self.writes, self.segments, self.masked = own.writes, own.segments, own.masked
        self.kind = own.kind
        self.templates = own.source_template, own.target_template
        self.languages = own.source_language, own.target_language
        self.start, self.forced = own.start, own.forced
        self.lengths = RowLengths(own.max_length, own.max_target, apart=own.writes == "target")
        # the tokenizer of the rows encoded last, for the texts that are written
        self._tokenizer: Any = None

    def check_metrics(self, settings: GenerationSettings) -> list[str]:
        """The chosen metrics; ConfigError for an unknown one."""
        return written.check_writing_metrics(settings.metrics, settings.tokenize)

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        with _blame_task():
            self.search.fits(vocab_size or sys.maxsize)

    def unit(self, example: Example) -> str:
        """All turns of a dialogue, because each is read as context of the next."""
        return super().unit(example) if example.document is None else f"document {example.document}"

    def texts(self, example: Example) -> list[str]:
        return [example.fields["source"], *(example.label or ())]

    def parse(self, line: str, number: int) -> Example:
        """The source alone."""
        return Example(id=str(number - 1), fields={"source": line}, place=f"line {number}")

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            if not all(
                text.strip() for text in (example.fields["source"], *(example.label or ("",)))
            ):
                raise DataError(
                    "source or target is empty", file=example.place, fix="leave this pair out"
                )

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        self._tokenizer = tokenizer
        labelled = all(example.label is not None for example in examples)
        if labelled and self._asks_new:
            self._trained.judge("", "")  # read before texts are written, which takes long
        targets = (
            tokenizer.for_targets.encode_batch([example.label[0] for example in examples])
            if labelled
            else None
        )
        if self.writes == "text":
            return sequences.lay_behind(
                self._encode_sources(examples, tokenizer),
                targets,
                tokenizer.vocab,
                max_length=self.max_length,
                max_target=self.max_target,
                segments=self.segments,
                predict="clm" if self.masked is None else "mlm",
            )
        rows = sequences.add_targets(
            self.lay_sources(examples, tokenizer),
            targets,
            tokenizer.vocab,
            max_target=self.max_target,
            template=self.frame_target(tokenizer.vocab),
        )
        return rows.with_seq("source", self.add_tracks(rows.seqs["source"]))

    def lay_sources(self, examples: Examples, tokenizer: Any) -> sequences.Cut:
        """The rows for an encoder, and the number of tokens that are cut off."""
        sources = self._encode_sources(examples, tokenizer)
        vocab, length = tokenizer.vocab, self.max_length
        template = name_language(
            self.templates[0] or vocab.single,
            self.languages[0],
            vocab,
            start=self.start,
            path="task.source_language",
        )
        return sequences.wrap_sources(sources, vocab, max_length=length, template=template)

    def frame_target(self, vocab: Vocab) -> tuple[str, ...]:
        """The special tokens around a target, which is "A"."""
        template, language = self.templates[1] or vocab.around_target, self.languages[1]
        if language is None and self.forced is not None and find_language(template):
            forced = self.forced
            language = vocab.tokens[forced] if isinstance(forced, int) else None
        how: Any = {"start": self.start, "path": "task.target_language"}
        return name_language(template, language, vocab, **how)

    def choose_opening(self, model: Model, vocab: Vocab) -> tuple[int, ...]:
        """The first tokens of the texts that a model writes; none: as it forces."""
        language = self.languages[1]
        if language is None and getattr(model.backbone, "start", None) == LAST:
            language = find_language(self.frame_target(vocab))
        return choose_opening(model.backbone, language, vocab, path="task.target_language")

    def _encode_sources(self, examples: Examples, tokenizer: Any) -> list[list[int]]:
        texts = [self.prefix + str(example.fields["source"]) for example in examples]
        encoded: list[list[int]] = tokenizer.encode_batch(texts)
        return encoded

    def add_tracks(self, source: Seq) -> Seq:
        """Sources alone, with the tracks that they have in training."""
        if self.writes == "text":
            segment = np.full(source.ids.shape, self.segments[0], np.uint8)
            return source.with_tracks(segment=segment)
        first = np.zeros(source.ids.shape, np.uint8)
        first[:, :1] = 1
        return source.with_tracks(**{"global": first})

    def encode_source(self, text: str, tokenizer: Any) -> tuple[list[int], int]:
        """(the ids of a source without its target, how many of its tokens were cut off)."""
        rows = self.encode([Example("0", {"source": text})], tokenizer)
        seq = rows.seqs["source" if self.writes == "target" else "text"]
        return seq.ids[0].tolist(), int(rows.values["cut"][0])

    def noise(self, vocab: Vocab) -> Noise | None:
        if self.masked is None:
            return None
        if vocab.mask is None:
            allowed = "needs a mask token, which this tokenizer has not"
            raise ConfigError("task.masked", self.masked, allowed, fix="task.masked=null")
        return TargetMask(vocab=vocab, rate=self.masked, segment=self.segments[1])

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.facts.head: batch.counts[self.facts.head]}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        """The training loss over the target; no text is written."""
        spared = self._tokenizer.vocab.pad if self.spread == "others" else None
        return ask_smoothed(model, batch, self.facts.head, smoothing=self.smoothing, spared=spared)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """written [B, max_target] the ids of each row's best text, -1 behind it; nll and tokens
        [B] of the target, if any.
        """
        with _blame_task(self.name):
            texts = generate(
                model,
                self._prompts(batch),
                vocab=self._tokenizer.vocab,
                search=self.search,
                head=self.facts.head,
                max_new=self.max_target,
                keys=batch.values["example"].tolist(),
                opening=self.choose_opening(model, self._tokenizer.vocab),
            )
        best = [candidates[0].ids for candidates in texts]
        ids = torch.full((len(best), self.max_target), _NONE)
        for row, text in enumerate(best):
            ids[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
        return {
            "written": ids,
            **(self._likelihood(model, batch) if self.facts.head in batch.targets else {}),
        }

    def _prompts(self, batch: Batch) -> Batch:
        """The batch without its targets: a decoder is given the first segment of each row."""
        if self.writes == "target":
            return Batch(batch.key, {"source": batch.seqs["source"]}, values=batch.values)
        text = batch.text
        length = (text.real & (text.tracks["segment"] == self.segments[0])).sum(1)
        longest = int(length.max())
        tracks = {name: track[:, :longest] for name, track in text.tracks.items()}
        # targets are padding now
        tracks["segment"] = torch.full_like(tracks["segment"], self.segments[0])
        prompts = Seq(text.ids[:, :longest], length, tracks, full=bool((length == longest).all()))
        return Batch(batch.key, {"text": prompts}, values=batch.values)

    def _likelihood(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """One row's logits at a time: those of a whole batch would be B T V numbers."""
        if self.masked is not None:
            return self._likelihood_at_masks(model, batch)
        targets, seq = batch.require(f"targets.{self.facts.head}"), batch.seqs[self.writes]
        ids = targets.write_into(torch.full_like(seq.ids, IGNORE), targets.ids)
        if writer_of(model) is not None:
            logp = score_texts(model, self._prompts(batch), ids, vocab=self._tokenizer.vocab)
            return {"nll": -logp, "tokens": (ids != IGNORE).sum(1)}
        head = head_of(model, self.facts.head)
        states = model(batch).last
        nll = [head.loss(row, gold)[0] for row, gold in zip(states, ids, strict=True)]
        return {"nll": torch.stack(nll), "tokens": (ids != IGNORE).sum(1)}

    def _likelihood_at_masks(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """The likelihood as texts are written: each token is predicted at a mask, from the tokens
        before it.
        """
        text, prompts = batch.text, self._prompts(batch)
        first = prompts.text.length
        tokens = text.real.sum(1) - first
        position = first[:, None] + torch.arange(int(tokens.max()), device=first.device)
        real = position < (first + tokens)[:, None]
        ids = text.ids.gather(1, position.clamp(max=text.ids.shape[1] - 1)).masked_fill(
            ~real, _NONE
        )
        return {
            "nll": -score_texts(
                model, prompts, ids, vocab=self._tokenizer.vocab, head=self.facts.head
            ),
            "tokens": tokens,
        }

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return Output({self.facts.head: Term(logits["nll"].sum())})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        texts = [
            self._tokenizer.decode(ids[ids != _NONE].astype(np.int64)).strip()
            for ids in logits["written"]
        ]
        predictions: list[dict[str, Any]] = []
        for index, (example, guess) in enumerate(zip(examples, texts, strict=True)):
            golds = None if example.label is None else list(example.label)
            predictions.append(
                {
                    "id": example.id,
                    "source": example.fields["source"],
                    "golds": golds,
                    "guess": guess,
                }
            )
            if golds is not None and self._asks_new:
                predictions[-1] |= self._trained.judge(example.fields["source"], guess)
            if "nll" in logits:
                predictions[-1] |= {
                    "nll": float(logits["nll"][index]),
                    "tokens": int(logits["tokens"][index]),
                }
        return predictions

    @property
    def _asks_new(self) -> bool:
        return not set(novelty.METRICS).isdisjoint(self.metrics)

    @cached_property
    def _trained(self) -> TrainedTexts:
        """The targets of training as the tokenizer writes them, which may change letters."""
        single = files.is_single(self.splits.path) and not self.splits.held_share
        if self.splits.path is None or single or not self.splits.has("train"):
            allowed = "novel, novel_pairs and novel_unique need the training examples"
            fix = "task.path=<the folder with train and dev>, or other task.metrics"
            raise ConfigError("task.path", self.splits.path, allowed, fix=fix)
        pairs = [
            (str(example.fields["source"]), target)
            for example in self.read("train")
            for target in example.label
        ]
        written_again = map(
            self._tokenizer.decode,
            self._tokenizer.for_targets.encode_batch([target for _, target in pairs]),
        )
        return TrainedTexts(zip([source for source, _ in pairs], written_again, strict=True))

    def score(self, predictions: Predictions) -> dict[str, float]:
        scores, self.signatures = written.score(
            predictions, self.metrics, tokenize=self.tokenize, lowercase=self.lowercase
        )
        return scores


@contextmanager
def _blame_task(name: str = "") -> Iterator[None]:
    """Name the search as a setting of the task in errors about it.

    Args:
        name: The name of the task, where a command line needs it before its settings.
    """
    try:
        yield
    except ConfigError as error:
        before = f"task={name} " if name else ""
        fix = error.fix and f"{before}task.{error.fix}"
        raise ConfigError(f"task.{error.path}", error.value, error.allowed, fix=fix) from None


def _check_masked(masked: float | None, writes: str, kind: str) -> None:
    if masked is None:
        return
    if writes == "target":
        allowed = (
            "for a model that reads source and target in one row;"
            f" {kind or 'this one'} has a decoder"
        )
        raise ConfigError(
            "task.masked", masked, allowed, fix="task.masked=null, or model=encoder pattern=unilm"
        )
    if not 0 < masked < 1:
        allowed = "0 < masked < 1, or null: each token is predicted from those before it"
        raise ConfigError("task.masked", masked, allowed)
