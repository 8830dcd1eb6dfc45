"""The settings of `plmctl data augment`, `data rewrite`, `data label` and `data rarify`, which
write a data set with a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.spec import RunSpec
from plmctl.core.values import Amount, Batch, Count, Rate, Share, Whole


@dataclass(frozen=True)
class DataWriting(RunSpec):
    checkpoint: str = MISSING  # the model that writes: a run, a checkpoint or a Hugging Face folder
    task: Any = None
    out: str = MISSING  # a new folder, for task.path
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None


@dataclass(frozen=True)
class Augment(DataWriting):
    # copies of each example, in addition to itself; TinyBERT: 10 to 30, more for fewer examples
    copies: Count = 20
    rate: Share = 0.4  # share of a copy's words to replace
    candidates: Count = 15  # words that one may be replaced by
    # a file of word vectors, for words of several pieces; null: those stay as they are
    vectors: str | None = None
    # in tagging, also words whose tag is not O: names may become what is none
    tagged_words: bool = False
    # words that stay as they are, one a line; null: English function words
    stop_words: str | None = None
    seed: Whole = 0


@dataclass(frozen=True)
class Rewrite(DataWriting):
    search: Any = None
    # text to take from a search: the likeliest, or the nearest to the reference
    pick: Literal["best", "nearest"] = "best"
    max_new: Count | None = None  # most tokens of a text; null: task.max_target


@dataclass(frozen=True)
class Label(RunSpec):
    # a fine-tuned run, or several of one task, whose scores are averaged
    checkpoint: str | tuple[str, ...] = MISSING
    weights: tuple[Amount, ...] | None = None  # weights of several models; null: equal weights
    input: str = MISSING  # texts without labels: lines, or a .csv, .tsv or .jsonl table
    out: str = MISSING  # a new folder, for task.path
    threshold: Rate = 0.0  # texts stay out whose label is less probable
    share: Share = 1.0  # share of the texts of each label, the surest ones
    temperature: Amount = 1.0  # temperature of the written probabilities; PET: 2
    labelled: bool = True  # also write the examples that the checkpoint was trained on
    # a run of the same task, which says the labelled examples, the dev set and the columns of
    # `input`; null: checkpoint
    labelled_from: str | None = None
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Rarify(RunSpec):
    task: Any = None  # the labelled set; with checkpoint: that of the checkpoint
    # the baseline, fine-tuned on out/baseline; null: write the parts of the set
    checkpoint: str | None = None
    out: str = MISSING  # a new folder; with checkpoint, the folder that was written without it
    # a table: word, substitute, kind; null: synonyms of WordNet
    substitutes: str | None = None
    wordnet: str | None = None  # the folder of its dictionary; null: where it is installed
    # how often words stand in the text that contexts come from: a folder of plmctl data contexts
    counts: str | None = None
    # a substitute stands `least` times or more, but less than `below`
    least: Count = 10
    below: Count = 100
    # misspellings of each word that has a substitute, in addition to the substitutes
    misspellings: Whole = 0
    candidates: Share = 0.5  # share of the examples that are searched for rarified ones
    hidden: str = "[MASK]"  # text that replaces a word, as ordinary text
    hidden_share: Share = 0.1  # share of the words with substitutes that the baseline does not see
    replaced_share: Share = 0.1  # share of these words to replace for tested models
    most_words: Count = 5  # largest number of words to hide in an example, one after the other
    batch_size: Batch = 32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: Whole = 0
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None
