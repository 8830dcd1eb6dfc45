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
    # -: standard output; null: that for input=-, else eval/ in the run, of a model without one
    # eval/<its name>
    out: str | None = None
    overwrite: bool = False  # such a file that is there already, or an earlier one in the folder
    # of a table that is written: a ' stands before a text that a spreadsheet would run (=, +, -, @)
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
    split: str = "dev"  # whose examples are attacked, those that the model answers right
    rows: Count | None = 200  # of the split, the first of them; null: all
    field: str = "text"  # which text of an example is changed: text, text2
    # the words of Chinese texts: jieba, or a plugin's text -> (start, end); null: each character
    segment: str | None = None
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
    # of a table that is written: a ' stands before a text that a spreadsheet would run (=, +, -, @)
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
    seed: Whole = 0  # of slips that are drawn


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
    batch_size: Batch = 32
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
    batch_size: Batch = 32  # prompts at the same time
    top: Count = 5  # candidates for each mask
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
