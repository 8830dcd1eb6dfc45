"""The lesson of a run: the objective of the student with what it learns of its teacher
(`distill=`, `teacher=`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from omegaconf import DictConfig, OmegaConf

from plmctl.commands.common import Session, build_objective
from plmctl.commands.remembering import kept
from plmctl.core.errors import ConfigError
from plmctl.core.locate import locate, parameters
from plmctl.core.terminal import remark
from plmctl.data.shards import is_tokens
from plmctl.distill.base import LOGITS, Measures, Teacher
from plmctl.distill.distillation import Distillation
from plmctl.distill.teachers import Frozen, Several
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.objectives.base import Objective
from plmctl.run.assemble import build_model, known_to_objectives, row_lengths
from plmctl.run.build import build, plain
from plmctl.run.compose import Flags
from plmctl.run.contract import TINY
from plmctl.run.grafting import begun
from plmctl.run.loading import Source, load, open_source
from plmctl.tasks.base import Task
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

Student = Callable[[Vocab], tuple[Model, Objective]]  # without weights, and what it is asked


def taught(session: Session, model: Model, objective: Objective, *, rows: int = 0) -> Objective:
    """`objective` itself with distill=none, else what `distill` makes of it; `model` is the
    student, `rows` what it reads.
    """
    cfg, plugins = session.cfg, session.flags.plugins
    if not cfg.get("distill"):
        return objective
    loaded = [load(path, plugins=plugins) for path in _paths(cfg)]
    for path, each in zip(_paths(cfg), loaded, strict=True):
        backbone = each.model.backbone
        shape = (
            f"{count(each.model) / 1e6:.2f} M parameters,"
            f" {backbone.num_layers} layers of {backbone.width}"
        )
        session.say(f"teacher {path}: {shape}")
    teachers = [
        kept(session, Frozen(model=each.model, name=_name(each.source)), each, rows=rows)
        for each in loaded
    ]
    return lesson(cfg, model, objective, together(teachers, cfg), plugins)


def lesson(
    cfg: DictConfig,
    model: Model,
    objective: Objective,
    teacher: Teacher | None,
    plugins: Sequence[str],
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
        torch.manual_seed(cfg.seed)
        made: Objective = build(cfg.distill, given, plugins, path="distill")
    if isinstance(made, Distillation) and LOGITS in made.record:
        made.teacher.meet(made.question)
    return made


def checked(cfg: DictConfig, flags: Flags) -> DictConfig:
    """The config of a pretraining run, with the teacher's tokenizer where it says none; raises
    all that does not fit.
    """

    def student(vocab: Vocab) -> tuple[Model, Objective]:
        model = build_model(made, vocab_size=vocab.size, vocab=vocab, plugins=flags.plugins)
        given = {"vocab": vocab, **known_to_objectives(model, vocab_size=vocab.size)}
        return model, build_objective(made, given, flags.plugins)

    made = begun(cfg, flags.overrides, flags.plugins) if cfg.get("distill") else cfg
    return _checked(cfg, flags, student, row_lengths(plain(made)), own=cfg.init)


def checked_task(cfg: DictConfig, flags: Flags, model: Model, task: Task) -> DictConfig:
    """The same of a fine-tuning run; `model` is the student without weights, `task` knows its
    labels.
    """
    for path in _paths(cfg) if cfg.get("distill") else ():
        _same_labels(path, source := open_source(path, plugins=flags.plugins), task)
        if told := _another_task(path, source, task):
            remark(f"plmctl: {told}")
    return _checked(
        cfg,
        flags,
        lambda vocab: (model, task),
        {"task.max_length": task.longest},
        own=cfg.checkpoint,
    )


def _checked(
    cfg: DictConfig, flags: Flags, student: Student, lengths: dict[str, int], *, own: str | None
) -> DictConfig:
    """`own`: whose weights the student begins with."""
    check_teacher(cfg, flags.plugins)
    sources = [open_source(path, plugins=flags.plugins) for path in _paths(cfg)]
    if not cfg.get("distill"):
        return cfg
    cfg, vocab = _same_tokens(cfg, sources, own, flags.plugins) if sources else (cfg, TINY)
    with torch.device("meta"):
        teachers = [_outline(source, vocab, flags.plugins) for source in sources]
        for source, teacher in zip(sources, teachers, strict=True):
            _has_places(source, teacher.model, lengths)
        lesson(cfg, *student(vocab), together(teachers, cfg), flags.plugins)
    return cfg


def outlined(
    cfg: DictConfig, model: Model, objective: Objective, plugins: Sequence[str]
) -> Objective:
    """What `taught` will be, of models without weights; `objective` itself where nothing says
    who teaches.
    """
    paths = _paths(cfg)
    if not cfg.get("distill") or not (paths or "teacher" in cfg.distill):
        return objective
    with torch.device("meta"):
        sources = [open_source(path, plugins=plugins) for path in paths]
        teachers = [_outline(source, source.tokenizer.vocab, plugins) for source in sources]
        return lesson(cfg, model, objective, together(teachers, cfg), plugins)


def _outline(source: Source, vocab: Vocab, plugins: Sequence[str]) -> Frozen:
    model = build_model(source.config, vocab_size=source.vocab_size, vocab=vocab, plugins=plugins)
    return Frozen(model=model, name=_name(source))


def together(teachers: Sequence[Teacher], cfg: DictConfig) -> Teacher | None:
    """One teacher of all; None without any."""
    if len(teachers) < 2:
        if cfg.get("teacher_weights"):
            raise ConfigError(
                "teacher_weights",
                plain(cfg.teacher_weights),
                "null: only several teachers are weighted",
            )
        return teachers[0] if teachers else None
    return Several(teachers=teachers, weights=plain(cfg.teacher_weights))


def _paths(cfg: DictConfig) -> list[str]:
    found = plain(cfg.get("teacher"))
    return [] if found is None else [found] if isinstance(found, str) else list(found)


def _name(source: Source) -> str:
    return f"the teacher {source.folder}"


def check_teacher(cfg: DictConfig, plugins: Sequence[str]) -> None:
    """A teacher where the lesson asks for one, and none where nothing would be learnt of it."""
    paths = _paths(cfg)
    if not cfg.get("distill"):
        if paths:
            raise ConfigError(
                "teacher",
                plain(cfg.teacher),
                "nothing is learnt of it with distill=none",
                fix="distill=kd",
            )
        return
    own = "teacher" in cfg.distill  # its config says who teaches: the student itself
    wanted = None if own else parameters(locate(cfg.distill["_target_"], plugins)).get("teacher")
    if wanted is None and paths:
        raise ConfigError(
            "teacher",
            plain(cfg.teacher),
            "null: this method has no other teacher than the student itself",
        )
    if wanted is not None and wanted.default is wanted.empty and not paths:
        allowed = "a run, a checkpoint or a Hugging Face folder, which the student learns from"
        without = ", or distill=none" if cfg.get("objective", True) else ""
        raise ConfigError("teacher", None, allowed, fix=f"teacher=runs/<run>{without}")


def _tokenizer(cfg: DictConfig, own: str | None, plugins: Sequence[str]) -> Tokenizer | None:
    """That of the student, as far as something says so."""
    data = plain((cfg.get("data") or {}).get("path"))
    if own is not None:
        return open_source(own, plugins=plugins).tokenizer
    if cfg.tokenizer and cfg.tokenizer.get("path"):
        return Tokenizer.load(cfg.tokenizer.path)
    return Tokenizer.load(data) if isinstance(data, str) and is_tokens(data) else None


def _same_tokens(
    cfg: DictConfig, sources: Sequence[Source], own: str | None, plugins: Sequence[str]
) -> tuple[DictConfig, Vocab]:
    """The config with a tokenizer, and its vocabulary; student and teachers have to have equal
    ones.
    """
    ours, first = _tokenizer(cfg, own, plugins), sources[0]
    whose = (
        f"the student's ({own or cfg.tokenizer.get('path') or cfg.data.path})"
        if ours
        else f"that of {first.folder}"
    )
    known = ours or first.tokenizer
    for source in sources:
        found = source.tokenizer
        if not same_tokens(known, found):
            allowed = (
                "a model with the tokenizer of the student, since both are shown the same ids: its"
                f" own, {found.kind} of {found.vocab.size:,} tokens, is another than {whose},"
                f" {known.kind} of {known.vocab.size:,}"
            )
            begin = "checkpoint" if "checkpoint" in cfg else "init"
            told = cfg.tokenizer and cfg.tokenizer.get("path")
            fix = (
                f"{begin}=<a model with that tokenizer>, or {begin}=null "
                if own
                else ""
                if told
                else "data.path=<the text> "
            )
            raise ConfigError(
                "teacher", str(source.folder), allowed, fix=f"{fix}tokenizer.path={source.folder}"
            )
    if ours is None:
        cfg = OmegaConf.create(plain(cfg))
        cfg.tokenizer.path = str(first.folder)
    return cfg, known.vocab


def same_tokens(a: Tokenizer, b: Tokenizer) -> bool:
    """Whether every id means the same."""
    if a.fingerprint == b.fingerprint:
        return True
    roles = [
        (
            t.vocab.size,
            t.vocab.pad,
            t.vocab.cls,
            t.vocab.sep,
            t.vocab.mask,
            t.vocab.bos,
            t.vocab.eos,
        )
        for t in (a, b)
    ]
    return roles[0] == roles[1] and a.pieces(range(a.vocab.size)) == b.pieces(range(b.vocab.size))


def _same_labels(path: str, source: Source, task: Task) -> None:
    """The answers of both heads mean the same, in the same order."""
    theirs = (source.config.get("task") or {}).get("label_names") or source.config.get("labels")
    if task.label_names is None or theirs is None or list(map(str, theirs)) == task.label_names:
        return
    own, other = ", ".join(task.label_names), ", ".join(map(str, theirs))
    allowed = f"a model of the student's labels in their order: {own}; it has {other}"
    raise ConfigError(
        "teacher",
        path,
        allowed,
        fix=f"task.label_names=[{other.replace(', ', ',')}] where they mean the same",
    )


def _another_task(path: str, source: Source, task: Task) -> str:
    """A line that names both tasks, where they differ: fine for another set of reviews, not for
    paraphrases.
    """
    theirs = (source.config.get("task") or {}).get("name")
    if theirs in (None, task.name):
        return ""
    labels = (
        f"; where answers are compared, its labels stand for those of {task.name}:"
        f" {', '.join(task.label_names or ())}"
    )
    return f"teacher={path} was fine-tuned on {theirs}, the student learns {task.name}" + (
        labels if task.label_names else ""
    )


def _has_places(source: Source, model: Model, lengths: dict[str, int]) -> None:
    """The teacher reads every row that the student does."""
    places = model.backbone.max_length
    for path, length in lengths.items():
        if places is not None and length > places:
            raise ConfigError(
                path,
                length,
                f"at most {places}, the longest row that {_name(source)} reads",
                fix=f"{path}={places}",
            )
