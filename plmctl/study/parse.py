"""A study's file as a study: every mistake that needs no composition is raised at once."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from plmctl.analysis.runs import AXIS
from plmctl.analysis.sequences import FIRST
from plmctl.config.build import MISSING, plain
from plmctl.config.schema import Ablate
from plmctl.config.spec import key_of
from plmctl.config.walks import leaves
from plmctl.core.errors import ConfigError, UsageError, find_alike, nearest, raise_all
from plmctl.core.spelling import spell, spell_setting, spell_word
from plmctl.core.values import fit
from plmctl.jobs.configs import spell_task
from plmctl.study.arms import expand, find_unknown_recipes, make_arm
from plmctl.study.bases import BASES, describe_making, find_base, find_state
from plmctl.study.before import list_makers, refuse_without_init
from plmctl.study.study import (
    PRETRAIN,
    Arm,
    Metric,
    Published,
    Restarts,
    SharedFinetuning,
    SharedPretraining,
    StopRule,
    Study,
    StudyEval,
    StudyTask,
)

T = TypeVar("T")


def parse(settings: Ablate) -> Study:
    """Read a composed study.

    Raises:
        UsageError: all problems together.
    """
    file = Path(str(settings.recipe))
    makers = list_makers(file, settings) if file.is_file() else {}
    if file.is_file():
        refuse_without_init(file, settings, makers)
    parser = _Parser(settings)
    study = parser.study(file.stem)
    raise_all(parser.errors)
    return replace(study, makers=makers)


def _list(names: Iterable[str], comma: str = ", ") -> str:
    """Names as they stand in a list on the command line."""
    return comma.join(name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"' for name in names)


def _only(names: Iterable[str]) -> str:
    """The setting that chooses these arms, as one types it into a shell."""
    return spell_word(f"only=[{_list(names, comma=',')}]")


class _Parser:
    """Reads the parts of a study, and collects what is wrong in `errors`."""

    def __init__(self, settings: Ablate) -> None:
        self.given, self.config_dirs = settings, settings.provenance.config_dirs
        self.arms, self.evals = plain(settings.arms), plain(settings.eval)
        self.errors: list[UsageError] = []

    def study(self, name: str) -> Study:
        """The study, of whatever could be read."""
        given = self.given
        pretrain = self._group(SharedPretraining, "pretrain")
        finetune = self._group(SharedFinetuning, "finetune")
        number = finetune.restarts
        restarts = number if isinstance(number, Mapping) else {"order": number}
        arms = self._arms(pretrain.recipe)
        self.errors += find_unknown_recipes(arms, self.arms, pretrain.recipe, self.config_dirs)
        if self.given.checkpoint:
            arms = self._without_pretraining(arms, self.given.checkpoint)
        start = pretrain.new_model
        if init := self.given.init or self._find_base():
            start = (f"init={spell(init)}",)
        tasks = self._nodes(StudyTask, finetune.tasks, "finetune.tasks")
        evals = self._nodes(StudyEval, self.evals, "eval")
        metrics = self._nodes(Metric, plain(given.metrics), "metrics")
        budget = self._budget(any(arm.pretrain for arm in arms.values()))
        self._check_baseline_and_seeds(arms)
        self._check_teachers(arms)
        self._check_injections(arms)
        self._check_names(arms, finetune.tasks, evals, metrics)
        metrics = {key: self._published(key, metric, arms) for key, metric in metrics.items()}
        expected = dict.fromkeys(arm for metric in metrics.values() for arm in metric.expect)
        if self.given.only:
            arms = self._choose(arms)
            metrics = {key: metric.of_arms(arms) for key, metric in metrics.items()}
        waiting = [task for task, node in tasks.items() if node.path is None]
        left_out = [f"finetune.tasks.{task}.path=..." for task in waiting]
        unread = [key for key, node in evals.items() if node.task and node.path is None]
        left_out += [f"eval.{key}.path=..." for key in unread]
        waiting += [*unread, *(key for key, node in evals.items() if node.of in waiting)]
        kind = budget[0] if budget else "steps"
        asked = {key: metric for key, metric in metrics.items() if metric.of not in waiting}
        self._check_rounds(asked, expected)
        return Study(
            name=name,
            title=given.title or name,
            seeds=list(given.seeds),
            baseline=given.baseline,
            arms=arms,
            budget=budget,
            data=plain(given.data),
            pretrain=(*start, *pretrain.overrides),
            inject=tuple(given.inject),
            tasks={key: node for key, node in tasks.items() if key not in waiting},
            finetune=finetune.overrides,
            points=self._expand(finetune.grid, "finetune.grid: ") or [()],
            restarts=self._node(Restarts, restarts, "finetune.restarts") or Restarts(),
            evals={k: self._spell_files(node) for k, node in evals.items() if k not in waiting},
            metrics=asked,
            stop=self._node(StopRule, plain(given.stop), "stop") if given.stop else None,
            left_out=left_out,
            curves=given.curves or AXIS[kind],
            keep=given.keep,
            until=given.until,
            hours=given.budget.hours,
            waiting=_list_waiting(tasks, evals, metrics, waiting),
            corpus=given.published["corpus"] if given.scale == "published" else "",
        )

    def _find_base(self) -> str | None:
        """The base that all pretrainings begin with; wrong if it is not made yet."""
        kind, cache_dir = self.given.start, self.given.data.cache_dir
        if kind is None or self.given.checkpoint:
            return None
        folder = find_base(kind, cache_dir)
        if (state := find_state(folder)) != "finished":
            allowed = (
                f"a base that is made ({folder}: {state}), once for all studies, in about"
                f" {BASES[kind].minutes} minutes of one core; start=null begins with new weights"
            )
            fix = describe_making(kind)
            self._wrong("start", kind, allowed, fix)
        return str(folder)

    def _spell_files(self, node: StudyEval) -> StudyEval:
        """An evaluation whose task and files are among its overrides."""
        cache_dir = self.given.data.cache_dir
        own = spell_task(node.task, node.path, cache_dir) if node.task else ()
        return replace(node, overrides=(*own, *node.overrides))

    def _arms(self, recipe: str) -> dict[str, Arm]:
        """The arms of the grid, then the rows; `recipe`: the recipe of arms that name none."""
        points = self._expand(self.given.grid) if self.given.grid else []
        arms = {arm.name: arm for arm in (make_arm(point, recipe) for point in points)}
        rows = self.arms.values()
        # arms that put tokens into one model are compared with that model: none has a pretraining
        # of its own
        injects = any(isinstance(row, Mapping) and "inject" in row for row in rows)
        for name, value in self.arms.items():
            path = f"arms.{name}"
            if isinstance(value, str) or not isinstance(value, (Mapping, Sequence)):
                allowed = "is a list of overrides, or {recipe, overrides, pretrain, ...}"
                inner = value if isinstance(value, str) and "=" in value else "<key>=<value>"
                self._wrong(path, value, allowed, f"{path}=[{inner}]")
                continue
            node = value if isinstance(value, Mapping) else {"overrides": value}
            if injects and node.get("checkpoint", ...) is None:
                allowed = "must be given: a run, a checkpoint or a folder"
                self._wrong(f"{path}.checkpoint", ..., allowed, "init=<a run>")
            arm = self._node(Arm, node, path, name=name)
            if name in arms:
                self._wrong(path, ..., "the grid makes an arm of this name too")
            elif arm:
                pretrain = arm.pretrain and arm.checkpoint is None and not arm.from_teacher
                arms[name] = replace(arm, recipe=arm.recipe or recipe, pretrain=pretrain)
        if len(arms) < 2 and not self.errors:
            fix = "arms: {name: [overrides]}"
            self._wrong("arms", sorted(arms), "a study compares two arms or more", fix)
        return arms

    def _choose(self, arms: Mapping[str, Arm]) -> dict[str, Arm]:
        """The arms of `only`, the baseline, and the teachers of these."""
        wanted, baseline = list(self.given.only), self.given.baseline
        if unknown := [name for name in wanted if name not in arms]:
            others = [name for name in arms if name != baseline]
            known = f"there are {_list(others)}"
            for name in unknown:
                allowed = f"there is no arm of this name{nearest(name, others)}; {known}"
                close = find_alike(name, others) or others[:1]
                right = [*(arm for arm in wanted if arm in arms), *close]
                self._wrong("only", name, allowed, _only(right))
        elif set(wanted) == {baseline}:
            fix = _only([arm for arm in arms if arm != baseline][:1])
            self._wrong("only", wanted, "is the baseline alone, which runs with any arm", fix)
        chosen: set[str | None] = {*wanted, baseline}
        for name in reversed([*arms]):  # a teacher stands before its student
            if name in chosen:
                chosen.add(arms[name].teacher)
        return {name: arm for name, arm in arms.items() if name in chosen}

    def _without_pretraining(self, arms: Mapping[str, Arm], checkpoint: str) -> dict[str, Arm]:
        """The arms, which all fine-tune `checkpoint`; wrong if they differ in pretraining."""
        for name, arm in arms.items():
            if arm.overrides or self.given.init:
                allowed = "differs in pretraining; checkpoint=... leaves that out"
                self._wrong(f"arms.{name}", ..., allowed, spell_setting("init", checkpoint))
        return {
            name: replace(arm, checkpoint=checkpoint, pretrain=False) if arm.pretrain else arm
            for name, arm in arms.items()
        }

    def _expand(self, grid: Sequence[str], prefix: str = "") -> list[tuple[str, ...]]:
        try:
            return expand(grid, self.config_dirs)
        except UsageError as error:
            self.errors.append(UsageError(f"{prefix}{error}"))
            return []

    def _budget(self, needed: bool) -> tuple[str, float] | None:
        budget = {name: value for name, value in self.given.budget.items() if name != "hours"}
        chosen = {name: value for name, value in budget.items() if value is not None}
        if len(chosen) > 1 or (needed and not chosen):
            stated = f"there are {', '.join(chosen)}" if chosen else "none is set"
            fix = f"budget.{next(iter(chosen))}=null" if chosen else "budget.steps=300"
            allowed = f"exactly one of {', '.join(budget)}, the same for all arms; {stated}"
            self._wrong("budget", ..., allowed, fix)
        return next(iter(chosen.items()), None)

    def _check_baseline_and_seeds(self, arms: Collection[str]) -> None:
        baseline, seeds = self.given.baseline, self.given.seeds
        if baseline not in arms:
            more = [f"and {len(arms) - 6} more"] if len(arms) > 6 else []
            shown = ", ".join([*list(arms)[:6], *more]) or "none"
            known = f"is no arm of this study{nearest(str(baseline), arms)}; there are {shown}"
            self._wrong("baseline", ... if baseline == MISSING else baseline, known)
        if not seeds or len(set(seeds)) < len(seeds):
            self._wrong("seeds", list(seeds), "one seed or more, none twice", "seeds=[0,1,2]")
        if not self.given.metrics:
            fix = "metrics: {loss: {of: pretrain, key: loss}}"
            self._wrong("metrics", ..., "at least one", fix)

    def _check_rounds(self, metrics: Mapping[str, Metric], expected: Collection[str]) -> None:
        """Seeds can be spent in rounds until something is decided.

        Args:
            expected: the arms of the whole study of which something is expected.
        """
        if self.given.until is None or not metrics:
            return
        if not any(metric.expect for metric in metrics.values()):
            allowed = "needs something to decide: on which side of the baseline an arm is expected"
            fix = "metrics.<name>.expect={<arm>: higher}, or leave until out"
            if self.given.only and expected:
                allowed = "needs an arm of which something is expected, and only leaves them out"
                fix = f"{_only(expected)}, or leave until out"
            self._wrong("until", self.given.until, allowed, fix)
        seeds = self.given.seeds
        if len(seeds) <= FIRST:
            allowed = f"until=decided spends first {FIRST} of them, then one more a round; it needs"
            fix = "seeds=[0,1,2,3,4,5,6,7,8,9], which are the most that it may spend"
            self._wrong("seeds", list(seeds), f"{allowed} {FIRST + 1} or more", fix)

    def _check_teachers(self, arms: Mapping[str, Arm]) -> None:
        names = list(arms)
        for number, (name, arm) in enumerate(arms.items()):
            path, before = f"arms.{name}.teacher", names[:number]
            if arm.teacher is not None and arm.teacher not in names:
                self._known(path, [arm.teacher], before)
            elif arm.teacher is not None and arm.teacher not in before:
                own = arm.teacher == name
                itself = "is the student itself; its teacher is another arm"
                allowed = itself if own else "has to stand before its student"
                fix = f"one of {', '.join(before)}" if before else ""
                self._wrong(path, arm.teacher, allowed, fix)
            if arm.from_teacher and arm.teacher is None:
                allowed = "needs a teacher, an arm that stands before this one"
                self._wrong(f"arms.{name}.from_teacher", True, allowed)
            if arm.times != 1 and not arm.pretrain:
                allowed = "is of a pretraining, which this arm has not"
                self._wrong(f"arms.{name}.times", arm.times, allowed)

    def _check_injections(self, arms: Mapping[str, Arm]) -> None:
        """Whatever injects has a model to do it to, and does it to that one."""
        injecting = {name: arm.inject for name, arm in arms.items() if arm.inject is not None}
        own = {f"arms.{name}.inject": words for name, words in injecting.items()}
        for path, words in ({"inject": self.given.inject} | own).items():
            for word in (word for word in words if key_of(word) in ("checkpoint", "out")):
                self._wrong(path, word, "is decided by the study", "leave it out")
        for name in injecting:
            arm = arms[name]
            if arm.from_teacher or not (arm.pretrain or arm.checkpoint):
                allowed = "needs a model that gets the tokens before any task is learnt"
                fix = f"arms.{name}.checkpoint=<a run>"
                self._wrong(f"arms.{name}.inject", ..., allowed, fix)
        if self.given.inject and not injecting:
            allowed = "no arm injects, which an arm does by inject: [], a list of further settings"
            self._wrong("inject", list(self.given.inject), allowed, "inject=[]")

    def _check_names(
        self,
        arms: Collection[str],
        tasks: Collection[str],
        evals: Mapping[str, StudyEval],
        metrics: Mapping[str, Metric],
    ) -> None:
        """Whatever refers to something by name finds it, and no name stands for two things."""
        sources = [PRETRAIN, *tasks]
        taken = [f"finetune.tasks.{name}" for name in tasks if name == PRETRAIN]
        for path in (*taken, *(f"eval.{name}" for name in evals if name in sources)):
            self._wrong(path, ..., "this name is taken already")
        for name, node in evals.items():
            self._known(f"eval.{name}.of", [node.of], sources)
        others = [arm for arm in arms if arm != str(self.given.baseline)]
        for name, metric in metrics.items():
            self._known(f"metrics.{name}.of", [metric.of], [*sources, *self.evals])
            path, base = f"metrics.{name}.expect", str(self.given.baseline)
            if base in arms and base in metric.expect:
                allowed = "is the baseline, which has no direction"
                self._wrong(path, base, allowed, f"'~{path}.{base}'")
            expected = [arm for arm in metric.expect if arm not in arms or arm != base]
            self._known(path, expected, others, none="no arm except the baseline")

    def _published(self, name: str, metric: Metric, arms: Collection[str]) -> Metric:
        if metric.published is None:
            return metric
        path = f"metrics.{name}.published"
        published = self._node(Published, metric.published, path)
        self._known(f"{path}.values", published.values if published else (), arms)
        return replace(metric, published=published)

    def _group(self, kind: type[T], path: str) -> T:
        """A group of settings that need not be there, with those of them that could be read."""
        return kind(**self._values(kind, plain(self.given[path]) or {}, path))

    def _nodes(self, kind: type[T], nodes: Mapping[str, Any], path: str) -> dict[str, T]:
        read = {name: self._node(kind, node, f"{path}.{name}") for name, node in nodes.items()}
        return {name: node for name, node in read.items() if node is not None}

    def _node(self, kind: type[T], node: Any, path: str, **given: Any) -> T | None:
        """`node` as the dataclass `kind`, whose other fields are `given`; None where it does not
        fit.
        """
        before = len(self.errors)
        values = self._values(kind, node, path, **given)
        return kind(**values) if len(self.errors) == before else None

    def _values(self, kind: type[Any], node: Any, path: str, **given: Any) -> dict[str, Any]:
        """The fields of the dataclass `kind` that are `given`, or that `node` has and that fit."""
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = [field for field in dataclasses.fields(kind) if field.name not in given]
        names = [field.name for field in fields]
        known = ", ".join(names)
        if not isinstance(node, Mapping):
            fix = (f"{path}.path=null" if "path" in names else f"~{path}") if node is None else ""
            fix = fix or f"{path}.{names[0]}=..."
            self._wrong(path, node, f"is a group of settings: {known}", fix)
            return given
        for key, value in node.items():
            if key not in names:
                allowed = f"there is no such setting{nearest(str(key), names)}; there are {known}"
                fix = _spell_override(path, str(key), value, node) if "overrides" in names else ""
                self._wrong(f"{path}.{key}", value, allowed, fix)
                continue
            try:
                made = fit(value, hints[key])
            except ValueError as error:
                self._wrong(f"{path}.{key}", value, str(error))
            else:
                given[key] = tuple(made) if _is_tuple(hints[key], made) else made
        for field in fields:
            needed = field.default is field.default_factory is dataclasses.MISSING
            if needed and field.name not in node:
                self._wrong(f"{path}.{field.name}", ..., "must be given")
        return given

    def _known(
        self, path: str, names: Collection[str], known: Collection[str], none: str = "no such name"
    ) -> None:
        """Each of `names` is among `known`; `none`: what there is not, where nothing is known."""
        for name in names:
            if name not in known:
                there = f"no such name{nearest(name, known)}; there are {', '.join(known)}"
                self._wrong(path, name, f"there is {there if known else none}")

    def _wrong(self, path: str, value: object, allowed: str, fix: str = "") -> None:
        self.errors.append(ConfigError(path, value, allowed, fix=fix))


def _list_waiting(
    tasks: Collection[str],
    evals: Collection[str],
    metrics: Mapping[str, Metric],
    waiting: Collection[str],
) -> dict[str, list[str]]:
    """{the setting that gives a task or an evaluation its files: the metrics with a direction that
    wait for it}.
    """
    return {
        f"{group}.{key}.path=...": [
            name for name, metric in metrics.items() if metric.of == key and metric.expect
        ]
        for group, keys in (("finetune.tasks", tasks), ("eval", evals))
        for key in keys
        if key in waiting
    }


def _is_tuple(hint: Any, value: Any) -> bool:
    """Whether a list is to be a tuple by its annotation, which may allow null beside."""
    kinds = (hint, *typing.get_args(hint))
    return isinstance(value, list) and any(typing.get_origin(kind) is tuple for kind in kinds)


def _spell_override(path: str, key: str, value: Any, node: Mapping[str, Any]) -> str:
    """`finetune.overrides=[..., train.epochs=3]` for `finetune.train.epochs=3`, with the overrides
    that the group `node` has; empty for no setting inside of another.
    """
    if not isinstance(value, Mapping):
        return ""
    more = [
        f"{inner}={'<a value>' if one == '' else spell(one)}" for inner, one in leaves(value, key)
    ]
    given = node.get("overrides")
    new = {key_of(word) for word in more}
    own = [word for word in map(str, given or ()) if key_of(word) not in new]
    return spell_word(f"{path}.overrides=[{','.join([*own, *more])}]")
