"""One model from several of one base: sums of their learned differences, TIES, DARE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from plmctl.artifacts.adapter_base import fold_methods
from plmctl.artifacts.convert import refuse_target, to_plmctl
from plmctl.artifacts.loading import Source, find_base, open_source, without_spare_rows
from plmctl.core.errors import DataError, UsageError
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import tell
from plmctl.storage.atomic import open_folder, write_json
from plmctl.training.averaged import MADE
from plmctl.training.checkpoint import read_base


@dataclass(frozen=True)
class Kept:
    """How much of each difference is kept, and at what weight.

    Args:
        weights: w_i, one for each model.
        density: The kept share of the elements.
        generator: The source of random choices.
    """

    weights: Sequence[float]
    density: float
    generator: Generator


# [n, ...] differences of n models in one tensor -> their sum
MergeRule = Callable[[Tensor, Kept], Tensor]


def weigh(differences: Tensor, choice: Kept) -> Tensor:
    """`w_i t_i`."""
    weights = torch.tensor(choice.weights, dtype=differences.dtype)
    return differences * weights.view(-1, *[1] * (differences.dim() - 1))


def add(differences: Tensor, choice: Kept) -> Tensor:
    """`sum_i w_i t_i` (Ilharco et al., 2023, arXiv:2212.04089, sec. 2)."""
    return weigh(differences, choice).sum(0)


def keep_largest(differences: Tensor, choice: Kept) -> Tensor:
    """Each difference with 0 outside of its `floor(density size)` elements of largest size."""
    flat = differences.flatten(1)
    most = flat.abs().topk(int(choice.density * flat.shape[1]), 1).indices
    kept = torch.zeros_like(flat).scatter(1, most, flat.gather(1, most))
    return kept.view_as(differences)


def keep_random(differences: Tensor, choice: Kept) -> Tensor:
    """Each element is kept with the probability `density`, divided by it; else 0 (Yu et al., 2024,
    arXiv:2311.03099, sec. 3.1).
    """
    drawn = torch.rand(differences.shape, dtype=torch.float64, generator=choice.generator)
    return differences * (drawn < choice.density) / choice.density


def agree(differences: Tensor, choice: Kept) -> Tensor:
    """The mean of `w_i t_i` over the elements that have the sign of the sum of all t_i, and are not
    0 (Yadav et al., 2023, arXiv:2306.01708, sec. 4).
    """
    positive = differences.sum(0) >= 0
    same = torch.where(positive, differences > 0, differences < 0)
    return (weigh(differences, choice) * same).sum(0) / same.sum(0).clamp(min=1)


@dataclass(frozen=True)
class MergeWay:
    """A rule, and its defaults.

    Args:
        density: The published share of kept elements; None: the rule keeps all.
        shared: Whether the weights are 1 / n by default, and not 1.
    """

    rule: MergeRule
    density: float | None = None
    shared: bool = False


WAYS: Mapping[str, MergeWay] = {
    "linear": MergeWay(add, shared=True),
    "ties": MergeWay(lambda t, choice: agree(keep_largest(t, choice), choice), density=0.2),
    "dare": MergeWay(
        lambda t, choice: add(keep_random(t, choice), choice), density=0.1, shared=True
    ),
    "dare_ties": MergeWay(lambda t, choice: agree(keep_random(t, choice), choice), density=0.1),
}


def merge(
    runs: Sequence[Path],
    out: Path,
    *,
    by: str = "linear",
    weights: Sequence[float] = (),
    density: float | None = None,
    base: Path | None = None,
    seed: int = 0,
    plugins: Sequence[str] = (),
    say: Callable[[str], None] = tell,
) -> Path:
    """Write a checkpoint into `out`: the base plus what `by` makes of the differences of the runs.

    Low-rank methods are put into the weights first, so a difference is that of whole matrices. The
    base lacks new heads. These are the mean if all runs have the same task, else the first ones.

    Args:
        by: A name in WAYS.
        weights: One for each run; none: 1 / n for sums, 1 for means over equal signs.
        density: The share of the elements that are kept; None: as published.
        base: The model that the runs began from; None: where the weights of their methods lie.

    Raises:
        UsageError: A setting does not fit, or the base is unknown.
        DataError: A run is another model.
    """
    way, count = WAYS[by], len(runs)
    weights = list(weights) or [1 / count if way.shared else 1.0] * count
    _check(way, by, count, weights, density)
    refuse_target(out)
    opened = [open_source(run, plugins=plugins) for run in runs]
    places = (
        [base]
        if base
        else [_find_base(run, source) for run, source in zip(runs, opened, strict=True)]
    )
    if len(different := {place.resolve() for place in places}) > 1:
        named = " and ".join(map(str, sorted(different)))
        raise UsageError(f"the runs have different bases: {named}\n  fix: merge runs of one base")
    first = without_spare_rows(open_source(places[0], plugins=plugins)).tensors
    plain = [without_spare_rows(fold_methods(source)) for source in opened]
    kept = way.density if density is None else density
    choice = Kept(weights, 1.0 if kept is None else kept, Generator().manual_seed(seed))
    merged = dict(_merge(plain, first, way.rule, choice))
    what = f"{by} of {', '.join(map(str, runs))}, which began from {places[0]}"
    with open_folder(out) as unfinished:
        to_plmctl(replace(plain[0], tensors=merged), unfinished)
        numbers = {"by": by, "weights": weights, "density": kept, "seed": seed}
        write_json(unfinished / MADE, {"what": what, "run": str(runs[0]), **numbers})
    say(f"{out}: {what}")
    return out


def read_weights(text: str | None) -> list[float]:
    """The numbers in "0.5,0.5"; UsageError for anything else."""
    try:
        found = [float(word) for word in (text or "").split(",") if text]
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise UsageError(f"--weights {text}: no list of numbers\n  fix: --weights 0.5,0.5")
    return found


def _check(
    way: MergeWay, by: str, count: int, weights: Sequence[float], density: float | None
) -> None:
    """UsageError for settings that do not fit."""
    if len(weights) != count:
        fix = f"--weights {','.join(['1'] * count)}"
        raise UsageError(f"--weights: {len(weights)} for {count} runs\n  fix: {fix}")
    if density is not None and way.density is None:
        what = f"--density: {by} keeps every element"
        raise UsageError(f"{what}\n  fix: --by ties, or leave --density out")
    if density is not None and not 0 < density <= 1:
        raise UsageError(f"--density {density:g}: more than 0, at most 1\n  fix: --density 0.2")


def _find_base(run: Path, source: Source) -> Path:
    """The model that a run trained few weights of; UsageError for a run of all weights."""
    record = None if source.published else read_base(source.folder)
    if source.beside is not None:
        return source.beside
    if record is None:
        what = f"{run} has all weights itself, so the model that it began from is unknown"
        line = spell_line("average", run, "<another run>", "--base", "<that model>")
        raise UsageError(f"{what}\n  fix: {line}")
    return find_base(source.folder, record)


def _merge(
    plain: Sequence[Source], base: Mapping[str, Tensor], rule: MergeRule, choice: Kept
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the merged model."""
    tasks = [source.config.get("task") for source in plain]
    alike = all(task == tasks[0] for task in tasks) and sum(choice.weights) > 0
    shares = torch.tensor(choice.weights, dtype=torch.float64)
    for name, tensor in plain[0].tensors.items():
        own = [source.tensors.get(name) for source in plain]
        same = [part.double() for part in own if part is not None and part.shape == tensor.shape]
        start = base.get(name)
        known = start is not None and start.shape == tensor.shape
        if name.startswith("backbone.") and not (known and len(same) == len(own)):
            what = f"{name} is not alike in the runs and the base"
            fix = "merge runs of one base; --base names the model that they began from"
            raise DataError(what, file=plain[0].folder, fix=fix)
        if start is not None and known and len(same) == len(own) and tensor.is_floating_point():
            first = start.double()
            yield name, (first + rule(torch.stack(same) - first, choice)).to(tensor.dtype)
        elif alike and len(same) == len(own) and tensor.is_floating_point():
            mean = torch.tensordot(shares / shares.sum(), torch.stack(same), 1)
            yield name, mean.to(tensor.dtype)
        else:
            yield name, tensor
