"""A model over every row of a split, once: what `predict` and `score` work on, during training
and in `plmctl eval`.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import DataError, UsageError, list_some
from plmctl.core.progress import ProgressLine
from plmctl.core.tables import make_table, release
from plmctl.core.terminal import counted
from plmctl.models.base import Model
from plmctl.runtime.base import Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.tasks import batches
from plmctl.tasks.readers.broken_rows import SHOWN
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.splits import count_common_bundles
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import hash_contexts, hash_questions
from plmctl.text.characters import Spelling
from plmctl.text.hanzi import describe_other_form, find_main_form
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import (
    KNOWING,
    MOST,
    count_unknown_characters,
    describe_full_width,
    describe_unknown,
    find_full_width,
    find_unknown,
    measure_full_width,
    refuse_unknown,
)
from plmctl.text.vocab import Vocab

PIECE = 1024  # rows whose tokens are counted at once
UNKNOWN = "unknown"  # the entry of a prediction for a text of which the model reads little
FEW = 20  # different examples: fewer measure nothing in any case


@dataclass(frozen=True)
class Split:
    """The examples of a split and their rows."""

    name: str
    examples: list[Example]
    rows: Rows

    @property
    def labelled(self) -> bool:
        """Whether its examples have labels, so that a loss can be computed."""
        return bool(self.rows.labels or self.rows.targets)


def take_share(examples: list[Example], share: float) -> list[Example]:
    """A `share` of the examples, one at least, in their order; chosen at random, a smaller share
    is part of a larger one.
    """
    taken = np.random.default_rng(0).permutation(len(examples))[
        : max(1, round(share * len(examples)))
    ]
    return examples if share == 1 else [examples[index] for index in sorted(taken.tolist())]


def take_some(examples: list[Example], most: int) -> list[Example]:
    """`most` of the examples, or all of fewer, drawn as `take_share` does."""
    return take_share(examples, min(1.0, most / max(1, len(examples))))


def is_answered(examples: Iterable[Example]) -> bool:
    """Whether any example has a label or an answer, so that there is something to score."""
    return any(each.label is not None or each.fields.get("answers") for each in examples)


def encode_split(
    task: Task, name: str, examples: list[Example], tokenizer: Any, *, fix: str = KNOWING
) -> Split:
    """The examples and their rows; DataError with this fix for texts that the tokenizer does not
    know.
    """
    split = encode_piece(task, name, examples, tokenizer)
    refuse_unknown_texts(split, tokenizer.vocab, fix=fix)
    return split


def refuse_unknown_texts(split: Split, vocab: Vocab, *, fix: str = KNOWING) -> None:
    """DataError with this fix where the tokenizer does not know most of the texts."""
    if share := unknown(split.rows, vocab):
        _refuse_texts(share, len(split.examples), split.examples[0].place, split.name, fix)


def admit(task: Task, examples: Examples) -> None:
    """`Answer.admit` of examples that are scored only, where the task has an answer."""
    if task.answer:
        task.answer.admit(examples, task.label_names)


def encode_piece(task: Task, name: str, examples: list[Example], tokenizer: Any) -> Split:
    """The examples and their rows; with a word tokenizer the rows also hold the characters of every
    word, so that a network that reads them knows new words, too.

    Without characters for a task that predicts or adds tokens: it needs those of the vocabulary.
    """
    spelled = "text" in task.facts.needs and not task.requires.reads_ids
    if not (tokenizer.vocab.spellings and spelled):
        return Split(name, examples, task.encode(examples, tokenizer))
    spelling = Spelling(tokenizer)
    return Split(name, examples, spelling.rows(task.encode(examples, spelling)))


def run(
    model: Model,
    task: Task,
    rows: Rows,
    *,
    batch_size: int,
    device: torch.device,
    runtime: Runtime | None = None,
    overhead: int | None = None,
) -> tuple[dict[str, np.ndarray], float | None]:
    """(logits by name, `[n, ...]` in the order of the rows; mean loss, None without labels).

    Rows are taken longest first, so the order and the numbers do not depend on who calls. The
    caller sets eval mode, `no_grad` and autocast. `overhead` is that of `batches.cut`.
    """
    runtime = runtime or EagerRuntime()
    if task.answer:
        task.answer.attach(model)
    program = Program(model, task.logits)
    outputs: dict[str, np.ndarray] = {}
    totals: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    show, done = ProgressLine("rows", len(rows.key), inner=True), 0
    for index, batch in list_batches(rows, batch_size, overhead):
        batch = batch.to(device)
        logits = runtime.answer(program, batch)
        for name, values in logits.items():
            if values.shape[0] != len(index):
                what = f"'{name}' has {values.shape[0]} rows of answers to {len(index)} rows"
                raise UsageError(f"{what}\n  fix: runtime=torch")
            store(outputs, name, index, values.float().cpu().numpy(), len(rows.key))
        if rows.labels or rows.targets:
            terms = task.loss(logits, batch).terms
            for name, term in terms.items():
                totals[name] += term.weight * float(term.total)
            counts.update(task.counts(batch))
        done += len(index)
        show(done)
    means = [total / counts[name] for name, total in totals.items() if counts[name]]
    return outputs, sum(means) if means else None


def list_batches(
    rows: Rows, batch_size: int, overhead: int | None = None
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Batches of all rows, the longest first, each with the numbers of its rows: they depend on
    nothing but the rows. `overhead` is that of `batches.cut`.
    """
    units = batches.BatchUnits.of(rows)
    order = np.argsort(-units.length, kind="stable")
    for part in batches.cut(units.length[order], batch_size, overhead):
        index = units.rows(order[part])
        yield index, batches.collate(rows, index)


def store(
    outputs: dict[str, np.ndarray], name: str, index: np.ndarray, values: np.ndarray, n: int
) -> None:
    """The first batch has the longest rows, so later ones fit into the arrays made for it."""
    if name not in outputs:
        outputs[name] = make_table((n, *values.shape[1:]), np.float32)
    if values.ndim > 1:
        outputs[name][index, : values.shape[1]] = values
    else:
        outputs[name][index] = values
    release(outputs[name])


def predict_split(
    model: Model,
    task: Task,
    split: Split,
    *,
    batch_size: int,
    device: torch.device,
    runtime: Runtime | None = None,
) -> tuple[list[dict[str, Any]], float | None]:
    """One prediction for each example, and the mean loss."""
    logits, loss = run(
        model, task, split.rows, batch_size=batch_size, device=device, runtime=runtime
    )
    return task.predict(logits, split.rows, split.examples), loss


def describe_truncation(rows: Rows) -> str:
    """A sentence on what was cut off the rows; "" if nothing was."""
    return spell_truncation(count_truncation(rows))


def count_truncation(rows: Rows) -> Counter[str]:
    """The tokens cut off the rows, as counts that add up over pieces of a split."""
    asked, cut = rows.values.get("question_cut"), rows.values["cut"]
    lost = rows.values.get("lost")
    read = sum(int(seq.length.sum()) for seq in rows.seqs.values() if not seq.view)
    counts = Counter(rows=len(cut), cut=int((cut > 0).sum()), lost=int(cut.sum()), read=read)
    counts["without"] = 0 if lost is None else int((lost > 0).sum())
    counts["questions"] = len(np.unique(rows.values["example"]))
    if asked is not None:
        counts["asked"], counts["asked_lost"] = int((asked > 0).sum()), int(asked.sum())
    counts["any"] = int(_is_cut(rows).sum())
    return counts


def spell_truncation(counts: Counter[str]) -> str:
    """The sentence on these counts; "" if nothing was cut."""
    lines, lost = [], counts["lost"]
    if lost:
        tokens, without = lost + counts["read"], counts["without"]
        entities = f"; in {without} of them an entity is cut off" if without else ""
        lines.append(
            f"{counts['cut']} of {counts['rows']} rows are cut to max_length: {lost} of {tokens}"
            f" tokens ({lost / tokens:.2%}){entities}"
        )
    if counts["asked"]:
        lines.append(
            f"{counts['asked']} of {counted(counts['questions'], 'question')} are cut to max_query,"
            f" by {counted(counts['asked_lost'], 'token')}"
        )
    return "; ".join(lines)


def find_cut(rows: Rows) -> set[int]:
    """The numbers of the examples whose text or question has lost tokens."""
    return {*rows.values["example"][_is_cut(rows)].tolist()}


def _is_cut(rows: Rows) -> np.ndarray:
    lost = rows.values["cut"] + rows.values.get("question_cut", 0)
    return np.asarray(lost > 0)


def describe_overlap(train: Examples, other: Examples) -> str:
    """A sentence on the examples of `other` whose text is in `train`, and on those with another
    label there, and one on passages; "" without any.
    """
    seen = np.isin(hash_questions(other), hash_questions(train))
    passages, known = hash_contexts(other), hash_contexts(train)
    shared = int(np.isin(passages, known).sum())
    again = f"{shared:,} of {len(passages):,} passages are in train" if shared else ""
    return "; ".join(filter(None, (_describe_seen(train, other, seen), again)))


def _describe_seen(train: Examples, other: Examples, seen: np.ndarray) -> str:
    if not seen.any():
        return ""
    known = {_content(example) for example in train}
    texts = [example for example, met in zip(other, seen, strict=True) if met]
    places = [example.place for example in texts if _content(example) not in known]
    whole = "question of train, with its text and choices" if "choices" in other[0].fields else ""
    said = f"{len(texts):,} of {len(other):,} have a {whole or 'text of train'}"
    named = f", {len(places):,} with another label: {list_some(places, SHOWN)}"
    return said + named if places else said


def count_known_texts(data: Mapping[str, Split]) -> dict[str, int]:
    """The number of examples whose text is in train, of each split with such ones."""
    train = hash_questions(data["train"].examples)
    splits = {name: own.examples for name, own in data.items() if name != "train"}
    counts = {name: int(np.isin(hash_questions(own), train).sum()) for name, own in splits.items()}
    return {name: n for name, n in counts.items() if n}


def count_known_bundles(task: Task, data: Mapping[str, Split]) -> dict[str, int]:
    """The number of bundles in train, too, of each split with such ones."""
    train = data["train"].examples if task.splits.names_bundles else ()
    counts = {name: count_common_bundles(train, own.examples) for name, own in data.items()}
    return {name: n for name, n in counts.items() if n and name != "train"}


def unknown(rows: Rows, vocab: Vocab) -> float:
    """The share of the tokens of `rows` that their tokenizer does not know; 0 where the model
    reads their characters.
    """
    if "characters" in rows.seqs or not any(
        (seq.ids == vocab.unk).any() for seq in rows.seqs.values()
    ):
        return 0.0
    unknown, ordinary = _count_unknown(rows, vocab).sum(0).tolist()
    return unknown / max(1, ordinary)


def name_unread(
    predictions: Sequence[dict[str, Any]], unread: Mapping[int, float]
) -> list[dict[str, Any]]:
    """The predictions, with the shares of `find_unread` as `unknown`."""
    return [
        {**own, UNKNOWN: unread[number]} if number in unread else own
        for number, own in enumerate(predictions)
    ]


def find_unread(split: Split, tokenizer: Tokenizer, *, refuse: bool = False) -> dict[int, float]:
    """{number of an example: the share of its tokens that are unknown} where that is most of them,
    or most of its letters are full-width ones that the tokenizer reads as others; 1 for an example
    with an empty text.

    Raises:
        DataError: With `refuse`, the tokenizer does not know most of the texts.
    """
    unknown = _count_unknown(split.rows, tokenizer.vocab)
    if refuse and unknown[:, 0].any():
        lost, ordinary = unknown.sum(0).tolist()
        share = lost / max(1, ordinary)
        _refuse_texts(share, len(split.examples), split.examples[0].place, split.name, KNOWING)
    wide = find_full_width(tokenizer, map(_join_texts, split.examples))
    return _list_unread(split.examples, split.rows, unknown, wide)


def _join_texts(example: Example) -> str:
    """Its texts, one behind the other; turns of CoQA have numbers, too."""
    return " ".join([text for text in example.texts if isinstance(text, str)])


def _list_unread(
    examples: Examples, rows: Rows, unknown: np.ndarray, wide: Mapping[int, Counter[str]]
) -> dict[int, float]:
    """`find_unread` by the counts of `_count_unknown` and `find_full_width`."""
    counts = np.zeros((len(examples), 2), np.int64)
    np.add.at(counts, rows.values["example"], unknown)
    shares = counts[:, 0] / np.maximum(1, counts[:, 1])
    for number, words in wide.items():
        own = measure_full_width(words, _join_texts(examples[number]))
        shares[number] = max(shares[number], own)
    shares[[has_empty_text(each) for each in examples]] = 1
    return {
        int(number): round(float(shares[number]), 4) for number in np.flatnonzero(shares > MOST)
    }


def _count_unknown(rows: Rows, vocab: Vocab) -> np.ndarray:
    """[n, 2]: the unknown tokens of each row, and all that stand for text."""
    counts = np.zeros((len(rows.key), 2), np.int64)
    seqs = () if "characters" in rows.seqs else rows.seqs.values()
    for start, piece in (found for seq in seqs if not seq.view for found in _cut(seq)):
        marked = np.stack(find_unknown(piece.ids, vocab), -1) & piece.real[..., None]
        counts[start : start + PIECE] += marked.sum(1)
    return counts


def _cut(seq: Seq) -> Iterator[tuple[int, Seq]]:
    """Yield pieces of its rows, each with the number of its first row."""
    for start in range(0, len(seq.length), PIECE):
        part = slice(start, start + PIECE)
        tracks = {name: track[part] for name, track in seq.tracks.items()}
        yield start, Seq(seq.ids[part], seq.length[part], tracks)


COUNTERS = ("cut", "lost", "wide", "forms")


class ReadPieces:
    """The remarks on the texts of a split, which are read in one piece or in several."""

    def __init__(self) -> None:
        self.cut: Counter[str] = Counter()
        self.examples = self.empty = self.unknown = self.ordinary = self.unread = 0
        self.first_empty = self.first = ""
        self.lost = Counter[str]()  # unknown characters
        self.wide, self.wide_texts = Counter[str](), 0  # full-width words that are read as others
        self.forms = Counter[str]()  # texts by the form of their Chinese

    def add(self, examples: Examples, rows: Rows, tokenizer: Tokenizer) -> dict[int, float]:
        """A piece more; returns its `find_unread`."""
        counts = _count_unknown(rows, tokenizer.vocab)
        wide = find_full_width(tokenizer, map(_join_texts, examples))
        for words in wide.values():
            self.wide.update(words)
        self.wide_texts += len(wide)
        unread = _list_unread(examples, rows, counts, wide)
        self.add_texts(examples, len(unread))
        self.forms.update(map(find_main_form, map(_join_texts, examples)))
        unknown, ordinary = counts.sum(0).tolist()
        if unknown:
            self.lost.update(count_unknown_characters(tokenizer, map(_join_texts, examples)))
        self.unknown, self.ordinary = self.unknown + unknown, self.ordinary + ordinary
        self.cut.update(count_truncation(rows))
        return unread

    def add_texts(self, examples: Examples, unread: int) -> None:
        """A piece more, of which `unread` are hardly read, empty ones among them."""
        empty = [example.place for example in examples if has_empty_text(example)]
        self.first = self.first or examples[0].place
        self.first_empty = self.first_empty or (empty[0] if empty else "")
        self.examples, self.empty = self.examples + len(examples), self.empty + len(empty)
        self.unread += unread - len(empty)

    def save(self) -> dict[str, Any]:
        """The counts so far, as JSON has them."""
        counters = {name: dict(getattr(self, name)) for name in COUNTERS}
        return {**vars(self), **counters}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on behind pieces of which this is saved."""
        vars(self).update(saved)
        for name in COUNTERS:
            setattr(self, name, Counter(saved.get(name, {})))

    @property
    def unknown_share(self) -> float:
        """The share of the tokens that their tokenizer does not know."""
        return self.unknown / max(1, self.ordinary)

    def describe_empty(self) -> str:
        """A sentence on examples with an empty text, or ""."""
        counts = (self.empty, self.examples, self.first_empty)
        return spell_empty(*counts) if self.empty else ""

    def describe_unknown(self) -> str:
        """A sentence on unknown tokens, or ""."""
        said = describe_unknown(self.unknown_share, self.lost)
        texts = f"{self.unread:,} of {counted(self.examples, 'text')}"
        most = f"{texts} are hardly read" if self.unread else ""
        return "; ".join(filter(None, (said, most, self.describe_full_width())))

    def describe_full_width(self) -> str:
        """A sentence on full-width letters and digits, or ""."""
        return describe_full_width(self.wide, self.wide_texts)

    def describe_form(self, trained: Mapping[str, int]) -> str:
        """A sentence on texts in a form of Chinese that training texts, counted by form, lack."""
        return describe_other_form(self.forms, trained)

    def refuse_unknown(self, name: str) -> None:
        """DataError where the tokenizer does not know most of the texts."""
        _refuse_texts(self.unknown_share, self.examples, self.first, name, KNOWING)


def _refuse_texts(share: float, rows: int, first: str, name: str, fix: str) -> None:
    file, _, line = first.rpartition(":")
    line = line.removeprefix("line ")  # a line of a text knows its number alone
    where = f" ({counted(rows, 'row')}, from line {line} on)" if line.isdecimal() else ""
    refuse_unknown(share, file=file or name, where=where, fix=fix)


def _count_known(train: Examples, other: Examples) -> int:
    contents = set(map(_content, train))
    return sum(_content(example) in contents for example in other)


def _content(example: Example) -> bytes:
    """A hash: the examples of a split at once may be all of the text of a table again."""
    choices, label = example.fields.get("choices"), str(example.label)
    if choices and label.isdigit() and int(label) < len(choices):
        fields: dict[str, Any] = {**example.fields, "choices": sorted(choices)}
        said = repr((str(fields), choices[int(label)]))
    else:
        said = repr((str(example.fields), label))
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def check_splits(task: Task) -> list[str]:
    """Read train and every dev split, whose names are returned, and fit the labels; DataError
    if most of a dev set is also in train.
    """
    devs = task.splits.devs
    task.fit_labels(train := task.read("train"))
    task.describe_known(train)
    for name in devs:
        task.fit_labels(examples := task.read(name))
        common, several = _count_known(train, examples), len(set(map(_content, examples))) >= FEW
        if several and 2 * common > len(examples):
            problem = (
                f"{common:,} of the {len(examples):,} examples of {name} stand in train with their"
                " label"
            )
            raise DataError(
                f"{problem}: a score on them says what was learnt by heart",
                file=task.splits.path,
                fix=(
                    "another dev set, or one file alone,"
                    " of which a share is held out: task.path=<train file>"
                ),
            )
    return devs


def describe_reading(reader: Any) -> list[str]:
    """One line for each note on how files were read, after the files that it is about."""
    files = defaultdict[str, list[str]](list)
    for file, note in getattr(reader, "notes", {}).items():
        files[note].append(file)
    return [f"{list_some(own)}: {note}" for note, own in files.items()]


def describe_skipped(reader: Any) -> str:
    """One line on the files in which rows were skipped, with each reason that `reader` knows once;
    "" without such rows.
    """
    known, usual = getattr(reader, "why", {}), getattr(reader, "leaves", "")
    rows = defaultdict[str, list[str]](list)
    for file, count in reader.skipped.items():
        if count:
            rows[known.get(file, usual)].append(f"{file}: {counted(count, 'row')}")
    return "; ".join(
        f"{', '.join(own)} passed over{f': {reason}' if reason else ''}"
        for reason, own in rows.items()
    )


def describe_empty(examples: Examples) -> str:
    """A sentence on examples with an empty text, or ""."""
    empty = [example for example in examples if has_empty_text(example)]
    return spell_empty(len(empty), len(examples), empty[0].place) if empty else ""


def spell_empty(empty: int, examples: int, first: str) -> str:
    """The sentence on so many of so many, of which the first stands at `first`."""
    several = f"{empty:,} of {examples:,} texts are empty"
    there = several if empty > 1 else f"1 of {counted(examples, 'text')} is empty"
    return f"{there}, the first {first}: its label says nothing"


def has_empty_text(example: Example) -> bool:
    """Whether a text of it, or all its words, have no letter; a text that each choice continues may
    have none.
    """
    if "choices" in example.fields and TEXTS[1] not in example.fields:
        return False
    texts = [value for role, value in example.fields.items() if role in TEXTS]
    if (words := example.fields.get("words")) is not None:
        texts.append("".join(map(str, words)))
    return "" in [text.strip() for text in texts if isinstance(text, str)]


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """The frequency of each label or tag, where labels are names."""
    counts = Counter[str]()
    for example in examples:
        own = example.label if isinstance(example.label, list | tuple) else [example.label]
        counts.update(name for name in own if isinstance(name, str))
    return counts


def describe_single(examples: Examples) -> str:
    """A sentence on the classes with one example, or "". It is also "" if no class has more, as
    with numbers and texts.
    """
    counts = Counter(each.label for each in examples if isinstance(each.label, str))
    single = [label for label, count in counts.items() if count == 1]
    if not single or 2 * len(single) > len(counts):
        return ""
    named = f"{', '.join(single[:SHOWN])}{', ...' if len(single) > SHOWN else ''}"
    return f"{counted(len(single), 'label')} with a single example ({named}): too few to learn"
