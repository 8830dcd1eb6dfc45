"""Rows whose numbers are usual: the ranges of 8 bits come from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import DataError, PlmctlError
from plmctl.core.terminal import WARN, counted, remark
from plmctl.tasks import inference
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.text.unknown import describe_unknown
from plmctl.text.vocab import Vocab

MOST, LEAST = 256, 32  # rows that are read, and fewest rows of a text of one's own
TOGETHER = 8  # rows of a batch
UNLIKE = 0.5  # a text warns that has less than this part of the usual agreement with training
AGAIN = "--calibrate texts.txt, rows like the ones to predict"


def choose_usual(task: Task, loaded: Loaded, split: Split, file: str | None = None) -> list[Batch]:
    """Batches of usual rows: of a file, or of the training set; of a split without both.

    The rows are drawn, since a file may be sorted by its labels.

    Args:
        split: The labelled rows whose scores are compared.
        file: Texts with or without labels, as `plmctl predict` reads them.

    Raises:
        DataError: The file has too few rows, or most of its tokens are unknown.
    """

    def encode(name: str, examples: list[Example]) -> Rows:
        return inference.encode_split(task, name, examples, loaded.tokenizer, fix=AGAIN).rows

    trained = _read_training(task)
    if file is not None:
        rows = encode(file, inference.take_some(_read_file(task, file), MOST))
        if len(trained) > 1:
            both = inference.take_some(trained, 2 * MOST)
            halves = encode("train", both[::2]), encode("train", both[1::2])
            _warn_unlike(file, rows, halves, loaded.tokenizer.vocab)
    else:
        rows = encode("train", inference.take_some(trained, MOST)) if trained else split.rows
    batches = [batch for _, batch in inference.list_batches(rows, TOGETHER)]
    step = max(1, len(batches) * TOGETHER // MOST)  # an example may have several rows
    return batches[::step]


def _read_training(task: Task) -> list[Example]:
    """The training set; empty where it cannot be read."""
    try:
        return task.read("train")
    except PlmctlError:
        return []


def _read_file(task: Task, file: str) -> list[Example]:
    if not Path(file).is_file():
        raise DataError("no such file", file=file, fix=AGAIN)
    examples = read_unlabelled(task, file)[1]
    if len(examples) < LEAST:
        what = f"{counted(len(examples), 'row')} to calibrate with: at least {LEAST} are needed"
        raise DataError(what, file=file, fix=AGAIN)
    return examples


def _warn_unlike(file: str, rows: Rows, trained: tuple[Rows, Rows], vocab: Vocab) -> None:
    """Warn where the tokens agree less with those of training than training rows among them."""
    known, other, own = (_list_tokens(each, vocab) for each in (*trained, rows))
    size = min(len(other), len(own))  # fewer tokens agree less
    usual, found = (measure_agreement(known, ids[:size]) for ids in (other, own))
    if found < UNLIKE * usual:
        unknown = describe_unknown(inference.unknown(rows, vocab))
        what = f"{file}: its tokens agree to {found:.0%} with those of training, whose own rows"
        what += f" agree to {usual:.0%}: another language, or another kind of text"
        remark(f"{what}; {unknown}" if unknown else what, WARN)


def measure_agreement(one: np.ndarray, other: np.ndarray) -> float:
    """`sum over tokens of min(p, q)` of their shares p and q in two texts: 1 for equal shares."""
    size = int(max(one.max(initial=0), other.max(initial=0))) + 1
    p, q = (np.bincount(ids, minlength=size) / max(1, len(ids)) for ids in (one, other))
    return float(np.minimum(p, q).sum())


def _list_tokens(rows: Rows, vocab: Vocab) -> np.ndarray:
    """The ids of all rows that stand for text."""
    ids = np.concatenate([seq.ids[seq.real] for seq in rows.seqs.values() if not seq.view])
    ordinary = ids[ids < vocab.size]
    tokens: np.ndarray = ordinary[~vocab.special[ordinary] | (ordinary == vocab.unk)]
    return tokens
