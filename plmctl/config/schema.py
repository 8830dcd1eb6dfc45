"""The plumbing of every command: its keys, types, defaults and meaning. Parts (`Any` here) are
typed by their signatures.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from plmctl.config.build import MISSING, SEVERAL
from plmctl.config.groups import Corpora, Data, Eval, Run, Train, TrainOnTask
from plmctl.config.linked import Linking, Mine, Retrieve
from plmctl.config.spec import Part, Record, RunSpec, thaw
from plmctl.config.uses import Attack, Embed, Evaluate, Extend, Generate, Inject
from plmctl.config.writing import Augment, Label, Rarify, Rewrite
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
    kernel: Any = None  # of attention; null: auto
    # what the vectors of tokens start from; null: drawn
    first_vectors: Any = None
    model: Any = MISSING
    objective: Any = None
    distill: Any = None
    heads: Any = None
    # learns from changed vectors of words, too; null: from the text alone
    regulariser: Any = None
    optim: Any = MISSING
    schedule: Any = MISSING
    # what train.minutes decides by the speed of this machine: [{up_to: 3e13, size: tiny}, ...], so
    # many FLOPs and the settings for them; []: nothing
    budgets: tuple[Mapping[str, Any], ...] = ()
    train: Train = Train()
    eval: Eval = Eval()
    run: Run = Run()
    seed: Whole = 0  # first weights, order of the data, noise, dropout
    # start from these weights: a run, a checkpoint or a Hugging Face folder
    init: str | None = None
    # the part of the model that they are, of an encoder-decoder: encoder; null: all of it
    init_into: str | None = None
    # parts of the model that init does not decide: [front]
    own: tuple[str, ...] = ()
    # of init, as in plmctl finetune
    kept_layers: str | tuple[int, ...] | Mapping[str, Any] | None = None
    # of distill: a run, a checkpoint or a Hugging Face folder, or several of them
    teacher: str | tuple[str, ...] | None = None
    # of several teachers; null: all count the same
    teacher_weights: tuple[float, ...] | None = None


class SideSettings(TypedDict):
    """A task that is trained beside the run's own: as it is asked for, and as it was decided."""

    task: Any  # sst2; once it is decided, its settings
    path: NotRequired[Any]  # as task.path
    overrides: NotRequired[tuple[str, ...]]  # other settings of it: [task.max_length=64]
    weight: NotRequired[Number]  # of its loss
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
    # from scratch: what the tokenizer is trained on
    data: Data = Data()
    tokenizer: Any = MISSING
    size: Any = None
    pattern: Any = MISSING
    position: Any = MISSING
    kernel: Any = None  # of attention; null: auto
    # from scratch: what the vectors of tokens start from; null: drawn
    first_vectors: Any = None
    model: Any = MISSING
    heads: Any = MISSING
    # what is trained in or beside a model that stays as it is: [lora]; [] or null: the model
    peft: Any = None
    # learns from changed vectors of words, too; null: from the text alone
    regulariser: Any = None
    # what keeps training on few examples from failing: [mixout], [ema]; [] or null: nothing
    stabiliser: Any = None
    # what stands for a row where it is classified: first, last, mean, compare, concat; null: as the
    # model says
    row_pooling: str | None = None
    optim: Any = MISSING
    schedule: Any = MISSING
    train: TrainOnTask = TrainOnTask()
    run: Run = Run()
    seed: Whole = 0  # order of the data, dropout
    head_seed: Whole | None = None  # first weights of new heads; null: seed
    # of checkpoint: spread, first2, last (half), [0,2,5] (from 0)
    kept_layers: str | tuple[int, ...] | Mapping[str, Any] | None = None
    # of distill: a run, a checkpoint or a Hugging Face folder, or several of them
    teacher: str | tuple[str, ...] | None = None
    # of several teachers; null: all count the same
    teacher_weights: tuple[float, ...] | None = None
    # a folder that keeps what the teacher answers, to be read instead of computed again
    teacher_cache: str | None = None


@dataclass(frozen=True)
class Tokenize(RunSpec):
    data: Data = Data()
    tokenizer: Any = MISSING
    out: str = MISSING  # folder of the tokens and their tokenizer
    processes: Processes | None = None  # null: one for each core
    seed: Whole = 0


@dataclass(frozen=True)
class Check(RunSpec):
    data: Data = Data()
    tokenizer: Any = None
    format: Any = None
    task: Any = None
    out: str | None = None  # a .md or .html page, what --out sets
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None


@dataclass(frozen=True)
class Contexts(RunSpec):
    data: Data = Data()
    # a list of words, one in each line; null: all that are frequent enough
    words: str | None = None
    least: Count = 100  # how often a word must stand in the text, without a list
    contexts: Count = 1000  # of a word at most, spread evenly over the text
    window: Count = 25  # words on each side of the word, within its sentence
    out: str = MISSING  # a new folder


@dataclass(frozen=True)
class MarkPolarity(RunSpec):
    data: Data = Data()
    lexicon: str = MISSING  # SentiWordNet's file, with glosses
    # an encoder whose vectors say how near a gloss is to a sentence; null: the words that both have
    checkpoint: str | None = None
    out: str = MISSING  # a new file, .jsonl
    overwrite: bool = False  # a file that is there already
    batch_size: Batch = 64  # texts that the encoder reads at once
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Vectors(RunSpec):
    data: Data = Data()
    method: Any = MISSING
    # of method=distilled: a run, a checkpoint or a Hugging Face folder
    checkpoint: str | None = None
    width: Count = 100  # numbers of a vector
    least: Count = 5  # words that stand fewer times in the text get no vector
    # words are runs of letters, or what is between spaces
    split: Literal["words", "spaces"] = "words"
    lowercase: bool = True
    # .safetensors (with n-grams), .txt (GloVe's), .vec (fastText's), .bin (word2vec's)
    out: str = MISSING
    overwrite: bool = False  # a file that is there already
    threads: Processes = 1
    seed: Whole = 0
    batch_size: Batch = 64  # of method=distilled: texts that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # of method=distilled


@dataclass(frozen=True)
class Limit(Record):
    steps: Count | None = None  # updates
    tokens: Count | None = None  # real tokens
    flops: Amount | None = None  # of training; becomes tokens by the cost of each arm
    # of wall-clock time; the one budget that two machines spend differently
    minutes: Amount | None = None


@dataclass(frozen=True)
class StudyBudget(Limit):
    # of wall-clock time for the study as a whole, over all starts, beside one of the others: no
    # seed begins that would not fit
    hours: Amount | None = None


@dataclass(frozen=True)
class Ablate(RunSpec):
    recipe: str | None = None  # the study's file
    title: str | None = None
    # published: as the block `published` of its file changes it; also the word published
    scale: Literal["small", "published"] = "small"
    # what the published experiment changes, or why there is none
    published: Any = None
    # folder of the study, its jobs and its table; null: studies/<name>, with -published behind it
    # for the published form
    out: str | None = None
    processes: Processes = 1  # jobs at the same time, on this machine
    keep: bool = False  # checkpoints of fine-tuned models
    # what learning curves go by; null: the budget
    curves: Literal["steps", "tokens", "flops", "time"] | None = None
    seeds: tuple[Whole, ...] = (0, 1, 2)  # of pretraining; with `until`, at most these
    # decided: the first three seeds of every arm, then one more a round, for the arms of which an
    # expectation is still undecided; null: all seeds of all arms
    until: Literal["decided"] | None = None
    data: Data = Data()  # of every arm
    # of each pretraining, the same for all arms; hours: of the study
    budget: StudyBudget = StudyBudget()
    baseline: str = MISSING  # the arm that the others are compared with
    # {name: [overrides] or {recipe, overrides, ...}}
    arms: Mapping[str, Any] = Part({})
    only: tuple[str, ...] = ()  # arms that run, beside the baseline; none: all
    grid: tuple[str, ...] = ()  # arms as a sweep: [size=tiny,mini]
    pretrain: Any = None  # {recipe, overrides, new_model} of every arm
    # what every pretraining starts from, in place of pretrain.new_model: a run, a checkpoint or a
    # Hugging Face folder
    init: str | None = None
    # the same from a base of plmctl bases make, which all studies share; null: from new weights
    start: Literal["encoder", "decoder", "seq2seq"] | None = None
    # what every arm fine-tunes in place of a pretraining of its own
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
    valid_share: Rate = 0.05  # of the triples, where no file is a split of its own
    # valid and test triples with an entity or a relation that is not trained: keep ranks them, as
    # published evaluations do; drop leaves them out
    unseen: Literal["keep", "drop"] = "keep"


@dataclass(frozen=True)
class WriteTriples(RunSpec):
    data: GraphData = GraphData()
    # one text for each entity; head and relation with the tail as target; true and false triples;
    # head and tail with the relation as label
    kind: Literal["descriptions", "comet", "kg_bert", "relations"] = "descriptions"
    negatives: Count = 1  # of kg_bert: false triples for each true one
    out: str = MISSING  # a new folder
    seed: Whole = 0


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
    # a relation that is asked for its head has a vector of its own
    reciprocal: bool = True
    # what a triple is asked for
    sides: tuple[Literal["head", "tail"], ...] = ("head", "tail")
    # of the question for the relation, beside that for an entity; 0: it is not asked for
    relation_weight: Number = 0.0
    # of the entity and the relation of a question
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


VERBS: dict[str, type[RunSpec]] = {
    "tokenize": Tokenize,
    "pretrain": Pretrain,
    "finetune": Finetune,
    "eval": Evaluate,
    "attack": Attack,
    "inject": Inject,
    "extend": Extend,
    "vectors": Vectors,
    "embed": Embed,
    "data": Check,
    "contexts": Contexts,
    "polarity": MarkPolarity,
    "triples": WriteTriples,
    "graph": Graph,
    "ablate": Ablate,
    "generate": Generate,
    "augment": Augment,
    "rewrite": Rewrite,
    "rarify": Rarify,
    "link": Linking,
    "retrieve": Retrieve,
    "mine": Mine,
    "label": Label,
    "convert": Converted,
}


def defaults(verb: str) -> dict[str, Any]:
    """The plumbing of `verb` as plain data, what a composed config starts from."""
    return dict(thaw(VERBS[verb]()))


@functools.cache
def hints(kind: type[Record]) -> dict[str, Any]:
    """{setting: its annotation, with its rules} of a group of settings, in order."""
    annotations = typing.get_type_hints(kind, include_extras=True)
    return {name: annotations[name] for name in kind._keys()}
