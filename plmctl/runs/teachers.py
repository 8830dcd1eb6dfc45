"""The teachers of a run: who they are, whether the student can learn of them, and what it then
learns (`distill=`, `teacher=`, `teacher_cache=`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.assemble import (
    build_model,
    find_long_rows,
    known_to_objectives,
    without_weights,
)
from plmctl.artifacts.identity import identity
from plmctl.artifacts.label_rows import count_rows, find_order, labels_of, with_order
from plmctl.artifacts.loading import Loaded, Source, load_source, open_source, without_spare_rows
from plmctl.artifacts.places import Places
from plmctl.config.build import build, class_of
from plmctl.config.spec import thaw
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.locate import parameters
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import remark
from plmctl.data.located import locate
from plmctl.data.shards import is_tokens
from plmctl.distill.base import LOGITS, Measures, Teacher
from plmctl.distill.cache import Cached
from plmctl.distill.distillation import Distillation
from plmctl.distill.teachers import Frozen, Several, TextVectors
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.objectives.base import Objective
from plmctl.runs.phases import check_phases
from plmctl.runs.text_teachers import Lessons, outline_vectors
from plmctl.tasks.capabilities import find_lesson
from plmctl.tasks.readers.label_text import SETTING, spell_names
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer


def teachers_of(spec: Any) -> list[str]:
    """The names in `teacher`: none, one, or several."""
    named = spec.get("teacher")
    return [named] if isinstance(named, str) else list(named or ())


def add_teacher(
    spec: Any,
    model: Model,
    objective: Objective,
    *,
    say: Callable[[str], None],
    rows: int = 0,
    lessons: Lessons | None = None,
    keep: Callable[[str, Path], None] = lambda setting, folder: None,
) -> Objective:
    """`objective` itself with distill=none, else what `distill` makes of it.

    Args:
        model: The student.
        rows: The number of rows that the student reads, for `teacher_cache`.
        lessons: The texts that teachers embed; None: they read the rows of the student.
    """
    if not spec.get("distill"):
        return objective
    teachers: list[Teacher] = []
    for path in teachers_of(spec):
        loaded = load_teacher(spec, path)
        folder, backbone = loaded.source.folder, loaded.model.backbone
        keep("teacher", folder)
        shape = f"{backbone.num_layers} layers of {backbone.width}"
        say(f"teacher {folder}: {count(loaded.model) / 1e6:.2f} M parameters, {shape}")
        if lessons is not None:
            teachers.append(lessons.embed(loaded, _name(loaded.source), say))
            continue
        teacher: Teacher = Frozen(model=loaded.model, name=_name(loaded.source))
        if cache := spec.get("teacher_cache"):
            place, known = Path(cache).expanduser(), identity(loaded.source)
            teacher = Cached(teacher=teacher, folder=place, identity=known, rows=rows, say=say)
        teachers.append(teacher)
    return distillation(spec, model, objective, _together(teachers, spec))


def load_teacher(spec: Any, path: str) -> Loaded:
    """A teacher whose heads answer with their labels in the order of the student's."""
    source = open_source(path, plugins=spec.plugins)
    for head, names in labels_of(spec, spec.plugins).items():
        source = with_order(source, head, names or ())
    return load_source(source)


def outline_teachers(spec: Any) -> list[Frozen]:
    """The teachers of a run, without weights."""
    return [Frozen(model=each.model, name=_name(each.source)) for each in _outline(spec)]


def outline_text_teachers(spec: Any, model: Model) -> list[TextVectors]:
    """The teachers of a run that embed texts, without weights."""
    return [outline_vectors(each, _name(each.source), model) for each in _outline(spec)]


def outline_lesson(
    spec: Any, model: Model, objective: Objective, teachers: Sequence[Teacher]
) -> Objective:
    """The result of `add_teacher`, from models without weights; raises misfits between student and
    teachers. `objective` itself where a teacher is needed and nothing says who it is.
    """
    if not spec.get("distill") or (_needs_teacher(spec) and not teachers):
        return objective
    with without_weights():
        return distillation(spec, model, objective, _together(teachers, spec))


def refuse_long_rows(teachers: Sequence[Frozen], lengths: Mapping[str, int]) -> None:
    """ConfigErrors for rows of the student, {config path: tokens}, that a teacher cannot read."""
    for teacher in teachers:
        backbone, name = teacher.model.backbone, teacher.measures.name
        places = Places(backbone.max_length, backbone.max_target)
        raise_all(find_long_rows(lengths, places, f"the longest row that {name} reads"))


def distillation(
    spec: Any, model: Model, objective: Objective, teacher: Teacher | None
) -> Objective:
    """The part `distill`, which is given the student, its objective and, where it has one, its
    teacher.
    """
    given = {
        **known_to_objectives(model, vocab_size=0),
        "objective": objective,
        "student": Measures.of(model, "the student"),
    }
    given |= {} if teacher is None else {"teacher": teacher}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        lesson: Objective = build(spec.distill, given, spec.plugins, path="distill")
    check_phases(spec.train, lesson)
    if isinstance(lesson, Distillation) and LOGITS in lesson.record:
        lesson.teacher.meet(lesson.question)
    return lesson


def check_teacher(spec: Any) -> None:
    """Raise where the method needs a teacher that is missing, or where nothing would be learnt from
    one.
    """
    paths = teachers_of(spec)
    if paths and _teacher_parameter(spec) is None:
        allowed, fix = "nothing is learnt of it with distill=none", "distill=kd"
        if spec.get("distill"):
            allowed, fix = "null: this method has no other teacher than the student itself", ""
        raise ConfigError("teacher", thaw(spec.teacher), allowed, fix=fix)
    if not paths and _needs_teacher(spec):
        allowed = "a run, a checkpoint or a Hugging Face folder, which the student learns from"
        without = ", or distill=none" if spec.get("objective", True) else ""
        raise ConfigError("teacher", None, allowed, fix=f"teacher=runs/<run>{without}")


def _needs_teacher(spec: Any) -> bool:
    parameter = _teacher_parameter(spec)
    return parameter is not None and parameter.default is parameter.empty


def _teacher_parameter(spec: Any) -> inspect.Parameter | None:
    """The parameter of `distill` that `teacher` fills; None where nothing is learnt of a teacher,
    or the config of `distill` says itself who teaches: the student.
    """
    if not spec.get("distill") or "teacher" in spec.distill:
        return None
    return parameters(class_of(spec.distill, spec.plugins)).get("teacher")


def check_cache(spec: Any, task: Task) -> None:
    """ConfigError where nothing could be kept: no teacher, a method that asks it nothing, or a
    task that writes tokens.
    """
    if not spec.teacher_cache:
        return
    why = ""
    if not spec.teacher:
        why = "there is no teacher whose answers would be kept"
    elif find_lesson(task):
        why = "the teacher embeds each text once, before the first update"
    elif not issubclass(class_of(spec.distill, spec.plugins), Distillation):
        why = "this method takes the teacher apart, and no answers of it"
    elif not task.facts.has_classes:
        why = "the answers of a task that writes are tokens x vocabulary"
    if why:
        raise ConfigError("teacher_cache", spec.teacher_cache, f"null: {why}")


def check_tasks(spec: Any, task: Task) -> None:
    """Raise where a teacher's labels are others than the task's; say where its task is another."""
    for path in teachers_of(spec) if spec.get("distill") else ():
        source = open_source(path, plugins=spec.plugins)
        theirs = source.config.get("task") or {}
        _check_labels(spec, path, source, task)
        if theirs.get("name") not in (None, task.name):  # fine for reviews, not for paraphrases
            labels = (
                f"; where answers are compared, its labels stand for those of {task.name}:"
                f" {', '.join(task.label_names)}"
                if task.label_names
                else ""
            )
            remark(
                f"plmctl: teacher={path} was fine-tuned on {theirs['name']}, the student learns"
                f" {task.name}{labels}"
            )


def _check_labels(spec: Any, path: str, source: Source, task: Task) -> None:
    """ConfigError where the answers of a teacher's head are of other labels, or of labels without
    names that nobody has stated.
    """
    heads = labels_of(source.config, spec.plugins)
    rows = count_rows(source.config, task.facts.head)
    if task.label_names is None or task.facts.head not in heads:
        return
    theirs = heads[task.facts.head]
    ours = {name: code for code, name in task.label_codes.items()} or task.label_names
    if find_order(theirs, ours, rows=rows) is not None:
        return
    allowed = f"a model of the student's labels: {', '.join(task.label_names)}"
    if theirs is not None:
        allowed, fix = f"{allowed}; it has {', '.join(theirs)}", "teacher=<a run of this task>"
    elif rows == len(task.label_names):
        if select(spec.provenance.written, SETTING) is not None:
            return
        allowed = f"{allowed}; its rows have no names (LABEL_0, ...), which are stated in their"
        allowed, fix = f"{allowed} order", spell_names(task.label_names)
    else:
        allowed, fix = f"{allowed}; it has {rows} without names", "teacher=<a run of this task>"
    raise ConfigError("teacher", path, allowed, fix=fix)


def with_tokenizer(spec: Any, own: str | None) -> Any:
    """The spec with the teacher's tokenizer where nothing says the student's; student and
    teachers have to have equal ones.

    Args:
        own: The model that the student begins with.
    """
    paths = teachers_of(spec)
    if not spec.get("distill") or not paths:
        return spec
    sources = [open_source(path, plugins=spec.plugins) for path in paths]
    ours, first = _tokenizer(spec, own), sources[0]
    stated = spec.tokenizer and spec.tokenizer.get("path")
    known, whose = first.tokenizer, f"the first teacher's ({first.folder})"
    if ours:
        known, whose = ours, f"the student's ({own or stated or spec.data.path})"
    for source in sources:
        other = source.tokenizer
        if same_tokens(known, other):
            continue
        allowed = (
            "a model with the tokenizer of the student, since both are shown the same ids: its"
            f" own, {other.kind} of {other.vocab.size:,} tokens, is another than {whose},"
            f" {known.kind} of {known.vocab.size:,}"
        )
        fix = "" if stated else "data.path=<the text> "
        if own:
            begin = "checkpoint" if "checkpoint" in spec else "init"
            fix = f"{begin}=<a model with that tokenizer>, or {begin}=null "
        fix += spell_setting("tokenizer.path", source.folder)
        raise ConfigError("teacher", str(source.folder), allowed, fix=fix)
    return spec if ours else spec.replace({"tokenizer.path": str(first.folder)})


def same_tokens(a: Tokenizer, b: Tokenizer) -> bool:
    """Whether every id means the same."""
    if a.fingerprint == b.fingerprint:
        return True
    roles = [(v.size, v.pad, v.cls, v.sep, v.mask, v.bos, v.eos) for v in (a.vocab, b.vocab)]
    return roles[0] == roles[1] and a.pieces(range(a.vocab.size)) == b.pieces(range(b.vocab.size))


def _tokenizer(spec: Any, own: str | None) -> Tokenizer | None:
    """The tokenizer of the student, as far as a setting names it."""
    data = (spec.get("data") or {}).get("path")
    if own is not None:
        return open_source(own, plugins=spec.plugins).tokenizer
    if spec.tokenizer and spec.tokenizer.get("path"):
        return Tokenizer.load(spec.tokenizer.path)
    return Tokenizer.load(locate(data)) if isinstance(data, str) and is_tokens(data) else None


def _together(teachers: Sequence[Teacher], spec: Any) -> Teacher | None:
    """One teacher of all; None without any."""
    weights = thaw(spec.get("teacher_weights"))
    if len(teachers) > 1:
        return Several(teachers=teachers, weights=weights)
    if weights:
        allowed = "null: only several teachers are weighted"
        raise ConfigError("teacher_weights", weights, allowed)
    return teachers[0] if teachers else None


def _outline(spec: Any) -> list[Loaded]:
    """The models that teach, without weights."""
    paths = teachers_of(spec) if spec.get("distill") else ()
    sources = [without_spare_rows(open_source(path, plugins=spec.plugins)) for path in paths]
    with without_weights():
        return [Loaded(_build(source, spec.plugins), source) for source in sources]


def _build(source: Source, plugins: Sequence[str]) -> Model:
    vocab, size = source.tokenizer.vocab, source.vocab_size
    return build_model(source.config, vocab_size=size, vocab=vocab, plugins=plugins)


def _name(source: Source) -> str:
    return f"the teacher {source.folder}"
