"""A model over every row of a split, once: what `predict` and `score` work on, during training
and in `plmctl eval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plmctl.core.batch import Rows
from plmctl.core.errors import DataError
from plmctl.models.base import Model
from plmctl.tasks import batches
from plmctl.tasks.base import Example, Task
from plmctl.text.characters import Spelling
from plmctl.text.unknown import refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab

FEW = 20  # different examples: fewer measure nothing in any case


@dataclass(frozen=True)
class Split:
    """The examples of a split and their rows."""

    name: str
    examples: list[Example]
    rows: Rows

    @property
    def labelled(self) -> bool:
        return bool(self.rows.labels or self.rows.targets)


def portion(examples: list[Example], share: float) -> list[Example]:
    """A `share` of the examples, one at least, in their order; chosen at random, a smaller share
    is part of a larger one.
    """
    chosen = np.random.default_rng(0).permutation(len(examples))[
        : max(1, round(share * len(examples)))
    ]
    return examples if share == 1 else [examples[place] for place in sorted(chosen.tolist())]


def encoded(task: Task, name: str, examples: list[Example], tokenizer: Any) -> Split:
    """With the characters of every word, where the tokenizer is one of words: a network that reads
    them knows new ones, too.

    Not for a task that asks for tokens or adds some: those of the vocabulary are all there are.
    DataError for a text that the tokenizer does not know.
    """
    tokens = task.asks_tokens or task.transform.adds_tokens
    if not tokenizer.vocab.spellings or "text" not in task.facts.needs or tokens:
        split = Split(name, examples, task.encode(examples, tokenizer))
        fix = (
            "a checkpoint whose tokenizer knows this text;"
            " from scratch, more tokenizer.vocab_size, or tokenizer=byte_bpe"
        )
        refuse_unknown(
            unknown(split.rows, tokenizer.vocab),
            file=examples[0].place.rpartition(":")[0] or name,
            fix=fix,
        )
        return split
    spelling = Spelling(tokenizer)
    return Split(name, examples, spelling.rows(task.encode(examples, spelling)))


def run(
    model: Model, task: Task, rows: Rows, *, batch_size: int, device: torch.device
) -> tuple[dict[str, np.ndarray], float | None]:
    """(logits by name, `[n, ...]` in the order of the rows; mean loss, None without labels).

    Rows are taken longest first, so the order and the numbers do not depend on who calls. The
    caller sets eval mode, `no_grad` and autocast.
    """
    units = batches.BatchUnits.of(rows)
    order = np.argsort(-units.length, kind="stable")
    found: dict[str, np.ndarray] = {}
    total, count = 0.0, 0
    for start in range(0, len(order), batch_size):
        index = units.rows(order[start : start + batch_size])
        batch = batches.collate(rows, index).to(device)
        logits = task.logits(model, batch)
        for name, values in logits.items():
            _store(found, name, index, values.float().cpu().numpy(), len(rows.key))
        if rows.labels or rows.targets:
            terms, counts = task.loss(logits, batch).terms, task.counts(batch)
            total += sum(float(term.total) for term in terms.values())
            count += sum(counts[name] for name in terms)
    return found, total / count if count else None


def _store(
    found: dict[str, np.ndarray], name: str, index: np.ndarray, values: np.ndarray, n: int
) -> None:
    """The first batch has the longest rows, so later ones fit into what it made room for."""
    if name not in found:
        found[name] = np.zeros((n, *values.shape[1:]), dtype=np.float32)
    if values.ndim > 1:
        found[name][index, : values.shape[1]] = values
    else:
        found[name][index] = values


def predictions(
    model: Model, task: Task, split: Split, *, batch_size: int, device: torch.device
) -> tuple[list[dict[str, Any]], float | None]:
    """One prediction for each example, and the mean loss."""
    logits, loss = run(model, task, split.rows, batch_size=batch_size, device=device)
    return task.predict(logits, split.rows, split.examples), loss


def truncation(rows: Rows) -> str:
    """One line that says what was cut, nothing if nothing was."""
    cut = rows.values["cut"]
    if not cut.any():
        return ""
    lost = int(cut.sum())
    tokens = lost + sum(int(seq.length.sum()) for seq in rows.seqs.values() if not seq.view)
    return (
        f"{int((cut > 0).sum())} of {len(cut)} rows are cut to max_length: {lost} of {tokens}"
        f" tokens ({lost / tokens:.2%})"
    )


def known(train: Sequence[Example], other: Sequence[Example]) -> str:
    """How many examples of `other` are in `train` with their very label, for people; nothing to
    say: "".
    """
    found = _known(train, other)
    return f"{found:,} of {len(other):,} are in train too" if found else ""


def unknown(rows: Rows, vocab: Vocab) -> float:
    """The share of the tokens of `rows` that their tokenizer does not know; 0 where the model
    reads their characters.
    """
    if "characters" in rows.seqs:
        return 0.0
    read = [seq.ids[seq.real] for seq in rows.seqs.values() if not seq.view]
    return unknown_share(np.concatenate(read), vocab)


def _known(train: Sequence[Example], other: Sequence[Example]) -> int:
    there = set(map(_content, train))
    return sum(_content(example) in there for example in other)


def _content(example: Example) -> tuple[str, str]:
    return str(example.fields), str(example.label)


def check_splits(task: Task) -> list[str]:
    """Read train and every dev split, whose names are returned, and fit the labels; DataError
    for a dev set out of train.
    """
    devs = [name for name in task.reader.splits if name.startswith("dev") and task.has(name)]
    task.fit_labels(train := task.read("train"))
    for name in devs:
        task.fit_labels(examples := task.read(name))
        found, several = _known(train, examples), len(set(map(_content, examples))) >= FEW
        if several and 2 * found > len(examples):
            told = (
                f"{found:,} of the {len(examples):,} examples of {name} stand in train with their"
                " label"
            )
            raise DataError(
                f"{told}: a score on them says what was learnt by heart",
                file=task.path,
                fix=(
                    "another dev set, or one file alone,"
                    " of which a share is held out: task.path=<train file>"
                ),
            )
    return devs


def noted(reader: Any) -> list[str]:
    """A line for each file of which it was found out how it is read."""
    return [f"{file}: {note}" for file, note in getattr(reader, "notes", {}).items()]


def counted(skipped: Mapping[str, int]) -> str:
    """One line for the files in which rows were passed over, nothing if there are none."""
    return "; ".join(
        f"{file}: {count} rows passed over" for file, count in skipped.items() if count
    )
