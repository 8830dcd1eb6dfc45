"""The floors of a pretraining: what models reach that only count, and when a run leaves them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.config.reached import Reached
from plmctl.config.walks import select
from plmctl.core.batch import IGNORE, Batch
from plmctl.core.errors import PlmctlError
from plmctl.data.baseline import measure_bigram_baseline, measure_unigram_baseline
from plmctl.data.held_out import ENOUGH, NEAR, is_near_floor
from plmctl.data.shards import Shards
from plmctl.inputs.corpus import Corpus
from plmctl.text.vocab import Vocab
from plmctl.training.progress import Progress

MOSTLY = 0.1  # the largest share of special tokens among the labels of text
# A run is late after so many times the tokens that the first recipe needed to leave the frequencies
# of words. BERT's, with learned positions, needs several times as many as others
TIMES = 5
EXPLODED = 20.0  # nats, and twice those of an even guess: no weights of any use have more
PATIENCE = 2e6  # tokens after which a run is late, where no recipe states it
# the most helpful settings (docs/results/modern_encoder.md), best first: (setting, where it stands,
# its part)
LEVERS = (
    ("position=rotary", "position", "Rotary"),
    ("model.stack.residual._target_=plmctl.nn.residual.PreNorm", "model.stack.residual", "PreNorm"),
)
OTHERWISE = "a higher optim.lr with schedule.warmup_steps"


def count_corpus(corpus: Corpus, titles: Collection[str]) -> dict[str, float] | None:
    """{"unigram", "bigram"}: the losses of two models that only count, in nats a token of the
    held-out text of `titles`. They count how often each token occurs, and how often behind which.
    Each corpus is as heavy as it has tokens; None where no text has a second token.
    """
    losses, weights = [], []
    for title, (source, name) in corpus.held_out().items():
        train, valid = corpus.train[source][name], corpus.valid[source][name]
        if title in titles and not corpus.vocab.special[valid.ids[1:]].all():
            losses.append(_count(train, valid, corpus.vocab))
            weights.append(len(valid.ids))
    if not losses:
        return None
    means = np.average(losses, axis=0, weights=weights).tolist()
    return dict(zip(("unigram", "bigram"), means, strict=True))


def _count(train: Shards, valid: Shards, vocab: Vocab) -> tuple[float, float]:
    ignored = vocab.special
    return (
        measure_unigram_baseline(train.ids, valid.ids, ignored=ignored).unigram_loss,
        measure_bigram_baseline(train.ids, valid.ids, ignored=ignored),
    )


def asks_for_text(batches: Iterable[Batch], target: str, vocab: Vocab) -> bool:
    """Whether the labels of a target are tokens of text, of which the frequencies are known; the
    sentinels of T5, say, are not.
    """
    for batch in batches:
        if target in batch.targets:
            found = batch.targets[target]
            labels = found.ids[found.ids != IGNORE].cpu().numpy()  # [P]
            if labels.size:
                return bool(vocab.special[labels].mean() < MOSTLY)
    return False


class Floors:
    """Prints a line when the validation of a run leaves the frequencies of tokens, and one when it
    passes those of pairs. Another line warns if it has not left them by the time by which others
    have.

    Args:
        targets: The targets of the objective whose labels are tokens.
        config: The config of the run, in which the advised setting is looked up.
        stated: The losses that recipes reached, of any size.
        held_out: The number of held-out tokens; for too few, no other line is printed.
        generated: The terms of a generator of the objective.
    """

    def __init__(
        self,
        targets: Sequence[str],
        config: Mapping[str, Any],
        stated: Sequence[Reached] = (),
        *,
        held_out: int = ENOUGH,
        generated: Collection[str] = (),
    ) -> None:
        self.targets, self.config, self.stated = targets, config, stated
        self.held_out, self.generated = held_out, generated
        self.said: set[tuple[str, str]] = set()
        self.newest: dict[str, float] = {}  # scores, and unigram losses of the text

    def remark(self, progress: Progress, scores: Mapping[str, float]) -> list[str]:
        """The lines after a validation: `scores` hold `loss/mlm`, `unigram/mlm` and `bigram/mlm`
        for a target of this name.
        """
        lines = []
        self.newest = dict(scores)
        placed = [
            (name, *self._place(name, progress.tokens, scores))
            for name in self.targets
            if f"unigram/{name}" in scores
        ]
        for name, kind, line in [*placed, *self._leave_constants(progress.tokens)]:
            if line and self.held_out < ENOUGH:
                name, kind = "", "few"
                few = f"{self.held_out:,} tokens are held out: too few to compare losses"
                line = f"{few} with those of counting (data.valid_share, data.valid_path)"
            if line and (name, kind) not in self.said:
                self.said.add((name, kind))
                lines.append(line)
        return lines

    def conclude(self, size: int) -> list[str]:
        """The lines at the end of a run, of targets that know no more of a token than how often it
        occurs.

        Args:
            size: The size of the vocabulary.

        Raises:
            PlmctlError: A loss is none, or far above that of a guess among all tokens: the weights
                have exploded.
        """
        lines = []
        for name in self.targets:
            loss = self.newest.get(f"nll/{name}", self.newest.get(f"loss/{name}"))
            if loss is None:
                continue
            even = math.log(max(2, size))
            if not loss < max(EXPLODED, 2 * even):  # NaN, too
                raise PlmctlError(
                    f"{name}: this training has exploded: the loss of held-out text is {loss:.4g},"
                    f" that of an even guess among {size:,} tokens {even:.3g}; its weights are of"
                    " no use\n  fix: a smaller optim.lr, or a longer schedule.warmup_steps"
                )
            unigram = self.newest.get(f"unigram/{name}", 0.0)
            if unigram and self.held_out >= ENOUGH and is_near_floor(self.newest, name):
                near = f"they have {unigram:.3f}" + (f", within {NEAR}" if loss < unigram else "")
                what = "generator" if name in self.generated else "model"
                lines.append(
                    f"{name}: this run has not left the frequencies of single tokens ({loss:.3f},"
                    f" {near}): its {what} knows nothing of contexts yet"
                )
        for name in self._list_constants() if self.held_out >= ENOUGH else ():
            if is_near_floor(self.newest, name):
                lines.append(
                    f"{name}: this run has not left one constant answer"
                    f" ({self._compare_constant(name)}): its model has not learned which is right"
                )
        return lines

    def _list_constants(self) -> list[str]:
        """The terms with few answers."""
        known = (
            key.removeprefix("constant/") for key in self.newest if key.startswith("constant/")
        )
        return [name for name in known if f"loss/{name}" in self.newest]

    def _compare_constant(self, name: str) -> str:
        """`0.407 nats, 85.3% right; it has 0.417, 85.3%`."""
        pairs = [
            (self.newest[f"{loss}/{name}"], self.newest.get(f"{of}/{name}"))
            for loss, of in (("loss", "acc"), ("constant", "constant_acc"))
        ]
        (own, right), (floor, often) = pairs
        told = "" if right is None else f", {right:.1%} right"
        return f"{own:.3f} nats{told}; it has {floor:.3f}, {often:.1%}"

    def _leave_constants(self, tokens: int) -> Iterator[tuple[str, str, str]]:
        """(term, kind, line) of each term with few answers that does better than one of them."""
        for name in self._list_constants():
            if not is_near_floor(self.newest, name):
                after = f"after {tokens / 1e6:.2g} M tokens"
                compared = self._compare_constant(name)
                yield name, "constant", f"{name}: left one constant answer ({compared}) {after}"

    def _place(self, name: str, tokens: int, scores: Mapping[str, float]) -> tuple[str, str]:
        """The counting models that the run has passed, and a line on them."""
        loss = scores.get(f"nll/{name}", scores[f"loss/{name}"])
        unigram, bigram = scores[f"unigram/{name}"], scores[f"bigram/{name}"]
        after = f"after {tokens / 1e6:.2g} M tokens"
        if loss < bigram:
            return "bigram", f"{name}: below pairs of tokens ({loss:.3f} < {bigram:.3f}) {after}"
        if loss < unigram - NEAR:
            left = f"left the frequencies of single tokens ({loss:.3f} < {unigram:.3f}) {after}"
            return "unigram", f"{name}: {left}; pairs are at {bigram:.3f}"
        first = self._find_first(name, unigram - bigram)
        if tokens < (TIMES * first[0] if first else PATIENCE):
            return "", ""
        still = f"still at the frequencies of single tokens ({unigram:.3f}) {after}"
        others, recipe = "", ""
        if first:
            needed, recipe, size = first
            others = f"; {recipe} ({size}) left them within {needed / 1e6:.2g} M"
        lever = self._choose_lever(recipe)
        return "late", f"{name}: {loss:.3f} is {still}{others}. The most helpful step: {lever}"

    def _find_first(self, target: str, distance: float) -> tuple[float, str, str] | None:
        """(tokens, recipe, size) of the recipe that left the frequencies of tokens first, by what
        is stated of the size of the run, else of any; `distance`: from there to those of pairs.
        """
        if distance <= 0:
            return None
        size = self.config.get("size")
        stated = [statement for statement in self.stated if statement.target == target]
        stated = [statement for statement in stated if statement.is_of(size)] or stated
        left = [
            (tokens, statement.recipe, statement.size)
            for statement in stated
            if (tokens := statement.first_above(NEAR / distance)) is not None
        ]
        return min(left, default=None)

    def _choose_lever(self, recipe: str) -> str:
        for setting, path, part in LEVERS:
            target = select(self.config, f"{path}._target_")
            if target is not None and target.rpartition(".")[2] != part:
                return setting
        other = recipe and recipe != self.config.get("recipe")
        return OTHERWISE + (f", or the recipe {recipe}" if other else "")
