"""How many tokens of context a language model makes use of, among others (eval only; Dai et al.,
2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded, load
from plmctl.config.build import plain
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.parts import part_of
from plmctl.core.terminal import remark
from plmctl.core.values import Amount, Count, Share
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.heads.base import about_of, language_heads
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.probes.measured_text import read_text
from plmctl.probes.windows import WindowReader, last_windows
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable, Told


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class ContextLength(Probe):
    """The relative effective context length (RECL) of every model of a group.

    l_i(c, t) is the loss of model i on token t, given the c tokens before it, and b(c, t) the least
    of the group. The tokens with the greatest b(c, t) are the `shares` of all. On them,

        f_i(c, c') = mean_t min(b(c, t), l_i(c', t))
        gain = (exp f_i(c, c) - exp f_i(c, c')) / exp f_i(c, c)

    and c grows from `first` by `step`, as long as the gain of c' = c + `step` is at least `gain`. A
    model only gets credit for the gain by a longer context over the best of its group. So short
    context of a better model does not pass for long context. (arXiv:1901.02860, appendix C.)
    Differs: the step is not stated there. A model with a longest row has no more context than that.

    Args:
        others: runs, checkpoints or Hugging Face folders of the group, with the same tokenizer.
        longest: tokens, where the search ends.
        tokens: The number of tokens of the text, drawn at random.
        seed: The seed of the draw.
    """

    others: Sequence[str] = ()
    first: Count = 100
    step: Count = 100
    longest: Count = 1000
    gain: Amount = 0.01
    shares: Sequence[Share] = (0.1, 0.5, 1.0)
    tokens: Count = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first + self.step > self.longest:
            allowed = f"at least first + step = {self.first + self.step}"
            fix = f"task.longest={self.first + self.step}"
            raise ConfigError("task.longest", self.longest, allowed, fix=fix)

    @property
    def contexts(self) -> list[int]:
        """The lengths of context that are compared."""
        return list(range(self.first, self.longest + 1, self.step))

    def choose(self, length: int) -> list[int]:
        """The drawn tokens, in their order, of a text of so many."""
        first = self.contexts[-1]
        if length <= first:
            problem = f"the text has {length:,} tokens, and {first:,} are needed before the first"
            raise DataError(problem, fix="a longer text, or a smaller task.longest")
        count = min(self.tokens, length - first)
        drawn = np.random.default_rng(self.seed).choice(length - first, count, replace=False)
        return sorted((first + drawn).tolist())

    def compare(self, losses: Sequence[np.ndarray]) -> list[dict[str, int]]:
        """{metric: tokens} of every model.

        Args:
            losses: [C, T] for each model, the loss of every token with each of `contexts`.
        """
        stacked = np.stack(losses).astype(np.float64)
        found = {share: self._grow(stacked, share) for share in self.shares}
        return [
            {f"effective_context_{share:g}": lengths[number] for share, lengths in found.items()}
            for number in range(len(losses))
        ]

    def _grow(self, losses: np.ndarray, share: float) -> list[int]:
        """The effective context of each model, on the `share` of hardest tokens."""
        lengths = []
        best = losses.min(0)  # [C, T] b
        count = max(1, round(share * losses.shape[2]))
        for own in losses:
            at = 0
            while at + 1 < len(own):
                hardest = np.argsort(-best[at], kind="stable")[:count]
                now = best[at, hardest]
                longer = np.minimum(now, own[at + 1, hardest])
                if 1 - np.exp(longer.mean() - now.mean()) < self.gain:
                    break
                at += 1
            lengths.append(self.contexts[at])
        return lengths

    def measure(self, opened: Opened) -> ScoreTable:
        """The effective context of the checkpoint and of the others, and their losses."""
        loaded, precision = opened.loaded, opened.precision
        names = [opened.checkpoint, *self.others]
        if len(set(names)) < len(names):
            raise ConfigError("task.others", list(self.others), "each checkpoint once")
        ids, asked, losses = list[int](), list[int](), list[np.ndarray]()
        for name in names:
            model = loaded if not losses else load(name, plugins=opened.plugins)
            text = read_text(opened.data, plain(opened.data.path), model.tokenizer)
            joined = text.join(make_closing_wrap(model.vocab).after[0])
            if losses and joined != ids:
                raise UsageError(
                    f"{name} has another tokenizer than {names[0]}: losses of unlike tokens cannot"
                    f" be compared\n  fix: leave it out of task.others"
                )
            unknown = tell_unknown(joined, model.vocab, opened.data.path)
            asked = asked or self.choose(len(joined))
            ids = joined
            reader = make_reader(name, model, opened.batch_size, precision)
            with torch.no_grad(), precision.autocast():
                losses.append(ask(reader, ids, asked, self.contexts, name=name))
        results = self.compare(losses)
        scores: dict[str, dict[str, float]] = {}
        for name, lengths, table in zip(names, results, losses, strict=True):
            means = zip(self.contexts, table.mean(1), strict=True)
            scores[name] = {**lengths, **{f"loss_{length}": float(loss) for length, loss in means}}
        extra: dict[str, str | int | Told] = {"text": str(opened.data.path), "tokens": len(asked)}
        last = self.contexts[-1]
        if any(last in lengths.values() for lengths in results):
            more = f"still gaining at {last:,} tokens: task.longest={2 * last} looks further"
            extra["longer"] = Told(more, last)
        return ScoreTable("effective context", scores, extra | unknown)


def make_reader(name: str, loaded: Loaded, batch_size: int, precision: Precision) -> WindowReader:
    """A reader of windows; UsageError for a model that does not predict the next token."""
    model = loaded.model.to(precision.device)
    head = next(iter(language_heads(model)), None)
    if head is None or about_of(model.heads[head]) != "next":
        raise UsageError(
            f"task=context_length asks for the next token, and {name} does not predict it\n"
            "  fix: a language model that reads from left to right"
        )
    return WindowReader(model, head, loaded.vocab, batch_size, precision.device)


def ask(
    reader: WindowReader,
    ids: Sequence[int],
    asked: Sequence[int],
    contexts: Sequence[int],
    *,
    name: str,
) -> np.ndarray:
    """[C, T] the loss of every token in `asked`, with each length of context."""
    longest = reader.model.backbone.max_length or contexts[-1]
    losses: dict[int, np.ndarray] = {}
    for length in (min(context, longest) for context in contexts):
        if length not in losses:
            remark(f"{name}: {len(asked):,} tokens, each with {length:,} before it")
            losses[length] = reader.token_losses(last_windows(ids, asked, length))
    return np.stack([losses[min(context, longest)] for context in contexts])
