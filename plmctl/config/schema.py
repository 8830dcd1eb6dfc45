"""The plumbing of every command: its keys, types, defaults and meaning. Parts (`Any` here) are
typed by their signatures.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NotRequired, TypedDict

from plmctl.config.build import MISSING, SEVERAL
from plmctl.config.groups import (
    Corpora,
    Data,
    Eval,
    Run,
    Train,
    TrainOnTask,
    TrainOnText,
    list_unread,
)
from plmctl.config.spec import Part, Record, RunSpec
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Amount, Batch, Count, DropoutRate, Number, Processes, Rate, Whole

MANY = (*SEVERAL, "eval.noise")  # where several parts stand side by side
# slots that are one part
ONE = (
    "format",
    "model",
    "pattern",
    "position",
    "kernel",
    "first_vectors",
    "optim",
    "schedule",
    "task",
    "mixing",
    "search",
    "attack_candidates",
    "attack_search",
    "distill",
    "regulariser",
    "graph_score",
    "graph_loss",
    "graph_penalty",
    "method",
    "space",
    "strategy",
)
OF_THE_MODEL = ("size", "pattern", "position", "model", "tokenizer")  # a checkpoint brings these


@dataclass(frozen=True)
class Pretrain(RunSpec):
    recipe: str | None = None
    data: Corpora = Corpora()
    tokenizer: Any = MISSING
    format: Any = MISSING
    noise: Any = None
    size: Any = None
    pattern: Any = MISSING
    position: Any = MISSING
    kernel: Any = None  # attention kernel; null: auto
    # first values of the token vectors; null: drawn
    first_vectors: Any = None
    model: Any = MISSING
    objective: Any = None
    distill: Any = None
    heads: Any = None
    # learns from changed vectors of words, too; null: from the text alone
    regulariser: Any = None
    # weights, heads, neurons or columns that become 0: [magnitude]; [] or null: nothing
    pruning: Any = None
    optim: Any = MISSING
    schedule: Any = MISSING
    # settings that train.minutes decides by the speed of this machine: [{up_to: 3e13, size: tiny},
    # ...], FLOPs and the settings for them; []: nothing
    budgets: tuple[Mapping[str, Any], ...] = ()
    train: TrainOnText = TrainOnText()
    eval: Eval = Eval()
    run: Run = Run()
    seed: Whole = 0  # first weights, order of the data, noise, dropout
    # start from these weights: a run, a checkpoint or a Hugging Face folder
    init: str | None = None
    # the part of the model that they are, of an encoder-decoder: encoder; null: all of it
    init_into: str | None = None
    # parts of the model that init does not decide: [front]
    own: tuple[str, ...] = ()
    # layers of init to keep, as in plmctl finetune
    kept_layers: str | tuple[int, ...] | Mapping[str, Any] | None = None
    # a run, a checkpoint or a Hugging Face folder for distill, or several of them
    teacher: str | tuple[str, ...] | None = None
    # weights of several teachers; null: equal weights
    teacher_weights: tuple[float, ...] | None = None
    # the family as which convert writes the model, {family: camembert}; null: that of init, else
    # the nearest
    origin: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TextCleaner(RunSpec):
    """Settings of a command that reads text and writes less of it."""

    # text: files, folders, patterns or hf:<data set>; .jsonl, .txt, .csv, .parquet, packed or not
    input: str | tuple[str, ...] = MISSING
    field: str = "text"  # field of .jsonl, .csv, .parquet and hf: that has the text
    # the meaning of one line of a text file; auto joins the lines of a .txt that fill a width
    lines: Literal["auto", "sentence", "paragraph", "wrapped"] = "auto"
    out: str = MISSING  # a new folder, for input= and data.path=
    # rows with text, id and metadata, as datatrove has them, or plain text
    write: Literal["jsonl", "text"] = "jsonl"
    compression: Literal["gz", "zst", "none"] = "gz"  # how the files of out are compressed
    # MB of a part, which becomes one file, and which a kill may cost
    part_mb: Amount = 32.0
    processes: Processes | None = None  # null: one for each core


@dataclass(frozen=True)
class TaskUser(RunSpec):
    """Settings of a command that takes a task and trains nothing."""

    idle: ClassVar[tuple[str, ...]] = ("heads", "optim", "schedule", "train")

    # the files of tasks state these four
    heads: Any = None
    optim: Any = None
    schedule: Any = None
    train: Any = None


class SideSettings(TypedDict):
    """A side task of a run: as the user states it, and as it was decided."""

    task: Any  # sst2; once it is decided, its settings
    path: NotRequired[Any]  # as task.path
    overrides: NotRequired[tuple[str, ...]]  # other settings of it: [task.max_length=64]
    weight: NotRequired[Number]  # weight of its loss
    heads: NotRequired[Mapping[str, str]]  # decided: {as the task calls a head: as the model does}


@dataclass(frozen=True)
class Finetune(RunSpec):
    recipe: str | None = None
    task: Any = MISSING
    # other tasks that are trained at the same time: {sst2: {task: sst2, path: glue/SST-2}}
    beside: Mapping[str, SideSettings] = Part({})
    mixing: Any = None  # how often each of them is trained
    # a run, a checkpoint or a Hugging Face folder; null: from scratch
    checkpoint: str | None = MISSING
    # the part of the model that checkpoint becomes, of an encoder-decoder: encoder; null: all of it
    checkpoint_into: str | None = None
    distill: Any = None
    # from scratch: the training text of the tokenizer
    data: Data = Data()
    tokenizer: Any = MISSING
    size: Any = None
    pattern: Any = MISSING
    position: Any = MISSING
    kernel: Any = None  # attention kernel; null: auto
    # from scratch: the start of the vectors of tokens; null: drawn
    first_vectors: Any = None
    model: Any = MISSING
    heads: Any = MISSING
    # weights to train in or next to a frozen model: [lora]; [] or null: the model itself
    peft: Any = None
    # learns from changed vectors of words, too; null: from the text alone
    regulariser: Any = None
    # methods that keep training on few examples from failing: [mixout], [ema]; [] or null: nothing
    stabiliser: Any = None
    # weights, heads, neurons or columns that become 0: [magnitude]; [] or null: nothing
    pruning: Any = None
    # vector of a row for its class: first, last, mean, compare, concat; null: the model's own
    # choice
    row_pooling: str | None = None
    optim: Any = MISSING
    schedule: Any = MISSING
    train: TrainOnTask = TrainOnTask()
    run: Run = Run()
    seed: Whole = 0  # order of the data, dropout
    head_seed: Whole | None = None  # first weights of new heads; null: seed
    # layers of the checkpoint to keep: spread, first2, last (half), [0,2,5] (from 0)
    kept_layers: str | tuple[int, ...] | Mapping[str, Any] | None = None
    # a run, a checkpoint or a Hugging Face folder for distill, or several of them
    teacher: str | tuple[str, ...] | None = None
    # weights of several teachers; null: equal weights
    teacher_weights: tuple[float, ...] | None = None
    # a folder for the answers of the teacher, which later runs read instead of computing them
    teacher_cache: str | None = None
    # the family as which convert writes the model, {family: camembert}; null: that of checkpoint,
    # else the nearest
    origin: Mapping[str, Any] | None = None
    # pooling, prompts and limits of a model of sentences; null: those of checkpoint
    sentence: Mapping[str, Any] | None = None

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """As above: a task has its own files, and `data` is the text of a new tokenizer."""
        unread = list_unread(
            *("path", "field", "lines", "cache_dir"),
            why="data is the training text of a tokenizer; task.path has the files of a task",
        )
        if not self.tokenizes:
            text = list_unread("cache_dir", why="the run learns no tokenizer")
            unread = text | unread
        path, valid = (self.select(key) for key in ("task.path", "data.valid_path"))
        if path and valid:
            files = [*_list(path), *_list(valid)]
            why, _ = unread["data.valid_path"]
            unread["data.valid_path"] = (why, spell_setting("task.path", files))
        return super().find_unread(typed) | unread

    @property
    def tokenizes(self) -> bool:
        """Whether the run learns a tokenizer of its own."""
        return not (self.checkpoint or self.select("tokenizer.path"))

    def used(self) -> dict[str, Any]:
        """The settings that have an effect: a checkpoint brings its tokenizer, and one task is not
        mixed.
        """
        without = {"tokenizer"} if self.checkpoint else set()
        without |= set() if self.beside else {"mixing"}
        return {key: value for key, value in super().used().items() if key not in without}


@dataclass(frozen=True)
class Limit(Record):
    steps: Count | None = None  # updates
    tokens: Count | None = None  # real tokens
    words: Count | None = None  # words of the text; repeats count
    flops: Amount | None = None  # FLOPs of training; becomes tokens by the cost of each arm
    # minutes of wall-clock time; the one budget that two machines spend differently
    minutes: Amount | None = None


@dataclass(frozen=True)
class StudyBudget(Limit):
    # hours of wall-clock time for the whole study, over all starts, in addition to another budget:
    # a seed that would not fit does not begin
    hours: Amount | None = None


@dataclass(frozen=True)
class Ablate(RunSpec):
    recipe: str | None = None  # the study's file
    title: str | None = None  # the heading of its table; null: its name
    # published: as the block `published` of its file changes it; also the word published
    scale: Literal["small", "published"] = "small"
    # changes of the published experiment, or why it has none
    published: Any = None
    # folder of the study, its jobs and its table; null: studies/<name>, with -published behind it
    # for the published form
    out: str | None = None
    processes: Processes = 1  # jobs at the same time, on this machine
    keep: bool = False  # checkpoints of fine-tuned models
    # x axis of learning curves; null: the budget
    curves: Literal["steps", "tokens", "words", "flops", "time"] | None = None
    seeds: tuple[Whole, ...] = (0, 1, 2)  # seeds of pretraining; with `until`, the largest set
    # decided: the first three seeds of every arm, then one more a round, for the arms of which an
    # expectation is still undecided; null: all seeds of all arms
    until: Literal["decided"] | None = None
    data: Data = Data()  # settings of every arm
    # budget of each pretraining, the same for all arms; hours: for the whole study
    budget: StudyBudget = StudyBudget()
    baseline: str = MISSING  # the arm that the others are compared with
    # {name: [overrides] or {recipe, overrides, ...}}
    arms: Mapping[str, Any] = Part({})
    only: tuple[str, ...] = ()  # arms to run in addition to the baseline; none: all
    grid: tuple[str, ...] = ()  # arms as a sweep: [size=tiny,mini]
    pretrain: Any = None  # {recipe, overrides, new_model} of every arm
    # first weights of every pretraining, instead of pretrain.new_model: a run, a checkpoint or a
    # Hugging Face folder
    init: str | None = None
    # the same from a base of plmctl bases make, which all studies share; null: from new weights
    start: Literal["encoder", "decoder", "seq2seq"] | None = None
    # the model that every arm fine-tunes, instead of a pretraining of its own
    checkpoint: str | None = None
    # settings of plmctl inject, of every arm that has `inject`, a list of its own settings
    inject: tuple[str, ...] = ()
    finetune: Any = None  # {tasks: {name: {task, path, overrides}}, overrides, grid, restarts}
    eval: Mapping[str, Any] = Part({})  # {name: {of, task, path, overrides}}
    # {name: {of, key, as, expect, published}}
    metrics: Mapping[str, Any] = Part({})
    stop: Any = None  # {metric, after, bound}: ends hopeless pretraining


@dataclass(frozen=True)
class GraphData(Record):
    # a folder with train, valid and test (.tsv, .txt, .gz: head, relation, tail), one of OpenKE, a
    # knowledge directory, a file of triples; null: the classes of Python
    path: str | None = None
    valid_share: Rate = 0.05  # share of the triples, where no file is a split of its own
    # valid and test triples with an entity or a relation that is not trained: keep ranks them, as
    # published evaluations do; drop leaves them out
    unseen: Literal["keep", "drop"] = "keep"


@dataclass(frozen=True)
class Ranking(Record):
    rows: Count | None = None  # validation triples at most, the first of them; null: all
    batch_size: Batch = 128  # questions that are ranked at the same time


@dataclass(frozen=True)
class Graph(RunSpec):
    recipe: str | None = None
    data: GraphData = GraphData()
    graph_score: Any = MISSING
    graph_loss: Any = MISSING
    graph_penalty: Any = None  # on the size of vectors; null: none
    # numbers of an entity; of complex ones the real and the imaginary parts together
    width: Count = 200
    # train a vector of its own for the inverse of each relation
    reciprocal: bool = True
    # sides of a triple to predict
    sides: tuple[Literal["head", "tail"], ...] = ("head", "tail")
    # weight of the question for the relation, compared with the question for an entity; 0: no such
    # question
    relation_weight: Number = 0.0
    # dropout of the entity and the relation of a question
    dropout: DropoutRate = 0.0
    optim: Any = MISSING
    schedule: Any = MISSING
    train: Train = Train()
    eval: Ranking = Ranking()
    run: Run = Run()
    seed: Whole = 0  # first vectors, order of the triples, negatives, dropout


@dataclass(frozen=True)
class Converted(RunSpec):
    """A model whose weights came from elsewhere: what it is made of, without a run."""

    size: Any = None
    pattern: Any = None
    position: Any = None
    model: Any = None
    heads: Any = None
    peft: Any = None
    tokenizer: Any = None
    format: Any = None
    task: Any = None
    origin: Any = None  # the family and the padding of the published model
    labels: Any = None  # names of the classes of its head
    sentence: Any = None  # pooling, prompts and limits of a published model of sentences


# the settings of a saved model that no run has made
SAVED: dict[str, type[RunSpec]] = {"convert": Converted}


def _list(paths: str | tuple[str, ...]) -> list[str]:
    return [paths] if isinstance(paths, str) else [*paths]


@functools.cache
def hints(kind: type[Record]) -> dict[str, Any]:
    """{setting: its annotation, with its rules} of a group of settings, in order."""
    annotations = typing.get_type_hints(kind, include_extras=True)
    return {name: annotations[name] for name in kind._keys()}
