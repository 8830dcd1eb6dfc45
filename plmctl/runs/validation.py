"""The validation of a pretraining: losses of held-out text, next to those of models that count."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from plmctl.config.reached import losses_reached
from plmctl.core.batch import Batch
from plmctl.core.exponential import exponentiate
from plmctl.inputs.corpus import Corpus
from plmctl.inputs.loaders import batches_beside, open_held_out
from plmctl.models.base import Model
from plmctl.runs.floors import asks_for_text, count_corpus
from plmctl.runs.pretraining_plan import PretrainingPlan
from plmctl.training.evaluation import Measured, measure
from plmctl.training.processes.world import World
from plmctl.training.progress import Progress
from plmctl.training.trainer import Evaluate


def validate(plan: PretrainingPlan, world: World) -> Evaluate | None:
    """The losses on held-out documents, or None without any.

    Targets of tokens have bits per byte, the losses of models that count, and what comparable
    recipes reached by then.
    """
    corpus, objective, targets = plan.corpus, plan.objective, plan.targets
    pairs = plan.pairs
    if not any(corpus.valid.values()):
        return None if pairs is None else lambda model, _: pairs.score(model, world.device)
    bytes_per_token = {}
    for title, (source, name) in corpus.held_out().items():
        # the bytes of one side of parallel text alone are not known
        if not plan.sources[source].reader.format.target_length:
            shards = corpus.valid[source][name]
            split = shards.manifest["splits"][shards.split]  # "train", where a stream has its own
            bytes_per_token[title] = split["bytes"] / max(1, split["tokens"])
    # opened now: held-out text that fills no row is reported before the first update
    held_out = open_held_out(plan.feed, corpus, world, plan.fields)
    batches: dict[str, list[Batch]] = {}
    beside = batches_beside(plan.feed, world.size)
    floors: dict[str, float] = {}

    def evaluate(model: Model, progress: Progress) -> dict[str, float]:
        first = not batches
        if first:
            batches.update({title: list(rows) for title, rows in held_out.items()})
        parts = {
            title: measure(model, objective, rows, world=world, beside=beside)
            for title, rows in batches.items()
        }
        scores = score_parts(parts, bytes_per_token, targets)
        if len(parts) > 1:
            for title, part in parts.items():
                alone = score_parts({title: part}, bytes_per_token, targets)
                scores |= {f"{title}/{key}": value for key, value in alone.items()}
        if first:
            # a term may have another name than its target; only the main process has scores
            shown = [name for name in targets if f"loss/{name}" in scores]
            floors.update(_count(corpus, bytes_per_token, batches, shown))
        scores |= {} if pairs is None else pairs.score(model, world.device)
        return {**scores, **floors, **losses_reached(plan.comparable, floors, progress.tokens)}

    return evaluate


def _count(
    corpus: Corpus,
    titles: Collection[str],
    batches: Mapping[str, Sequence[Batch]],
    targets: Sequence[str],
) -> dict[str, float]:
    """{"unigram/mlm", "bigram/mlm"}: the losses of models that only count, for targets that ask
    for tokens of the text of `titles`.
    """
    rows = [batch for title in titles for batch in batches[title]]
    asked = [name for name in targets if asks_for_text(rows, name, corpus.vocab)]
    losses = count_corpus(corpus, titles) if asked else None
    if losses is None:
        return {}
    return {f"{kind}/{name}": value for name in asked for kind, value in losses.items()}


def score_parts(
    parts: Mapping[str, Measured], bytes_per_token: Mapping[str, float], targets: Sequence[str]
) -> dict[str, float]:
    """Means over all parts, every target counting once, and bits per byte and perplexity of the
    targets made of tokens.

    A smoothed loss is no probability: where there is `nll/<target>`, it counts. A part of which the
    bytes are not known (one side of parallel text), or that has none, has no bits per byte.
    """
    whole = Measured.together(parts.values())
    scores = whole.means()
    for name in targets if bytes_per_token.keys() >= parts.keys() else ():
        if f"loss/{name}" not in scores:
            continue
        loss = f"nll/{name}" if f"nll/{name}" in scores else f"loss/{name}"
        counts = {title: part.sums.get(loss, (0, 0))[1] for title, part in parts.items()}
        size = sum(count * bytes_per_token[title] for title, count in counts.items())
        if size > 0:
            scores[f"bits_per_byte/{name}"] = whole.sums[loss][0] / math.log(2) / size
        scores[f"perplexity/{name}"] = exponentiate(scores[loss])
    return scores
