"""A study as it is written, parsed and checked: every mistake that needs no composition, all at
once.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from plmctl.core.errors import ConfigError, UsageError, nearest, raise_all
from plmctl.core.values import Count, Rule, fit
from plmctl.run.build import MISSING
from plmctl.study.arms import Arm, ArmNode, gridded, swept

PRETRAIN = "pretrain"  # as what a metric or an evaluation is of

T = TypeVar("T")
Share = Annotated[float, Rule(lambda x: 0 <= x < 1, "at least 0 and below 1")]


@dataclass(frozen=True)
class Pretraining:
    recipe: str = "bert"
    overrides: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Labelled:
    """A task to fine-tune on; without a path it is left out, with the metrics of it."""

    task: str
    path: Any = None
    overrides: list[str] = field(default_factory=list)


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
class Tuning:
    """Every task, setting of the grid and restart; the setting that does best on dev counts, the
    mean of its restarts.
    """

    tasks: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    grid: list[str] = field(default_factory=list)
    restarts: Any = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """`plmctl eval` with these words on every checkpoint of `of`: "pretrain" or a task."""

    of: str
    overrides: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Published:
    unit: str
    values: dict[str, float]  # by arm
    source: str = ""


@dataclass(frozen=True)
class Metric:
    """A column of results: `key` of pretraining's validation, of a task's dev split, or of an
    evaluation.
    """

    of: str
    key: str
    exp: bool = False  # of a loss: perplexity
    better: Literal["higher", "lower", "auto"] = "auto"
    # arm: which side of the baseline
    expect: dict[str, Literal["higher", "lower"]] = field(default_factory=dict)
    published: Any = None

    @property
    def series(self) -> str:
        """Its name in the log of a pretraining: of validation, or `start/...` of the first
        update.
        """
        return f"valid/{self.key}" if self.validated else self.key

    @property
    def validated(self) -> bool:
        """Whether it is measured again and again on held-out documents in pretraining."""
        return self.of == PRETRAIN and not self.key.startswith("start/")

    @property
    def lower_is_better(self) -> bool:
        falling = self.exp or any(word in self.key for word in ("loss", "bits_per", "perplexity"))
        return falling if self.better == "auto" else self.better == "lower"


@dataclass(frozen=True)
class Stop:
    """Ends a pretraining whose `metric`, after this share of the budget, is on the wrong side of
    `bound`.
    """

    metric: str
    after: Share
    bound: float


@dataclass(frozen=True)
class Study:
    """One study, checked; `settings` is what it was made from."""

    name: str
    title: str
    seeds: list[int]
    baseline: str
    arms: dict[str, Arm]
    budget: tuple[str, float] | None  # ("steps", 300)
    data: dict[str, Any]
    pretrain: list[str]
    tasks: dict[str, Labelled]
    settings: list[tuple[str, ...]]  # of fine-tuning: the points of its grid
    tuning: list[str]
    restarts: Restarts
    evals: dict[str, Evaluation]
    metrics: dict[str, Metric]
    stop: Stop | None
    left_out: list[str]  # what waits for a path
    curves: str
    keep: bool


def parse(cfg: Mapping[str, Any], *, name: str, config_dirs: Sequence[str] = ()) -> Study:
    """The study that a composed config states; all problems are raised together."""
    errors: list[UsageError] = []
    common = _node(Pretraining, cfg["pretrain"] or {}, "pretrain", errors) or Pretraining()
    arms = _arms(cfg, common, config_dirs, errors)
    tuning = _node(Tuning, cfg["finetune"] or {}, "finetune", errors) or Tuning()
    restarts = (
        {"order": tuning.restarts, "head": 1}
        if not isinstance(tuning.restarts, Mapping)
        else tuning.restarts
    )
    tasks = _nodes(Labelled, tuning.tasks, "finetune.tasks", errors)
    evals = _nodes(Evaluation, cfg["eval"], "eval", errors)
    metrics = _nodes(Metric, cfg["metrics"], "metrics", errors)
    budget = _budget(cfg["budget"], any(arm.pretrain for arm in arms.values()), errors)
    stop = _node(Stop, cfg["stop"], "stop", errors) if cfg["stop"] else None
    errors += _check_names(cfg, arms, tasks, evals, metrics)
    errors += _check_metrics(metrics, arms, str(cfg["baseline"]))
    metrics = {
        key: _with_published(metric, f"metrics.{key}.published", arms, errors)
        for key, metric in metrics.items()
    }
    waiting = [task for task, node in tasks.items() if node.path is None]
    waiting += [key for key, node in evals.items() if node.of in waiting]
    made = Study(
        name=name,
        title=cfg["title"] or name,
        seeds=list(cfg["seeds"]),
        baseline=cfg["baseline"],
        arms=arms,
        budget=budget,
        data=dict(cfg["data"]),
        pretrain=common.overrides,
        tuning=tuning.overrides,
        tasks={key: node for key, node in tasks.items() if key not in waiting},
        settings=_sweep(tuning.grid, "finetune.grid", config_dirs, errors),
        restarts=_node(Restarts, restarts, "finetune.restarts", errors) or Restarts(),
        evals={key: node for key, node in evals.items() if key not in waiting},
        metrics={key: metric for key, metric in metrics.items() if metric.of not in waiting},
        stop=stop,
        left_out=[f"finetune.tasks.{key}.path=..." for key in waiting if key in tasks],
        keep=cfg["keep"],
        curves=cfg["curves"]
        or {"minutes": "time"}.get(
            budget[0] if budget else "steps", budget[0] if budget else "steps"
        ),
    )
    raise_all(errors)
    return made


def _arms(
    cfg: Mapping[str, Any],
    common: Pretraining,
    config_dirs: Sequence[str],
    errors: list[UsageError],
) -> dict[str, Arm]:
    """The arms of the grid, then the rows."""
    try:
        arms = gridded(cfg["grid"], common.recipe, config_dirs)
    except UsageError as error:
        errors.append(error)
        arms = {}
    for name, given in cfg["arms"].items():
        if isinstance(given, str) or not isinstance(given, (Mapping, Sequence)):
            errors.append(
                ConfigError(
                    f"arms.{name}",
                    given,
                    "is a list of overrides, or {recipe, overrides, pretrain, ...}",
                )
            )
            continue
        node = _node(
            ArmNode,
            given if isinstance(given, Mapping) else {"overrides": given},
            f"arms.{name}",
            errors,
        )
        if name in arms:
            errors.append(
                ConfigError(f"arms.{name}", ..., "the grid makes an arm of this name too")
            )
        elif node:
            arms[name] = Arm.of(name, node, common.recipe)
    if len(arms) < 2 and not errors:
        errors.append(
            ConfigError(
                "arms",
                sorted(arms),
                "a study compares two arms or more",
                fix="arms: {name: [overrides]}",
            )
        )
    return arms


def _sweep(
    words: Sequence[str], path: str, config_dirs: Sequence[str], errors: list[UsageError]
) -> list[tuple[str, ...]]:
    try:
        return swept(words, config_dirs)
    except UsageError as error:
        errors.append(UsageError(f"{path}: {error}"))
        return [()]


def _budget(
    given: Mapping[str, Any], needed: bool, errors: list[UsageError]
) -> tuple[str, float] | None:
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1 or (needed and not chosen):
        found = f"there are {', '.join(chosen)}" if chosen else "there is none"
        fix = f"budget.{next(iter(chosen))}=null" if chosen else "budget.steps=300"
        errors.append(
            ConfigError(
                "budget",
                ...,
                f"exactly one of {', '.join(given)}, the same for all arms; {found}",
                fix=fix,
            )
        )
    return next(iter(chosen.items()), None)


def _check_names(
    cfg: Mapping[str, Any],
    arms: Mapping[str, Arm],
    tasks: Mapping[str, Any],
    evals: Mapping[str, Evaluation],
    metrics: Mapping[str, Metric],
) -> list[UsageError]:
    """Whatever refers to something by name finds it, and no seed stands twice."""
    errors: list[UsageError] = []
    baseline, seeds = cfg["baseline"], cfg["seeds"]
    if baseline not in arms:
        shown = (
            ", ".join([*list(arms)[:6], *([f"and {len(arms) - 6} more"] if len(arms) > 6 else [])])
            or "none"
        )
        known = f"is no arm of this study{nearest(str(baseline), arms)}; there are {shown}"
        errors.append(ConfigError("baseline", ... if baseline == MISSING else baseline, known))
    names = list(arms)
    for place, (name, arm) in enumerate(arms.items()):
        if arm.teacher is not None and arm.teacher not in names[:place]:
            errors.append(_teacher(name, arm.teacher, names, place))
        if arm.from_teacher and arm.teacher is None:
            errors.append(
                ConfigError(
                    f"arms.{name}.from_teacher",
                    True,
                    "needs a teacher, an arm that stands before this one",
                )
            )
        if arm.times != 1 and not arm.pretrain:
            errors.append(
                ConfigError(
                    f"arms.{name}.times", arm.times, "is of a pretraining, which this arm has not"
                )
            )
    if not seeds or len(set(seeds)) < len(seeds):
        errors.append(
            ConfigError("seeds", list(seeds), "one seed or more, none twice", fix="seeds=[0,1,2]")
        )
    errors += [
        ConfigError(f"{place}.{name}", ..., "this name is taken already")
        for place, names, others in (
            ("finetune.tasks", tasks, [PRETRAIN]),
            ("eval", evals, [PRETRAIN, *tasks]),
        )
        for name in names
        if name in others
    ]
    sources = [PRETRAIN, *tasks]
    errors += [
        _unknown(f"eval.{name}.of", node.of, sources)
        for name, node in evals.items()
        if node.of not in sources
    ]
    sources = [*sources, *evals]
    errors += [
        _unknown(f"metrics.{name}.of", node.of, sources)
        for name, node in metrics.items()
        if node.of not in sources
    ]
    if not cfg["metrics"]:
        errors.append(
            ConfigError(
                "metrics", ..., "at least one", fix="metrics: {loss: {of: pretrain, key: loss}}"
            )
        )
    return errors


def _check_metrics(
    metrics: Mapping[str, Metric], arms: Mapping[str, Arm], baseline: str
) -> list[UsageError]:
    errors: list[UsageError] = []
    for name, metric in metrics.items():
        others = [arm for arm in arms if arm != baseline]
        errors += [
            _unknown(f"metrics.{name}.expect", arm, others)
            for arm in metric.expect
            if arm not in others
        ]
    return errors


def _with_published(
    metric: Metric, path: str, arms: Mapping[str, Arm], errors: list[UsageError]
) -> Metric:
    if metric.published is None:
        return metric
    found = _node(Published, metric.published, path, errors)
    if found:
        errors += [_unknown(f"{path}.values", arm, arms) for arm in found.values if arm not in arms]
    return dataclasses.replace(metric, published=found)


def _teacher(arm: str, teacher: str, names: Sequence[str], place: int) -> ConfigError:
    if teacher not in names:
        return _unknown(f"arms.{arm}.teacher", teacher, names[:place])
    allowed = (
        "has to stand before its student"
        if teacher != arm
        else "is the student itself; its teacher is another arm"
    )
    return ConfigError(
        f"arms.{arm}.teacher",
        teacher,
        allowed,
        fix=f"one of {', '.join(names[:place])}" if place else "",
    )


def _unknown(path: str, value: str, known: Sequence[str] | Mapping[str, Any]) -> ConfigError:
    return ConfigError(
        path,
        value,
        f"there is no such name{nearest(value, known)}; there are {', '.join(known) or 'none'}",
    )


def _nodes(
    kind: type[T], given: Mapping[str, Any], path: str, errors: list[UsageError]
) -> dict[str, T]:
    found = {name: _node(kind, node, f"{path}.{name}", errors) for name, node in given.items()}
    return {name: node for name, node in found.items() if node is not None}


def _node(kind: type[T], given: Any, path: str, errors: list[UsageError]) -> T | None:
    """`given` as the dataclass `kind`; None, and what is wrong in `errors`, where it does not
    fit.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    if not isinstance(given, Mapping):
        errors.append(ConfigError(path, given, f"is a group of settings: {', '.join(hints)}"))
        return None
    before, values = len(errors), {}
    for key, value in given.items():
        if key not in hints:
            allowed = (
                f"there is no such setting{nearest(str(key), hints)}; there are {', '.join(hints)}"
            )
            errors.append(ConfigError(f"{path}.{key}", value, allowed))
            continue
        try:
            values[str(key)] = fit(value, hints[key])
        except ValueError as error:
            errors.append(ConfigError(f"{path}.{key}", value, str(error)))
    errors += [
        ConfigError(f"{path}.{f.name}", ..., "must be given")
        for f in dataclasses.fields(kind)  # type: ignore[arg-type]
        if f.default is f.default_factory is dataclasses.MISSING and f.name not in given
    ]
    return kind(**values) if len(errors) == before else None
