"""`plmctl eval task=context_length`: how many tokens of context language models make use of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded, load
from plmctl.config.build import plain
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import remark
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.heads.base import about_of, language_heads
from plmctl.probes.measured_text import read_text
from plmctl.tasks.context_length import ContextLength
from plmctl.tasks.layouts.windows import WindowReader, last_windows
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable, Told


def compare_contexts(
    spec: Evaluate, loaded: Loaded, task: ContextLength, precision: Precision
) -> ScoreTable:
    """The effective context of the checkpoint and of the others, and their losses."""
    names = [str(spec.checkpoint), *task.others]
    if len(set(names)) < len(names):
        raise ConfigError("task.others", list(task.others), "each checkpoint once")
    ids, asked, losses = list[int](), list[int](), list[np.ndarray]()
    for name in names:
        model = loaded if not losses else load(name, plugins=spec.plugins)
        text = read_text(spec.data, plain(spec.data.path), model.tokenizer)
        joined = text.join(make_closing_wrap(model.vocab).after[0])
        if losses and joined != ids:
            raise UsageError(
                f"{name} has another tokenizer than {names[0]}: losses of unlike tokens cannot be"
                f" compared\n  fix: leave it out of task.others"
            )
        asked = asked or task.choose(len(joined))
        ids = joined
        reader = make_reader(name, model, spec, precision)
        with torch.no_grad(), precision.autocast():
            losses.append(ask(reader, ids, asked, task.contexts, name=name))
    results = task.compare(losses)
    scores: dict[str, dict[str, float]] = {}
    for name, lengths, table in zip(names, results, losses, strict=True):
        means = zip(task.contexts, table.mean(1), strict=True)
        scores[name] = {**lengths, **{f"loss_{length}": float(loss) for length, loss in means}}
    extra: dict[str, str | int | Told] = {"text": str(spec.data.path), "tokens": len(asked)}
    last = task.contexts[-1]
    if any(last in lengths.values() for lengths in results):
        more = f"still gaining at {last:,} tokens: task.longest={2 * last} looks further"
        extra["longer"] = Told(more, last)
    return ScoreTable("effective context", scores, extra)


def make_reader(name: str, loaded: Loaded, spec: Evaluate, precision: Precision) -> WindowReader:
    """A reader of windows; UsageError for a model that does not predict the next token."""
    model = loaded.model.to(precision.device)
    head = next(iter(language_heads(model)), None)
    if head is None or about_of(model.heads[head]) != "next":
        raise UsageError(
            f"task=context_length asks for the next token, and {name} does not predict it\n"
            "  fix: a language model that reads from left to right"
        )
    return WindowReader(model, head, loaded.vocab, spec.batch_size, precision.device)


def ask(
    reader: WindowReader,
    ids: Sequence[int],
    asked: Sequence[int],
    contexts: Sequence[int],
    *,
    name: str,
) -> np.ndarray:
    """[C, T] the loss of every token that is asked, with each length of context."""
    longest = reader.model.backbone.max_length or contexts[-1]
    losses: dict[int, np.ndarray] = {}
    for length in (min(context, longest) for context in contexts):
        if length not in losses:
            remark(f"{name}: {len(asked):,} tokens, each with {length:,} before it")
            losses[length] = reader.token_losses(last_windows(ids, asked, length))
    return np.stack([losses[min(context, longest)] for context in contexts])
