"""The settings of `plmctl data link`, `data retrieve` and `data mine`: names and passages in
texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.spec import RunSpec
from plmctl.core.values import Batch, Count, Rate, Whole


@dataclass(frozen=True)
class Linking(RunSpec):
    # a wiki's export (.xml, .bz2, .gz), text that is given a dictionary, or a .conllu file
    path: str = MISSING
    # meanings of names in plain text: a knowledge directory, or a table of alias, name, count (tabs
    # between them, commas in a .csv)
    dictionary: str | None = None
    out: str = MISSING  # a new folder: text.jsonl, entities.jsonl, knowledge.json
    # sources of types on the page of an entity: the nouns that its categories are about; the
    # categories themselves; its infobox; the brackets of its title
    types: tuple[Literal["heads", "categories", "infobox", "qualifier"], ...] = (
        "heads",
        "infobox",
        "qualifier",
    )
    type_table: str | None = None  # more types: name, type a line, with a tab between
    triples: str | None = None  # head, relation, tail a line, with tabs between
    # id, name a line, where the two tables have ids instead of names
    ids: str | None = None
    # further marks: [sense:senses.tsv], a field and its table of word, tag; [sense:wordnet]
    lexicons: tuple[str, ...] = ()
    # columns of a .conllu file whose values become marks: [upos,deprel,head]
    layers: tuple[str, ...] = ()
    # link further mentions of the article's linked names, too
    repeated: bool = True
    outside: bool = True  # titles that are only linked to are entities, too
    least_mentions: Count = 1  # least number of mentions that a word needs to be linked
    lists: bool = True  # lines of lists are text, too
    # sections that are left out
    without: tuple[str, ...] = (
        "References",
        "External links",
        "See also",
        "Further reading",
        "Notes",
        "Bibliography",
        "Sources",
        "参考文献",
        "外部链接",
        "参见",
    )
    fold: bool = False  # names in plain text: upper and lower case are the same
    least_prior: Rate = 0.5  # names are linked whose main meaning has this share of their uses
    least_length: Count = 2  # characters of such a name
    lowercase: bool = False  # and names without a capital letter
    licence: str | None = None  # licence of the text, for knowledge.json


@dataclass(frozen=True)
class Retrieve(RunSpec):
    text: str = MISSING  # that is searched: file, folder or pattern
    # questions: .jsonl of id, question, answers, or SQuAD's .json
    train_questions: str | None = None
    dev_questions: str | None = None
    test_questions: str | None = None
    out: str = MISSING  # a new folder, for task=triviaqa
    words: Count = 100  # largest number of words in a passage
    top: Count = 10  # passages of a question
    # a run of task=pair_classification on pairs/ of an earlier start: passages are ordered anew
    ranker: str | None = None
    pool: Count = 50  # passages of a question that it reads
    ranker_weight: Rate = 0.5  # weight of the ranker's score; BM25 has the rest
    k1: float = 0.9  # BM25's k1: how soon further occurrences of a word count no more
    b: float = 0.4  # how much long passages count less


@dataclass(frozen=True)
class Mine(RunSpec):
    # a ranking task, the source of the questions; null: the task of checkpoint
    task: Any = None
    # a run of task=bi_encoder, by which texts are found; null: BM25
    checkpoint: str | None = None
    out: str = MISSING  # a new folder, for task.path
    # best wrong texts that are skipped for each question: they may answer the question, too
    negatives: Count = 4
    # so many of the best wrong texts are passed over: they may answer the question, too
    skipped: Whole = 0
    batch_size: Batch = 32  # texts that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"
    heads: Any = None  # these four stand in the files of tasks; nothing is trained here
    optim: Any = None
    schedule: Any = None
    train: Any = None
