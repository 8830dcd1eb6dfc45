"""The plumbing of every command: its keys, types, defaults and meaning. Parts (`Any` here) are
typed by their signatures.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from plmctl.core.values import Amount, Count, DropoutRate, Number, Rate, Share, Whole
from plmctl.run.build import MISSING, SEVERAL
from plmctl.run.linked import Linking, Mine, Retrieve
from plmctl.run.spec import Part, Record, RunSpec, thaw
from plmctl.run.writing import Augment, Label, Rarify, Rewrite

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
LENGTHS = ("steps", "tokens", "epochs", "minutes")  # of train: exactly one is set


@dataclass(frozen=True)
class Data(Record):
    # token directory, or text: file, folder, glob, hf:<data set>, strings:<kind>:<length>;
    # null: embedded corpus
    path: str | tuple[str, ...] | None = None
    valid_path: str | tuple[str, ...] | None = None  # held-out text; null: a share of `path`
    valid_share: float = 0.01  # of the documents, chosen by their content
    field: str = "text"  # of .jsonl, .csv, .parquet and hf:
    # fields with lists of {"start", "end", "id"}: span tracks
    spans: tuple[str, ...] = ()
    # the same, as one id for each token (0: none)
    tags: tuple[str, ...] = ()
    # parallel text: the lines that belong to those of `path`
    target_path: str | tuple[str, ...] | None = None
    valid_target_path: str | tuple[str, ...] | None = None  # those that belong to `valid_path`
    # parallel text in one .jsonl, .tsv: [source,target]
    fields: tuple[str, ...] = ()
    # what one line of a .txt is
    # running: the end of a line is a token, and nothing else parts the text
    lines: Literal["auto", "sentence", "paragraph", "wrapped", "running"] = "auto"
    # of running text: the first byte that is read and the first that is not, [0,90000000]
    bytes: tuple[Whole, ...] | None = None
    valid_bytes: tuple[Whole, ...] | None = None  # the same of `valid_path`
    # Chinese words, for noise that hides whole words: jieba, or a plugin's text -> (start, end)
    segment: str | None = None
    cache_dir: str | None = None  # where raw text is kept as tokens; null: the user's cache folder


@dataclass(frozen=True)
class Corpora(Data):
    # corpora mixed row by row: {name: {path, target_path, language, weight}}
    mixture: Mapping[str, Mapping[str, Any]] = Part({})
    # of a mixture without weights: shares go as tokens ** (1 / temperature); null: 1
    temperature: Amount | None = None
    # of texts that share a tokenizer: each gives bytes ** (1 / temperature) of the text that it is
    # trained on; null: all give as much
    vocab_temperature: Amount | None = None
    # {name: {path or mixture, target_path, language, format, noise, weight}}
    sources: Mapping[str, Mapping[str, Any]] = Part({})
    # .jsonl files are tokenized as they are read, and no tokens are kept on disk
    streaming: bool = False
    window: Count = 16777216  # of streaming: characters whose rows are shuffled together, in memory


@dataclass(frozen=True)
class Train(Record):
    steps: Count | None = None  # updates
    tokens: Count | None = None  # real tokens read, over all processes
    epochs: Amount | None = None  # may be a part of one: 0.5
    least_steps: Whole = 0  # more epochs, where train.epochs would be fewer updates than this
    # optim.lr is that of a model of this width: one of half the width learns at twice the rate;
    # null: optim.lr as it stands
    lr_width: Count | None = None
    # of wall-clock time, evaluation included; a recipe with budgets (plmctl help budgets) chooses
    # size, batch, rate and rows by it, unless they are given
    minutes: Amount | None = None
    # of the training text or examples; a smaller share is a part of a larger one
    share: Share = 1.0
    batch_size: Count = 32  # rows of an update, over all processes
    micro_batch_size: Count | None = None  # rows of one backward pass; null: a process' whole share
    clip: Number = 1.0  # gradient norm; 0: off
    max_bad_steps: Count = 10  # non-finite updates in a row before the run ends
    # of the computation; weights stay fp32
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", True, False] = "auto"  # by torch.compile
    device: Literal["auto", "cpu", "cuda"] = "auto"
    processes: Count = 1  # on this machine, data-parallel
    threads: Count | None = None  # of the CPU, for each process; null: what torch takes
    # store only the input of each layer, and run the layer again in the backward pass: less memory,
    # about a third more time, the same numbers
    checkpoint_activations: bool = False
    deterministic: bool = False  # refuse GPU kernels whose result depends on the order of execution
    log_every: Whole = 10  # updates; 0: the first and the last only
    grad_norms: bool = False  # of every layer, in the first update: start/grad_norm/<layer>
    eval_every: Whole | None = None  # updates; null: ten times a run; 0: at the end only
    save_every: Whole | None = None  # updates; null: ten times a run; 0: at the end only
    keep_last: Count = 2  # checkpoints
    keep_best: bool = True  # and the one with the best validation score
    # validations in a row without a better score that end the run; null: none do
    patience: Count | None = None
    # names or globs of the only parameters that are trained
    trainable: tuple[str, ...] = ()
    # and of those that are not: [backbone.embedding*]
    frozen: tuple[str, ...] = ()
    # one batch of each source per update, of one source in its turn, or of one that is drawn
    sources: Literal["together", "alternated", "sampled"] = "together"
    # [{share: 0.9, format.max_length: 128}, ...]
    stages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class TrainOnTask(Train):
    # how often layers run whose weights, and those of all below, are frozen: on each batch; once an
    # epoch, or once, with the same numbers to the bit, and kept in a file in between
    frozen_outputs: Literal["batch", "epoch", "once"] = "batch"
    frozen_limit: Amount = 20.0  # GB that this file may take
    # each epoch trains one more layer, from the top down; heads alone in the first (ULMFiT)
    unfreeze: bool = False
    # what chooses the checkpoint: a metric of the task, or loss, or those of a task beside with its
    # name before it (rte/accuracy); null: the first of the task
    best_metric: str | None = None


@dataclass(frozen=True)
class Eval(Record):
    noise: Any = None  # validation always sees the same masks, whatever the run's own noise
    batch_size: Count | None = None  # null: that of training
    rows: Count | None = 1024  # at most; null: all
    seed: Whole = 0  # apart from the run's seed: runs compare


@dataclass(frozen=True)
class Run(Record):
    dir: str | None = None  # null: runs/<name>/<time>
    name: str | None = None  # null: the recipe
    resume: bool = False  # what --resume sets
    # services that its numbers are sent to, beside metrics.jsonl and TensorBoard: [wandb,mlflow],
    # or <module>.<class> of a plug-in
    trackers: tuple[str, ...] = ()
    # what --plugin says; the run's files keep it
    plugins: tuple[str, ...] = ()


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
class Evaluate(RunSpec):
    # several of one task: an ensemble
    checkpoint: str | tuple[str, ...] = MISSING
    # of several: the mean of their probabilities, or one vote each
    joined: Literal["mean", "votes"] = "mean"
    # of several beside one base, each of a task of its own: the column of `input` that names which
    # of them answers a row; null: an ensemble
    by: str | None = None
    # [temperature,threshold]: what is fitted to the labels of this split, kept in the checkpoint,
    # and used from then on; threshold: of the first metric, for two labels or any number each;
    # thresholds: one for each of any number, of its own F1
    calibrate: tuple[Literal["temperature", "threshold", "thresholds"], ...] = ()
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    format: Any = None  # this and noise: of task=held_out; null: as in the checkpoint's own run
    noise: Any = None
    # texts that are also scored when they are changed: [typos,case]
    perturb: Any = None
    # dev, test, train, or another that the task's files have (mnli: dev_mismatched); valid means
    # dev
    split: str = "dev"
    data: Data = Data()  # of task=lm and task=held_out
    # unlabelled lines, or a .csv, .tsv or .jsonl table, to be labelled; -: standard input
    input: str | None = None
    # a .csv, .tsv or .jsonl file of predictions, or a folder of them, where earlier ones are kept;
    # null: eval/ in the run, of a model without one eval/<its name>
    out: str | None = None
    overwrite: bool = False  # such a file that is there already, or an earlier one in the folder
    batch_size: Count = 32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None
    seed: int = 0


@dataclass(frozen=True)
class Attack(RunSpec):
    checkpoint: str = MISSING  # a model that was fine-tuned on classes of texts
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    split: str = "dev"  # whose examples are attacked, those that the model answers right
    rows: Count | None = 200  # of the split, the first of them; null: all
    field: str = "text"  # which text of an example is changed: text, text2
    attack_candidates: Any = MISSING  # words that may stand in place of a word
    # what a changed text must not do: [changed_once,similarity]; [] or null: nothing
    constraint: Any = None
    attack_search: Any = MISSING  # which words are replaced, in which order
    # of masked_lm: a run, a checkpoint or a Hugging Face folder that predicts masked tokens
    writer: str | None = None
    # of similarity: whose vectors of texts are compared; null: those of checkpoint
    embedder: str | None = None
    # a .csv, .tsv or .jsonl file, an example in each line, or a folder of them, where earlier ones
    # are kept; null: attack/ in the run
    out: str | None = None
    overwrite: bool = False  # such a file that is there already, or an earlier one in the folder
    batch_size: Count = 64  # texts that the model reads at once
    window: Count = 64  # examples that are attacked side by side
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None
    seed: Whole = 0  # of slips that are drawn


@dataclass(frozen=True)
class Tokenize(RunSpec):
    data: Data = Data()
    tokenizer: Any = MISSING
    out: str = MISSING  # folder of the tokens and their tokenizer
    processes: Count | None = None  # null: one for each core
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
    batch_size: Count = 64  # texts that the encoder reads at once
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Inject(RunSpec):
    # a run, a checkpoint or a Hugging Face folder; word_vectors=mimic: a run of bertram
    checkpoint: str = MISSING
    word_vectors: Any = MISSING
    # the model that gets the tokens, with the same tokenizer, such as the one that bertram started
    # from, whose heads predict words; null: checkpoint
    into: str | None = None
    # a folder of plmctl data contexts, or a table of words; null: all that word_vectors has
    words: str | None = None
    # where a new token stands in a text: nowhere, in place of the word, behind the word and a
    # slash, or before a slash and the word
    form: Literal["plain", "replace", "slash", "before"] = "slash"
    cased: bool = False  # a word is one only with the same capital letters
    out: str = MISSING  # a new folder
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Extend(RunSpec):
    checkpoint: str = MISSING  # a run, a checkpoint or a Hugging Face folder
    data: Data = Data()  # text of the field whose words the new tokens are parts of
    tokens: Count = 1000  # new ones, at most
    least: Count = 10  # how often a new token must stand in the text
    # of new tokens, in every table of the model: the mean of those of the old tokens that it is
    # made of, or as a new model draws them
    rows: Literal["pieces", "random"] = "pieces"
    sample_bytes: Count = 1 << 25  # of text that is read
    out: str = MISSING  # a new folder


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
    threads: Count = 1
    seed: Whole = 0
    batch_size: Count = 64  # of method=distilled: texts that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # of method=distilled


@dataclass(frozen=True)
class Embed(RunSpec):
    # or a file of word vectors: of a line their mean is written
    checkpoint: str = MISSING
    input: str = MISSING  # lines of text, JSON lines, or a table (.csv, .tsv, .parquet)
    field: str = "text"  # of a table or of JSON lines: the column, the key that has the text
    out: str = MISSING  # .npz; with among .jsonl
    overwrite: bool = False  # a file that is there already
    # a file of vectors that embed wrote, one for each line: among these lines, the nearest to each
    # of input are written
    among: str | None = None
    top: Count = 5  # how many of them
    # or numbers: 0 is the embedding output, -1 the last, [0,-1]
    layers: int | tuple[int, ...] | Literal["all"] = "all"
    # one vector a line, of all tokens but padding; first_last: the mean over the tokens of the
    # first and the last layer; pooler: what predicts the next sentence; idf, sif: the mean over the
    # tokens, of which rare ones weigh more; trained: as the model learned to compare texts (simcse,
    # tasks of sentences)
    pooling: Literal[
        "none", "mean", "first", "max", "last", "first_last", "pooler", "idf", "sif", "trained"
    ] = "none"
    # of idf and sif: a file as input is, in which rare tokens are rare; null: input itself
    weights_from: str | None = None
    normalize: bool = False  # vectors of length 1, whose product is their cosine
    logits: bool = False
    batch_size: Count = 32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"


@dataclass(frozen=True)
class Generate(RunSpec):
    checkpoint: str = MISSING
    # one text: to go on with, the source of what is written, or with masks to be filled
    prompt: str | None = None
    # a file of such texts, one a line; -: standard input, which null takes where it is no terminal
    input: str | None = None
    out: str | None = None  # a .jsonl file of the results; null: they are printed
    overwrite: bool = False  # a file that is there already
    search: Any = None
    # of a model with memory: how many tokens each one sees, itself among them, so that a long text
    # costs no more; null: all so far, or as in training with model.same_length
    memory: Count | None = None
    # most tokens of a text; null: as many as the model has positions, or 128
    max_new: Count | None = None
    batch_size: Count = 32  # prompts at the same time
    top: Count = 5  # candidates for each mask
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"


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
    out: str | None = None  # folder of the study, its jobs and its table; null: studies/<name>
    processes: Count = 1  # jobs at the same time, on this machine
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
    batch_size: Count = 128  # questions that are ranked at the same time


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
