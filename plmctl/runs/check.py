"""Mistakes in a spec, all at once, found with one model without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plmctl.artifacts.assemble import build_model, build_objective, row_lengths, without_weights
from plmctl.artifacts.loading import open_source, without_spare_rows
from plmctl.artifacts.model_facts import stated_pooling
from plmctl.config.build import build, class_of, plain
from plmctl.config.model_settings import model_settings
from plmctl.config.part_help import name_part
from plmctl.config.schema import Finetune, Pretrain
from plmctl.config.spec import thaw
from plmctl.config.stage_settings import check_updates
from plmctl.config.text_checks import check_data, check_token_batches, refuse_decided
from plmctl.config.texts import sources
from plmctl.core.errors import ConfigError, PlmctlError, collect, raise_all
from plmctl.data.located import locate
from plmctl.data.shards import is_tokens
from plmctl.distill.base import Teacher
from plmctl.heads.base import WORDS, about_of
from plmctl.heads.features import BEFORE_HEADS, list_records
from plmctl.models.base import Model
from plmctl.models.capabilities import find_prompt_reader
from plmctl.nn.tables import Lookup, TokenTable
from plmctl.objectives.base import Objective
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY, stand_in_for
from plmctl.runs.dividing import check_team, refuse_compiling
from plmctl.runs.fit import refuse_idle_patience
from plmctl.runs.pruning import prune
from plmctl.runs.regularising import build_regulariser
from plmctl.runs.side_tasks import choose_metric
from plmctl.runs.stabilising import stabilise
from plmctl.runs.teachers import (
    check_cache,
    check_tasks,
    check_teacher,
    outline_lesson,
    outline_teachers,
    outline_text_teachers,
    refuse_long_rows,
)
from plmctl.runs.unfreezing import check_unfreezing, group_layers
from plmctl.runs.vocabulary import find_size
from plmctl.tasks.capabilities import find_lesson, noise_of
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab
from plmctl.training.device.precision import choose
from plmctl.training.freezing import apply_freezing
from plmctl.training.frozen_outputs import FrozenPart
from plmctl.training.processes.parallel import check_parallel
from plmctl.training.processes.world import device_of, environment


class Outline(NamedTuple):
    """A run without weights: what it costs, and whether its parts fit, follow from it."""

    model: Model
    objective: Objective  # with its teachers


def check_settings(spec: Pretrain) -> None:
    """Raise what can be seen of the settings alone, before anything is opened or built."""
    errors: list[PlmctlError] = []
    with collect(errors):
        check_data(spec)
    if not spec.provenance.resume:
        with collect(errors):
            refuse_decided(spec, spec.provenance.keys, spec.plugins)
    with collect(errors):
        check_machine(spec)
    with collect(errors):
        check_updates(spec, processes=count_processes(spec), plugins=spec.plugins)
        check_token_batches(spec)
    with collect(errors):
        stated_pooling(model_settings(spec))
    if spec.init_into and not spec.init:
        allowed = "maps the weights of init=..., which is not set"
        errors.append(ConfigError("init_into", spec.init_into, allowed))
    if spec.kept_layers and not spec.init:
        allowed = "chooses layers of init=..., which is not set"
        errors.append(ConfigError("kept_layers", thaw(spec.kept_layers), allowed))
    raise_all(errors)


def count_processes(spec: Any) -> int:
    """The number of processes that share a run."""
    return max(environment()[2], spec.train.processes)


def check_machine(spec: Any) -> None:
    """Raise what does not fit together in the processes, the device and the number types of a
    run.
    """
    train, errors = spec.train, list[PlmctlError]()
    with collect(errors):
        check_parallel(
            train.parallel,
            count_processes(spec),
            shard_size=train.shard_size,
            offload=train.offload,
            team=train.tensor_parallel,
        )
    with collect(errors):
        refuse_compiling(train.compile, train.tensor_parallel)
    with collect(errors):
        precision = choose(train.precision, device_of(train.device)).name
        if train.stream == "bf16" and precision != "bf16":
            allowed = f"fp32: this run computes in {precision}"
            fix = "train.stream=fp32, or train.precision=bf16"
            raise ConfigError("train.stream", train.stream, allowed, fix=fix)
    raise_all(errors)


def check_pretraining(spec: Pretrain) -> Outline:
    """The run without weights; raise what does not fit together in the model, the data, the
    questions and the teachers.
    """
    given = spec.provenance
    known = known_vocabulary(spec)
    size = vocabulary_size(spec, known)
    vocab = stand_in_for(known) if known else TINY
    model = check_contract(spec, spec.plugins, given.config_dirs, vocab_size=size, vocab=vocab)
    check_teacher(spec)
    if spec.first_vectors and not any(isinstance(part, TokenTable) for part in model.modules()):
        allowed = "none: this model reads characters and has no table of tokens"
        raise ConfigError(
            "first_vectors", name_part(spec, "first_vectors"), allowed, fix="first_vectors=none"
        )
    outline = outline_pretraining(spec, model, vocab_size=size)
    with without_weights():
        prune(spec, model, outline.objective, resumed=True)
    check_team(*outline, spec.train.tensor_parallel)
    return outline


def check_first_vectors(spec: Finetune) -> None:
    """Raise ConfigError for vectors that a fine-tuning cannot start from."""
    if not spec.first_vectors:
        return
    given = name_part(spec, "first_vectors")
    if spec.checkpoint is not None:
        allowed = "none: the checkpoint brings the vectors of its tokens"
        raise ConfigError("first_vectors", given, allowed, fix="first_vectors=none")
    if getattr(class_of(spec.first_vectors, spec.plugins), "counts", True):
        allowed = "words or none: the others count tokens of a text to pretrain on"
        raise ConfigError("first_vectors", given, allowed, fix="first_vectors=words")


def check_finetuning(spec: Finetune, task: Task) -> Outline:
    """The run without weights; raise what does not fit together in the model, the task and the
    teachers.
    """
    model = outline_task(spec, task)
    check_first_vectors(spec)
    check_tasks(spec, task)
    check_teacher(spec)
    objective = outline_lesson(spec, model, task, _outline_teachers(spec, model, task))
    check_cache(spec, task)
    build_regulariser(spec, model, task)
    _check_tuning(spec, model, task)
    outline = Outline(model, objective)
    check_team(*outline, spec.train.tensor_parallel)
    return outline


def _outline_teachers(spec: Finetune, model: Model, task: Task) -> Sequence[Teacher]:
    """The teachers without weights; raise where they cannot read the rows of the task."""
    if find_lesson(task):
        return outline_text_teachers(spec, model)
    if teachers := outline_teachers(spec):
        refuse_long_rows(teachers, {"task.max_length": task.lengths.longest})
    return teachers


def _check_tuning(spec: Finetune, model: Model, task: Task) -> None:
    """ConfigError for additions of fine-tuning that do not fit the model, the task or each
    other.
    """
    _check_heads(model)
    if spec.train.unfreeze:
        check_unfreezing(spec)
        group_layers(model)
    if spec.train.best_metric is not None:
        choose_metric(spec, task)
    if spec.train.patience and not (spec.train.keep_best and task.splits.devs):
        why = "there is no dev split" if spec.train.keep_best else "train.keep_best=false"
        allowed = f"null: nothing says which checkpoint is best, {why}"
        raise ConfigError("train.patience", spec.train.patience, allowed, fix="train.patience=null")
    refuse_idle_patience(spec.train)
    with without_weights():
        stabilised = stabilise(spec, model, task, task, resumed=True, passes=lambda: iter(()))
        prune(spec, model, stabilised, resumed=True)


def _check_heads(model: Model) -> None:
    """ConfigError for a head that stands behind a missing one, and for one before the others that
    none of them reads.
    """
    before = [name for name in BEFORE_HEADS if name in model.heads]
    others = [head for name, head in model.heads.items() if name not in before]
    if before and all(about_of(head) in WORDS for head in others):
        what = "null: heads over the vocabulary, which this task asks, read the last states"
        raise ConfigError(f"heads.{before[0]}", ..., what, fix="leave features, head_encoder out")
    for name, record in list_records(model).items():
        if record not in model.backbone.records:
            what = "needs an encoder-decoder, such as T5 or BART, whose encoder it reads"
            raise ConfigError(f"heads.{name}", ..., what, fix=f"{name}=last")
    for name, head in model.heads.items():
        for other, choice in getattr(head, "after", {}).items():
            if other not in model.heads:
                what = f"it stands behind heads.{other}, which the model lacks"
                raise ConfigError(f"heads.{name}", ..., what, fix=choice)


def outline_pretraining(
    spec: Pretrain, model: Model | None = None, *, vocab_size: int | None = None
) -> Outline:
    """Model and objective of a pretraining without weights.

    Args:
        model: The model, if it is built already.
        vocab_size: Default: the tokens that the text of the run yields.
    """
    size = count_vocabulary(spec) if vocab_size is None else vocab_size
    with without_weights():
        model = model or build_model(
            model_settings(spec), vocab_size=size, vocab=TINY, plugins=spec.plugins
        )
        own = build_objective(
            spec.objective, model, TINY, vocab_size=size, plugins=spec.plugins, seed=spec.seed
        )
    if teachers := outline_teachers(spec):
        refuse_long_rows(teachers, row_lengths(thaw(spec)))
    return Outline(model, outline_lesson(spec, model, own, teachers))


def outline_task(spec: Finetune, task: Task) -> Model:
    """The model of a task without weights: whether its parts fit, and whether `train.frozen` names
    some of them.
    """
    if spec.checkpoint:
        source = without_spare_rows(open_source(spec.checkpoint, plugins=spec.plugins))
        size = source.vocab_size
        task.check_tokenizer(source.tokenizer)
    elif spec.tokenizer.get("path"):
        tokenizer = Tokenizer.load(spec.tokenizer.path)
        size = tokenizer.vocab.size
        task.check_tokenizer(tokenizer)
    else:
        size = int(spec.tokenizer.get("vocab_size") or 0)
    rows = (size or 1) + task.requires.new_tokens
    with without_weights():
        model = build_model(model_settings(spec), vocab_size=rows, plugins=spec.plugins)
    if task.requires.new_tokens and not any(
        isinstance(part, TokenTable | Lookup) for part in model.modules()
    ):
        allowed = "one that adds no tokens: this model reads characters and has no table of tokens"
        fix = "a checkpoint whose tokens are pieces of words"
        raise ConfigError("task", task.name, allowed, fix=fix)
    task.check_model(model, size)
    trainable = model.trainable(spec.train.trainable)
    apply_freezing(model, trainable=trainable, frozen=spec.train.frozen)
    _refuse_frozen_methods(spec, model)
    _refuse_long_prompts(spec, task, model)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        allowed, fix = "something must be left to train", "freeze less: train.frozen=[backbone]"
        raise ConfigError("train.frozen", thaw(spec.train.frozen), allowed, fix=fix)
    if spec.train.frozen_outputs != "batch":
        _check_frozen_outputs(spec, model, task)
    return model


def _check_frozen_outputs(spec: Finetune, model: Model, task: Task) -> None:
    """ConfigError where outputs of frozen layers cannot be stored: no layer is frozen, or rows
    change.
    """
    asked, setting = spec.train.frozen_outputs, "train.frozen_outputs"
    FrozenPart.of(model, asked)
    if noise_of(task, TINY) is not None:
        allowed = "batch: the noise of this task changes the rows in every epoch"
        raise ConfigError(setting, asked, allowed, fix=f"{setting}=batch")


def _refuse_frozen_methods(spec: Finetune, model: Model) -> None:
    """ConfigError where `train.frozen` takes in all that a method of `peft` trains."""
    for name, method in zip(spec.peft or {}, model.methods, strict=True):
        trained = list(map(model.backbone.get_parameter, method.trains(model.backbone)))
        if trained and not any(weight.requires_grad for weight in trained):
            allowed = f"less: all that peft={name} trains is frozen, and the model stays as it is"
            fix = "leave train.frozen out"
            raise ConfigError("train.frozen", thaw(spec.train.frozen), allowed, fix=fix)


def _refuse_long_prompts(spec: Finetune, task: Task, model: Model) -> None:
    """ConfigError where rows are longer than the positions that methods leave them."""
    reader = find_prompt_reader(model.backbone)
    taken = sum(method.places for method in model.methods)
    if taken and reader and reader.max_length and task.lengths.longest + taken > reader.max_length:
        left = reader.max_length - taken
        allowed = f"at most {left}: a prompt takes {taken} of the {reader.max_length} positions"
        raise ConfigError(
            "task.max_length", task.lengths.longest, allowed, fix=f"task.max_length={left}"
        )


def known_vocabulary(spec: Any) -> Vocab | None:
    """The vocabulary that a pretraining run would have, if there is one already."""
    known = [spec.tokenizer.get("path"), spec.init]
    known += [
        part.get("path") for node in sources(spec).values() for part in node["corpora"].values()
    ]
    for path in known:
        if path and (path is known[0] or is_tokens(path)):
            return Tokenizer.load(locate(path)).vocab
    return None


def vocabulary_size(spec: Any, known: Vocab | None = None) -> int:
    """The size of the vocabulary that a pretraining run would have at most: that of a `known`
    one, else `tokenizer.vocab_size`.
    """
    if (known := known or known_vocabulary(spec)) is not None:
        return known.size
    recipe: Any = build(spec.tokenizer, {}, spec.plugins, path="tokenizer")
    return int(recipe.vocab_size)


def count_vocabulary(spec: Any) -> int:
    """As `vocabulary_size`, and fewer tokens where a short text yields no more."""
    if (known := known_vocabulary(spec)) is not None:
        return known.size
    recipe: Any = build(spec.tokenizer, {}, spec.plugins, path="tokenizer")
    return find_size(recipe, plain(spec.data))
