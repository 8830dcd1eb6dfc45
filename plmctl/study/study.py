"""A study as checked records; `plmctl.study.parse` makes them from a study's file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from plmctl.analysis.sequences import Comparison, Evidence
from plmctl.config.spec import key_of
from plmctl.core.values import Amount, Count, Rule
from plmctl.runs.prospects import is_falling

PRETRAIN = "pretrain"  # as what a metric or an evaluation is of

Share = Annotated[float, Rule(lambda x: 0 <= x < 1, "at least 0 and below 1")]
Side = Literal["higher", "lower"]


@dataclass(frozen=True)
class Arm:
    """One of the things compared."""

    name: str
    recipe: str | None = None  # null: that of the study
    overrides: tuple[str, ...] = ()  # overrides of pretraining
    # overrides of `plmctl inject`, which gives its model tokens before it is fine-tuned; null: it
    # gets none
    inject: tuple[str, ...] | None = None
    finetune: tuple[str, ...] = ()  # overrides of fine-tuning
    pretrain: bool = True  # false: fine-tuned from first weights
    checkpoint: str | None = None  # fine-tuned from these weights instead
    times: Amount = 1.0  # the study's budget, where it is length that is compared
    # an arm before this one: what it becomes on a task, at the same seed, teaches (distill=kd)
    teacher: str | None = None
    from_teacher: bool = False  # and is what it begins with (kept_layers=...)


@dataclass(frozen=True)
class SharedPretraining:
    """The common settings of all pretrainings."""

    recipe: str = "bert"
    overrides: tuple[str, ...] = ()
    # overrides for a model that starts from nothing; with init=... they are left out
    new_model: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyTask:
    """A task to fine-tune on; without a path it is left out, with its metrics."""

    task: str
    path: Any = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restarts:
    """How often each setting is fine-tuned: `order` seeds of the data order with each of `head`
    seeds of new heads.
    """

    order: Count = 1
    head: Count = 1

    def pairs(self, seed: int) -> list[tuple[int, int]]:
        """The two seeds of each restart of a cell; no two cells share one."""
        return [
            (1000 * seed + order, 1000 * seed + head)
            for order in range(self.order)
            for head in range(self.head)
        ]


@dataclass(frozen=True)
class SharedFinetuning:
    """Every task is fine-tuned with every point of the grid and every restart. The point that does
    best on dev counts, by the mean of its restarts.
    """

    tasks: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    restarts: Any = 1  # or {order, head}


@dataclass(frozen=True)
class StudyEval:
    """`plmctl eval` with these words on every checkpoint of `of`: a task, or "pretrain", the model
    that an arm fine-tunes. One that names a task is left out without a path.
    """

    of: str
    overrides: tuple[str, ...] = ()
    task: str | None = None
    path: Any = None


@dataclass(frozen=True)
class Published:
    """The figures of the paper, by arm."""

    unit: str
    values: dict[str, float]
    source: str = ""


# {largest difference: metrics between 0 and 1, and correlations}
SPANS = {1.0: ("accuracy", "f1", "macro_f1", "exact"), 2.0: ("matthews", "pearson", "spearman")}


@dataclass(frozen=True)
class Metric:
    """A column of results: `key` of pretraining's validation, of a task's dev split, or of an
    evaluation.
    """

    of: str
    key: str
    exp: bool = False  # the exponential of a loss: perplexity
    better: Literal["higher", "lower", "auto"] = "auto"
    expect: dict[str, Side] = field(default_factory=dict)  # arm: which side of the baseline
    published: Any = None

    def of_arms(self, arms: Collection[str]) -> Metric:
        """The metric, with the expected and published values of `arms` alone."""
        expect = {arm: side for arm, side in self.expect.items() if arm in arms}
        if not isinstance(published := self.published, Published):
            return replace(self, expect=expect)
        values = {arm: value for arm, value in published.values.items() if arm in arms}
        return replace(self, expect=expect, published=replace(published, values=values))

    @property
    def unit(self) -> Callable[[float], float]:
        """The unit in which its values are shown."""
        return math.exp if self.exp else float

    @property
    def span(self) -> float | None:
        """The largest difference that two of its values can have; None where that is not known."""
        spans = (span for span, keys in SPANS.items() if self.key in keys and not self.exp)
        return next(spans, None)

    @property
    def series(self) -> str:
        """Its name in the log: of validation, or `start/...` of the first update."""
        return f"valid/{self.key}" if self.validated else self.key

    @property
    def validated(self) -> bool:
        """Whether it is measured again and again on held-out documents in pretraining."""
        return self.of == PRETRAIN and not self.key.startswith("start/")

    @property
    def lower_is_better(self) -> bool:
        """Whether lower is better; by default true for losses, perplexities and bits."""
        falls = self.exp or is_falling(self.key)
        return falls if self.better == "auto" else self.better == "lower"


@dataclass(frozen=True)
class StopRule:
    """Ends a pretraining whose `metric`, after this share of the budget, is on the wrong side of
    `bound`.
    """

    metric: str
    after: Share
    bound: float


@dataclass(frozen=True)
class Study:
    """One study, checked.

    Args:
        seeds: The seeds of every arm; with `until`, at most these.
        budget: The budget of every pretraining, ("steps", 300); None without one.
        data: settings of the text that all pretrainings read.
        pretrain: overrides of all pretrainings.
        inject: overrides of all arms that inject.
        finetune: overrides of all fine-tunings.
        points: The points of the grid of fine-tuning, each as overrides.
        left_out: settings that a task waits for, which is left out without.
        curves: The horizontal axis of learning curves.
        keep: whether checkpoints of fine-tuning are kept.
        until: "decided": seeds are spent in rounds until every expectation is decided.
        hours: The hours of wall-clock time for the whole study; None: no limit.
        makers: {a path: the command that makes what is there}, as its file says.
        corpus: The text of the published experiment; empty in the small form.
        waiting: {a setting that is left out: the metrics whose directions wait for it}.
    """

    name: str
    title: str
    seeds: list[int]
    baseline: str
    arms: dict[str, Arm]
    budget: tuple[str, float] | None
    data: dict[str, Any]
    pretrain: tuple[str, ...]
    inject: tuple[str, ...]
    tasks: dict[str, StudyTask]
    finetune: tuple[str, ...]
    points: list[tuple[str, ...]]
    restarts: Restarts
    evals: dict[str, StudyEval]
    metrics: dict[str, Metric]
    stop: StopRule | None
    left_out: list[str]
    curves: str
    keep: bool
    until: str | None = None
    hours: float | None = None
    makers: Mapping[str, str] = field(default_factory=dict)
    corpus: str = ""
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def tokenizer_words(self, arm: Arm) -> list[str]:
        """The overrides that choose the tokenizer of an arm."""
        words = (*self.pretrain, *arm.overrides)
        return [word for word in words if key_of(word).partition(".")[0] == "tokenizer"]

    @property
    def comparisons(self) -> list[Comparison]:
        """Every metric of every arm but the baseline; one of a metric with the numbers of another
        is no further comparison.
        """
        others = [arm for arm in self.arms if arm != self.baseline]
        own = [name for name in self.metrics if self.find_same(name) == name]
        return [(metric, arm) for metric in own for arm in others]

    def find_same(self, name: str) -> str:
        """The first metric with the numbers of this one, perhaps in another unit."""
        metric = self.metrics[name]
        same = ((other.of, other.key) == (metric.of, metric.key) for other in self.metrics.values())
        return next(other for other, is_same in zip(self.metrics, same, strict=True) if is_same)

    def share_tests(self, tested: Mapping[Comparison, Evidence]) -> dict[Comparison, Evidence]:
        """The tests of all metrics: one with the numbers of another has its test."""
        places = [(name, arm) for name in self.metrics for arm in self.arms]
        shared = {(name, arm): (self.find_same(name), arm) for name, arm in places}
        return {place: tested[first] for place, first in shared.items() if first in tested}
