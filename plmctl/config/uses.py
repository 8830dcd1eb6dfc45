"""The settings of the commands that use a trained model: eval, attack, inject, extend, embed and
generate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.groups import Data
from plmctl.config.spec import RunSpec
from plmctl.core.values import Batch, Count, Whole


@dataclass(frozen=True)
class Evaluate(RunSpec):
    # several of one task: an ensemble
    checkpoint: str | tuple[str, ...] = MISSING
    # rule that joins several models: the mean of their probabilities, or one vote each
    joined: Literal["mean", "votes"] = "mean"
    # column of `input` that names the model for a row, where several models share one base and each
    # has its own task; null: an ensemble
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
    data: Data = Data()  # corpus for task=lm and task=held_out
    # unlabelled lines, or a .csv, .tsv or .jsonl table, to be labelled; -: standard input
    input: str | None = None
    # a .csv, .tsv or .jsonl file of predictions, or a folder of them, where earlier ones are kept;
    # -: standard output; null: that for input=-, else eval/ in the run, of a model without one
    # eval/<its name>
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 32
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
    split: str = "dev"  # split whose examples are attacked, where the model answers right
    rows: Count | None = 200  # first rows of the split to attack; null: all
    field: str = "text"  # text of an example to change: text, text2
    # the words of Chinese texts: jieba, or a plugin's text -> (start, end); null: each character
    segment: str | None = None
    attack_candidates: Any = MISSING  # source of words that may replace a word
    # constraints on a changed text: [changed_once,similarity]; [] or null: none
    constraint: Any = None
    attack_search: Any = MISSING  # words to replace, and their order
    # a run, a checkpoint or a Hugging Face folder that predicts masked tokens, for masked_lm
    writer: str | None = None
    # model whose vectors of texts similarity compares; null: checkpoint
    embedder: str | None = None
    # a .csv, .tsv or .jsonl file, an example in each line, or a folder of them, where earlier ones
    # are kept; null: attack/ in the run
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 64  # texts that the model reads at once
    window: Count = 64  # examples that are attacked side by side
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None
    seed: Whole = 0  # seed of random slips


@dataclass(frozen=True)
class Inject(RunSpec):
    # a run, a checkpoint or a Hugging Face folder; word_vectors=mimic: a run of bertram
    checkpoint: str = MISSING
    word_vectors: Any = MISSING
    # the model that receives the tokens, with the same tokenizer and heads that predict words, such
    # as bertram's first model; null: checkpoint
    into: str | None = None
    # a folder of plmctl data contexts, or a table of words; null: all that word_vectors has
    words: str | None = None
    # a file like input, in which rare tokens are rare, for idf and sif; null: input itself
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
    # rows of new tokens in every table of the model: means of rows of old tokens, or random rows
    rows: Literal["pieces", "random"] = "pieces"
    sample_bytes: Count = 1 << 25  # bytes of text to read
    out: str = MISSING  # a new folder


@dataclass(frozen=True)
class Embed(RunSpec):
    # or a file of word vectors: of a line their mean is written
    checkpoint: str = MISSING
    input: str = MISSING  # lines of text, JSON lines, or a table (.csv, .tsv, .parquet)
    field: str = "text"  # column of a table, or key of JSON lines, that has the text
    out: str = MISSING  # .npz; with among .jsonl
    overwrite: bool = False  # replace an existing file
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
    # a file like input, in which rare tokens are rare, for idf and sif; null: input itself
    weights_from: str | None = None
    normalize: bool = False  # vectors of length 1, whose product is their cosine
    logits: bool = False
    batch_size: Batch = 32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"


@dataclass(frozen=True)
class Generate(RunSpec):
    checkpoint: str = MISSING
    # one text: a beginning to continue, a source, or a text with masks to fill
    prompt: str | None = None
    # a file of such texts, one a line; -: standard input, which null takes where it is no terminal
    input: str | None = None
    out: str | None = None  # a .jsonl file of the results; null: they are printed
    overwrite: bool = False  # replace an existing file
    search: Any = None
    # number of tokens that each token of a model with memory sees, itself included, so that a long
    # text costs no more; null: all so far, or as in training with model.same_length
    memory: Count | None = None
    # most tokens of a text; null: as many as the model has positions, or 128
    max_new: Count | None = None
    batch_size: Batch = 32  # prompts at the same time
    top: Count = 5  # candidates for each mask
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
