"""How well a language model predicts text: perplexity in a sliding window, under a fixed mask,
and pseudo-perplexity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from plmctl.config.build import plain
from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.exponential import exponentiate
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.heads.base import about_of, language_heads
from plmctl.models.base import Backbone, Model
from plmctl.noise.base import Noise, add_noise
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.probes.dynamic import Adaptation, Learner
from plmctl.probes.measured_text import Text, read_text
from plmctl.probes.windows import Window, WindowReader, causal_windows, make_rows
from plmctl.tasks.layouts import encode
from plmctl.text.vocab import Vocab
from plmctl.use.asked_task import suggest_task
from plmctl.use.predict import ScoreTable, Told

UNSPACED = "not counted, for this text has no spaces between its words"


@part_of("probe")
class LanguageModel(Probe):
    """`ppl = exp(NLL / units)`, `bits = NLL / (ln 2 * units)`; units are tokens, words, characters
    or UTF-8 bytes of the text.

    A causal model reads each document from its own `bos` on, in windows of `window` tokens that
    move by `stride`. The `bos` is not counted; without one the first token is not counted. Every
    token is scored once, with at least `window - stride` tokens before it. One with memory reads
    windows behind each other, each with the memory of those before it in its document, of `memory`
    tokens (Dai et al., 2019, arXiv:1901.02860, sec. 3.2); what it reads first is the token that
    ends a text, as in training. With `stream` all documents are one, and the token that ends each
    of them is scored, too. Running text (`text.running`) is scored as it is: its first token
    follows the token that ends a text; every end of a line is a token (of characters or bytes: a
    line break) and counts as a word, as in the published perplexities by word. `same_length` and
    `clamp_len` replace those of a model with distances (`models.xlnet`). With `dynamic`, a copy of
    the model learns from each window once it is scored; windows are then read one by one.

    A masked model is scored on tokens masked by `noise` with a fixed seed, and by pseudo-perplexity
    (Salazar et al., 2020, arXiv:1910.14659, sec. 2). That is `exp(-1/N sum_t log p(w_t | w without
    t))`, one masked token at a time, for the first `pseudo_tokens` tokens. Neither compares with a
    causal perplexity.
    """

    def __init__(
        self,
        *,
        noise: Callable[[], Noise],  # a factory: only masked models have a mask token
        window: int | None = None,
        stride: int | None = None,
        memory: int | None = None,
        same_length: bool | None = None,
        clamp_len: Count | None = None,
        stream: bool = False,
        dynamic: Adaptation | None = None,
        # the longest row of training: the window of a model without a longest one
        trained_length: int | None = None,
        pseudo_tokens: int | None = 2000,
        seed: int = 0,
    ) -> None:
        self.noise, self.window, self.stride = noise, window, stride
        self.memory, self.stream, self.trained_length = memory, stream, trained_length
        self.dynamic = dynamic
        self.distances = {"same_length": same_length, "clamp_len": clamp_len}
        self.pseudo_tokens, self.seed = pseudo_tokens, seed

    def measure(self, opened: Opened) -> ScoreTable:
        """The perplexity of a text."""
        loaded, precision = opened.loaded, opened.precision
        path, model = plain(opened.data.path), loaded.model
        if not language_heads(model):
            has, fix = ", ".join(model.heads) or "no head", "a checkpoint with such a head"
            raise UsageError(
                f"task=lm asks a head that predicts tokens of a text; this checkpoint has {has}\n"
                f"  fix: {suggest_task(loaded.source)}{fix}"
            )
        text = read_text(opened.data, path, loaded.tokenizer)
        unknown = tell_unknown(chain.from_iterable(text.ids), loaded.vocab, path)
        train = None
        if self.dynamic is not None and self.dynamic.train_path is not None:
            data = replace(opened.data, bytes=None)
            train = read_text(data, self.dynamic.train_path, loaded.tokenizer)
        with torch.no_grad(), precision.autocast():
            scores = self.score(
                model,
                text,
                loaded.vocab,
                batch_size=opened.batch_size,
                device=precision.device,
                train=train,
            )
        extra: dict[str, Any] = {"checkpoint": opened.folder, "text": str(path)}
        extra["documents"] = Told(text.describe(), len(text.ids))
        if asked := scores.get("pseudo_tokens"):
            extra["pseudo-perplexity"] = Told(self._describe_pseudo(int(asked), text.tokens))
        if not text.spaced:
            extra["words"] = Told(UNSPACED)
        return ScoreTable("language model", {"text": scores}, extra | unknown)

    @staticmethod
    def _describe_pseudo(asked: int, tokens: int) -> str:
        """The part of the text in a pseudo-perplexity."""
        if asked == tokens:
            return f"all {tokens:,} tokens"
        return f"the first {asked:,} of {tokens:,} tokens; task.pseudo_tokens=null takes all"

    def score(
        self,
        model: Model,
        text: Text,
        vocab: Vocab,
        *,
        batch_size: int,
        device: torch.device,
        train: Text | None = None,
    ) -> dict[str, float]:
        """The metrics that the model's head allows; UsageError for a model without a
        language-model head.

        Args:
            train: the training text, where `dynamic` names one (`Adaptation.train_path`).
        """
        window = self._window(model)
        size = {
            "tokens": text.tokens,
            **({"words": text.words} if text.spaced else {}),
            "characters": text.characters,
            "bytes": text.bytes,
            "window": window,
        }
        head = next(iter(language_heads(model)), None)
        if head is None:
            has = ", ".join(model.heads) or "no head"
            raise UsageError(
                f"task=lm asks a head that predicts tokens of a text; this checkpoint has {has}"
            )
        run = WindowReader(model, head, vocab, batch_size, device)
        if about_of(model.heads[head]) == "next":
            remembers = run.remembers(self.memory)
            stride = self._stride(window, remembers)
            memory = getattr(model.backbone, "memory", None) if self.memory is None else self.memory
            settings = {"stride": stride, **({"memory": memory} if memory else {})}
            with self._set_distances(model.backbone, remembers) as distances:
                if self.dynamic is not None:
                    learner = Learner(self.dynamic, model)
                    run = replace(run, model=learner.model, batch_size=1, watch=learner.measure)
                    if train is not None:
                        self._score(run, train, window, stride, remembers)
                    run = replace(run, watch=learner.learn)
                    settings |= {"dynamic_lr": self.dynamic.lr, "dynamic_decay": self.dynamic.decay}
                scores = self._measure_causal(run, text, window, stride, remembers)
            return {**scores, **size, **settings, **distances}
        causal: dict[str, Any] = {"memory": None, "stream": False, **dict.fromkeys(self.distances)}
        given: dict[str, Any] = {"memory": self.memory, "stream": self.stream, **self.distances}
        if self.dynamic is not None:
            causal["dynamic"], given["dynamic"] = None, type(self.dynamic).__name__
        for name, allowed in causal.items():
            if given[name] != allowed:
                why = "this model predicts masked tokens, not from left to right"
                raise ConfigError(f"task.{name}", given[name], f"{json.dumps(allowed)}: {why}")
        masked = self._measure_masked(run, text, window)
        pseudo = self._measure_pseudo(run, text, window)
        # tables of sweeps have the first names alone: what a perplexity is of is among them
        found = {"masked_perplexity": masked["masked_perplexity"], **pseudo, **masked}
        return {**found, **size, "stride": window}

    @contextmanager
    def _set_distances(self, backbone: Backbone, remembers: bool) -> Iterator[dict[str, float]]:
        """Set the distances that the model sees while it is measured; yields the distances in
        force.
        """
        own = vars(backbone)
        before = {name: own[name] for name in self.distances if name in own}
        chosen = {name: value for name, value in self.distances.items() if value is not None}
        for name, value in chosen.items():
            if name not in before:
                allowed = "null: this model has no distances that it could limit"
                raise ConfigError(f"task.{name}", value, allowed, fix=f"task.{name}=null")
        if chosen.get("same_length") and not remembers:
            allowed = "null: without memory, no length is the same for all tokens"
            raise ConfigError("task.same_length", True, allowed, fix="task.memory=<tokens>")
        try:
            for name, value in chosen.items():
                setattr(backbone, name, value)
            yield {name: int(value) for name, value in (before | chosen).items() if value}
        finally:
            for name, value in before.items():
                setattr(backbone, name, value)

    def _window(self, model: Model) -> int:
        longest = model.backbone.max_length
        if self.window is not None and not 4 <= self.window <= (longest or self.window):
            allowed = f"4 to {longest}, the longest row of this model" if longest else "at least 4"
            raise ConfigError("task.window", self.window, allowed)
        return self.window or longest or self.trained_length or 512

    def _stride(self, window: int, remembers: bool) -> int:
        if remembers:
            if self.stride not in (None, window):
                allowed = (
                    "null: with memory each window goes on where the one before ended,"
                    f" after {window} tokens"
                )
                raise ConfigError(
                    "task.stride", self.stride, allowed, fix="task.stride=null, or task.memory=0"
                )
            return window
        stride = self.stride or max(1, window // 2)
        if stride > window - 1:
            allowed = f"at most window - 1 = {window - 1}: every token has one before it"
            fix = f"task.stride={max(1, window // 2)}"
            raise ConfigError("task.stride", stride, allowed, fix=fix)
        return stride

    def _measure_causal(
        self, run: WindowReader, text: Text, window: int, stride: int, remembers: bool
    ) -> dict[str, float]:
        loss, tokens = self._score(run, text, window, stride, remembers)
        by_word = {"perplexity_per_word": exponentiate(loss / max(1, text.words))}
        return {
            "perplexity_per_token": exponentiate(loss / tokens),
            **(by_word if text.spaced else {}),
            "bits_per_character": loss / math.log(2) / text.characters,
            "bits_per_byte": loss / math.log(2) / text.bytes,
            "scored_tokens": tokens,
        }

    def _score(
        self, run: WindowReader, text: Text, window: int, stride: int, remembers: bool
    ) -> tuple[float, int]:
        """(summed negative log-likelihood, predicted tokens) of a text."""
        first, documents = run.vocab.bos, text.ids
        if self.stream or remembers or text.running:
            first = end = make_closing_wrap(run.vocab).after[0]
            if self.stream and not text.running:
                documents = [text.join(end)]
        read = [
            causal_windows(ids if first is None else [first, *ids], window, stride)
            for ids in documents
        ]
        return run.in_order(read, self.memory) if remembers else run.loss(chain.from_iterable(read))

    def _measure_masked(self, run: WindowReader, text: Text, window: int) -> dict[str, float]:
        rows = make_rows([row for row, _ in _frame(text, run.vocab, window)], run.vocab)
        noised = add_noise(self.noise(), rows, Draws(self.seed, 0))
        if not noised.names >= {"text", "targets.mlm"}:
            allowed = "a noise that hides tokens of the text and asks for them (targets.mlm)"
            raise ConfigError("task.noise", ..., allowed, fix="noise@task.noise=token_mask")
        ids, target = noised.seqs["text"].ids, noised.targets["mlm"]
        loss, tokens = run.loss(
            [(ids[r, :n], target[r, :n]) for r, n in enumerate(rows.seqs["text"].length.tolist())]
        )
        return {"masked_perplexity": exponentiate(loss / max(1, tokens)), "masked_tokens": tokens}

    def _measure_pseudo(self, run: WindowReader, text: Text, window: int) -> dict[str, float]:
        """Every window is copied once for each of its tokens."""
        if self.pseudo_tokens == 0:
            return {}
        hidden = _mask_one_by_one(text, run.vocab, window, self.pseudo_tokens)
        loss, tokens = run.loss(hidden)
        return {"pseudo_perplexity": exponentiate(loss / tokens), "pseudo_tokens": tokens}


def _frame(text: Text, vocab: Vocab, window: int) -> Iterator[tuple[encode.Row, int]]:
    """Each document in pieces that fill a row with the tokenizer's special tokens around; and
    how many tokens a piece has.
    """
    room = window - encode.specials(vocab, pair=False)
    for ids in text.ids:
        for start in range(0, len(ids), room):
            piece = ids[start : start + room]
            yield encode.lay_out(piece, None, vocab, max_length=window, pooling="first"), len(piece)


def _mask_one_by_one(text: Text, vocab: Vocab, window: int, limit: int | None) -> Iterator[Window]:
    left = text.tokens if limit is None else limit
    for row, length in _frame(text, vocab, window):
        for position in range(row.a_start, row.a_start + min(length, left)):
            ids, target = list(row.ids), [IGNORE] * len(row.ids)
            ids[position], target[position] = vocab.id("mask"), row.ids[position]
            yield ids, target
        left -= min(length, left)
        if not left:
            return
