"""Groups of settings that several commands have: the text, the training, the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.spec import Part, Record
from plmctl.core.values import Amount, Batch, Count, FromTo, Number, Processes, Share, Whole

# settings of train; a run sets exactly one of them
LENGTHS = ("steps", "tokens", "words", "epochs", "minutes")


@dataclass(frozen=True)
class Data(Record):
    # token directory, here or at a URL (s3://, gs://, hf://, https://), or text: file, folder,
    # glob, hf:<data set>, strings:<kind>:<length>; null: embedded corpus
    path: str | tuple[str, ...] | None = None
    valid_path: str | tuple[str, ...] | None = None  # held-out text; null: a share of `path`
    # share of the documents, chosen by content; larger where documents are few
    valid_share: float = 0.01
    # field of .jsonl, .csv, .parquet and hf: fields with lists of {"start", "end", "id"}: span
    # tracks
    field: str = "text"
    # fields with lists of {"start", "end", "id"}: span tracks
    spans: tuple[str, ...] = ()
    # the same, as one id for each token (0: none)
    tags: tuple[str, ...] = ()
    # parallel text: the lines that belong to those of `path`
    target_path: str | tuple[str, ...] | None = None
    valid_target_path: str | tuple[str, ...] | None = None  # the translations of `valid_path`
    # parallel text in one .jsonl, .tsv: [source,target]
    fields: tuple[str, ...] = ()
    # the meaning of one line of the text; auto joins the lines of a .txt that fill a width
    lines: Literal["auto", "sentence", "paragraph", "wrapped", "running"] = "auto"
    # first byte to read and first byte after the text, for running text: [0,90000000]
    bytes: tuple[Whole, ...] | None = None
    valid_bytes: tuple[Whole, ...] | None = None  # the same of `valid_path`
    # Chinese words, for noise that hides whole words: jieba, jieba_hmm (traditional text), either
    # with words of yours (jieba:words.txt), or a plugin's text -> (start, end)
    segment: str | None = None
    # where raw text is kept as tokens, and shards of a URL; null: the user's cache folder
    cache_dir: str | None = None
    cache_size: Amount = 20.0  # GB that shards of URLs may take there


def list_unread(*read: str, why: str) -> dict[str, tuple[str, str]]:
    """The settings of `data` that a command does not read, other than `read`, as `find_unread`
    gives them.
    """
    return {f"data.{name}": (why, "") for name in Data._keys() if name not in read}


@dataclass(frozen=True)
class Corpora(Data):
    # corpora mixed row by row: {name: {path, target_path, language, weight}}
    mixture: Mapping[str, Mapping[str, Any]] = Part({})
    # temperature of a mixture without weights: shares are proportional to tokens ** (1 /
    # temperature); null: 1
    temperature: Amount | None = None
    # temperature of texts that share a tokenizer: each contributes bytes ** (1 / temperature) of
    # its training text; null: all contribute the same
    vocab_temperature: Amount | None = None
    # {name: {path or mixture, target_path, language, format, noise, weight}}
    sources: Mapping[str, Mapping[str, Any]] = Part({})
    # .jsonl files are tokenized as they are read, and no tokens are kept on disk
    streaming: bool = False
    # characters whose rows are shuffled together, for streaming and tokens in shards
    window: Count = 16777216


@dataclass(frozen=True)
class Train(Record):
    steps: Count | None = None  # updates
    tokens: Count | None = None  # real tokens read, over all processes
    epochs: Amount | None = None  # may be a part of one: 0.5
    least_steps: Whole = 0  # more epochs, where train.epochs would be fewer updates than this
    # optim.lr is that of a model of this width: one of half the width learns at twice the rate;
    # null: optim.lr as it stands
    lr_width: Count | None = None
    # wall-clock time, evaluation included; a recipe with budgets (plmctl help budgets) chooses
    # size, batch, rate and rows by it, unless you set them
    minutes: Amount | None = None
    # update after which the run is validated, saved and ends; `--resume train.pause_at=<later>`
    # goes on; the schedule is that of the whole length; null: the run does not pause
    pause_at: Count | None = None
    # share of the training text or examples; a smaller share is part of a larger one
    share: Share = 1.0
    batch_size: Batch = 32  # rows of an update, over all processes
    micro_batch_size: Batch | None = None  # rows of one backward pass; null: a process' whole share
    clip: Number = 1.0  # gradient norm; 0: off
    # updates in a row that are left out, not finite or spikes, before the run ends
    max_bad_steps: Count = 10
    # an update whose loss or gradient norm is far above its median: skip leaves it out; back goes
    # back to the newest checkpoint, and leaves out all rows since; off trains it
    spikes: Literal["off", "skip", "back"] = "off"
    spike_window: Count = 100  # updates of this median; a quarter of them must be there
    # distance from the median, in standard deviations that the median deviation stands for
    spike_deviations: Amount = 10.0
    # number type of the computation; weights stay fp32
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    # number type of the sums between layers, and of norms, with precision=bf16: bf16 takes half of
    # their memory, and has fewer digits
    stream: Literal["fp32", "bf16"] = "fp32"
    # by torch.compile; auto: on a GPU, where the run is long enough and its passes are large enough
    # to gain time
    compile: Literal["auto", True, False] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    processes: Processes = 1  # on this machine, data-parallel
    # seconds that a process waits for the others; then the run ends, and names the missing one
    timeout: Amount = 1800.0
    # starts anew of all processes after the loss of one, or of the only one, from the newest
    # checkpoint
    restarts: Whole = 0
    # weights, gradients and the optimizer's state are on every process; or divided among all of
    # them; or among groups of train.shard_size, such as those of one machine
    parallel: Literal["replicated", "sharded", "hybrid"] = "replicated"
    shard_size: Processes | None = None  # processes that divide the weights, for hybrid
    # neighbouring processes that have the same rows, and compute parts of the same cells: some of
    # the heads, and of the inner columns
    tensor_parallel: Processes = 1
    # where divided weights wait until they are gathered: on their device, or in the host's memory
    offload: Literal["none", "cpu"] = "none"
    threads: Processes | None = None  # CPU threads of each process; null: torch's own number
    # keep only the input of each layer and run the layer again in the backward pass: less memory;
    # about a third more time; the same numbers
    checkpoint_activations: bool = False
    deterministic: bool = False  # refuse GPU kernels whose result depends on the order of execution
    # the first and the last update that torch's profiler records, as [20,22]; []: none
    profile: FromTo = ()
    # updates; null: 10, or a tenth of a run below 100 updates, and about 30 of these on the
    # terminal; 0: the first and the last only
    log_every: Whole | None = None
    # log the gradient norm of every layer in the first update: start/grad_norm/<layer>
    grad_norms: bool = False
    # updates; null: ten times a run, five times one below 50 updates, and in a fine-tuning without
    # train.least_steps after every epoch; 0: at the end only. They take a tenth of train.minutes at
    # most
    eval_every: Whole | None = None
    # updates; null: ten times a run, in a fine-tuning when dev is scored; 0: at the end only
    save_every: Whole | None = None
    # write checkpoints by a process of their own while training goes on, in parts
    save_async: bool = False
    # newest checkpoints of train.save_every that stay, the last of the run among them
    keep_last: Count = 2
    keep_best: bool = True  # and the one with the best validation score
    # validations in a row without a better score that end the run, in its last stage; null: none do
    patience: Count | None = None
    # names or globs of the only parameters that are trained
    trainable: tuple[str, ...] = ()
    # patterns of parameters to freeze, for example [backbone.embedding*]
    frozen: tuple[str, ...] = ()
    # one batch of each source per update, of one source in its turn, or of one that is drawn
    sources: Literal["together", "alternated", "sampled"] = "together"
    # [{share: 0.9, format.max_length: 128}, ...]
    stages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class TrainOnText(Train):
    # limit of the tokens of an update, over all processes: rows times the longest sequence, with
    # padding. It replaces train.batch_size, and sorts rows by length; null: no limit
    batch_tokens: Count | None = None
    # words of the text read, over all processes; repeats count. A word is text between white space;
    # with data.segment a marked word
    words: Count | None = None
    # numbers at which the weights are kept as a model of its own, in checkpoints/words-1000000:
    # words:log (1, 2, ... 10, 20, ... 100 M of train.words=100e6), tokens:log, updates:log, or
    # [words:2e6,words:5e6]
    save_at: str | tuple[str, ...] | None = None

    @property
    def counts_words(self) -> bool:
        """Whether the words of the rows are counted."""
        stated = [self.save_at] if isinstance(self.save_at, str) else self.save_at or ()
        return self.words is not None or any(each.startswith("words:") for each in stated)


@dataclass(frozen=True)
class TrainOnTask(Train):
    # limit of the tokens of an update, over all processes: rows times the longest sequence, with
    # padding. It replaces train.batch_size, and sorts rows by length; null: no limit
    batch_tokens: Count | None = None
    # how often layers run whose weights, and those of all below, are frozen: on each batch; once an
    # epoch, or once, with the same numbers to the bit, and kept in a file in between
    frozen_outputs: Literal["batch", "epoch", "once"] = "batch"
    frozen_limit: Amount = 20.0  # GB that this file may take
    # each epoch trains one more layer, from the top down; heads alone in the first (ULMFiT)
    unfreeze: bool = False
    # metric that chooses the checkpoint: a metric of the task, or loss; a metric of a side task has
    # its name in front (rte/accuracy); null: the first metric of the task
    best_metric: str | None = None


@dataclass(frozen=True)
class Eval(Record):
    instead_of_null = "data.valid_share=0"

    noise: Any = None  # validation always sees the same masks, whatever the run's own noise
    batch_size: Batch | None = None  # null: that of training
    rows: Count | None = 1024  # at most; null: all
    seed: Whole = 0  # apart from the run's seed: runs compare
    # minimal pairs (task.path of task=minimal_pairs) whose accuracy each validation has; null: none
    minimal_pairs: str | None = None
    pairs: Count = 500  # minimal pairs at most, drawn by eval.seed from all paradigms alike


@dataclass(frozen=True)
class Run(Record):
    dir: str | None = None  # null: runs/<name>/<time>
    name: str | None = None  # null: the recipe
    resume: bool = False  # set by --resume
    # services that also receive the numbers of metrics.jsonl and TensorBoard:
    # [wandb,mlflow,trackio], or <module>.<class> of a plug-in
    trackers: tuple[str, ...] = ()
    # modules of --plugin; the files of the run record them
    plugins: tuple[str, ...] = ()
