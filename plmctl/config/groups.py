"""Groups of settings that several commands have: the text, the training, the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.spec import Part, Record
from plmctl.core.values import Amount, Batch, Count, Number, Processes, Share, Whole

LENGTHS = ("steps", "tokens", "epochs", "minutes")  # of train: exactly one is set


@dataclass(frozen=True)
class Data(Record):
    # token directory, or text: file, folder, glob, hf:<data set>, strings:<kind>:<length>;
    # null: embedded corpus
    path: str | tuple[str, ...] | None = None
    valid_path: str | tuple[str, ...] | None = None  # held-out text; null: a share of `path`
    valid_share: float = 0.01  # of the documents, chosen by content; more where they are few
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
    # what one line of the text is; auto joins lines of a .txt that fill a width, and no others
    # running: the text as it is, also of rows; the end of a line is a token (of byte_bpe: itself)
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
    batch_size: Batch = 32  # rows of an update, over all processes
    micro_batch_size: Batch | None = None  # rows of one backward pass; null: a process' whole share
    clip: Number = 1.0  # gradient norm; 0: off
    max_bad_steps: Count = 10  # non-finite updates in a row before the run ends
    # of the computation; weights stay fp32
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    # by torch.compile; auto: on a GPU, where the run is long enough and its passes are large enough
    # to gain time
    compile: Literal["auto", True, False] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    processes: Processes = 1  # on this machine, data-parallel
    threads: Processes | None = None  # of the CPU, for each process; null: what torch takes
    # store only the input of each layer, and run the layer again in the backward pass: less memory,
    # about a third more time, the same numbers
    checkpoint_activations: bool = False
    deterministic: bool = False  # refuse GPU kernels whose result depends on the order of execution
    # updates; null: 10, or ten lines of a run below 100 updates; 0: the first and the last only
    log_every: Whole | None = None
    grad_norms: bool = False  # of every layer, in the first update: start/grad_norm/<layer>
    # updates; null: ten times a run, five times one below 50 updates, and in a fine-tuning without
    # train.least_steps after every epoch; 0: at the end only
    eval_every: Whole | None = None
    # updates; null: ten times a run, in a fine-tuning when dev is scored; 0: at the end only
    save_every: Whole | None = None
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
    batch_size: Batch | None = None  # null: that of training
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
