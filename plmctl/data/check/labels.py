"""The check of labelled data: balance of the labels, copies, contradictions, leakage between
splits, examples that are too long.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from plmctl.core.errors import DataError, list_some
from plmctl.core.folding import fold_name
from plmctl.core.terminal import counted
from plmctl.data.check.characters import CharacterCounts, judge_characters, judge_markup
from plmctl.data.check.finding import (
    Finding,
    LengthHistogram,
    Report,
    format_percent,
    judge,
    shorten,
)
from plmctl.text.hanzi import find_form
from plmctl.text.letters import normalize_spaces
from plmctl.text.markup import is_html
from plmctl.text.segmented import count_words
from plmctl.text.sentences import CJK

_HAN = re.compile(f"[{CJK}]")
SKIPPED = ("answers", "places", "source")  # fields that belong to the label, or say words again
_FEW = 10  # a label with fewer examples can hardly be learnt
LABELS = 20  # labels that a line names
_LITTLE = 200  # examples
_BATCH = 4096  # examples whose characters are counted together
_SCORES = 20  # so many different numbers, or more, are a scale and not classes


class LabelledExample(Protocol):
    """The part of `plmctl.tasks.record.Example` that this check needs."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Its texts, by the names of the task's columns."""
        ...

    @property
    def label(self) -> Any:
        """Its label; None if it has none."""

    @property
    def place(self) -> str:
        """file:line, for messages."""
        ...


Labelled = TypeVar("Labelled", bound=LabelledExample)
Key = tuple[str, ...]  # the texts that make two examples copies
Splits = Mapping[str, Sequence[LabelledExample]]
# (tokens, tokens cut off) of each example
Measure = Callable[[Sequence[LabelledExample]], tuple[np.ndarray, np.ndarray]]


def check(
    path: str,
    splits: Splits,
    *,
    measure: Measure | None = None,
    skipped: Mapping[str, int] | None = None,
    classes: bool = True,
    remarks: Sequence[str] = (),
    held_share: float = 0.0,
) -> Report:
    """Check the splits of a labelled set.

    Args:
        path: The user's name of the set.
        splits: examples by split, `train` first.
        measure: the tokens and cut tokens of examples, by the task's own format.
        skipped: broken rows that were left out, by file.
        classes: False if labels are texts, which examples need not share.
        remarks: further findings of the task on its files.
        held_share: the share of `train` that fine-tuning validates on, where dev has no file.

    Raises:
        DataError: if there is no training split.
    """
    train = splits.get("train")
    if not train:
        problem = "there is no training split"
        raise DataError(problem, file=path, fix="name the files: task.path=[<train>,<dev>,<test>]")
    keys = {name: [find_key(example) for example in examples] for name, examples in splits.items()}
    lengths = LengthHistogram()
    lengths.add([_words(example) for example in train])
    findings = [
        _sizes(splits, skipped or {}, held_share),
        *(_balance(splits) if classes else []),
        *_copies(splits, keys),
    ]
    findings += [
        Finding("files", "look", remark, "Correct these in the file, or leave them out.")
        for remark in remarks
    ]
    findings += [_leak(name, splits, keys) for name in splits if name != "train"]
    findings += _judge_texts([example for own in splits.values() for example in own])
    chinese = any(_HAN.search(text) for example in train for text in _texts(example))
    unit = "words or Chinese characters" if chinese else "words"
    if measure:
        tokens, cut = measure(train)
        lengths, unit = LengthHistogram(), "tokens"
        lengths.add(tokens)
        findings.append(_long(tokens, cut, train))
    half, most = lengths.quantile(0.5), lengths.quantile(0.95)
    summary = f"half below {half:,} {unit}, 95% below {most:,}, the longest {lengths.largest:,}"
    findings.append(
        Finding(
            "lengths", "ok", summary, numbers={"50%": half, "95%": most, "largest": lengths.largest}
        )
    )
    return Report(path, "labelled", findings, lengths, unit)


def _judge_texts(examples: Sequence[LabelledExample]) -> list[Finding]:
    """The findings on the texts themselves, as raw text has them."""
    characters = CharacterCounts()
    html = [each.place for each in examples if any(map(is_html, _texts(each)))]
    for start in range(0, len(examples), _BATCH):
        batch = examples[start : start + _BATCH]
        characters.add("\n".join(text for example in batch for text in _texts(example)))
    words = sum(map(_words, examples))
    found = judge_characters(characters, words, segmented=False)
    return [*found, judge_markup(len(html), len(examples), (html or [""])[0], "examples", ".")]


def find_key(example: LabelledExample) -> Key:
    """All that a model reads, without regard to case and white space."""
    return tuple(normalize_spaces(text.casefold()) for text in _texts(example))


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _words(example: LabelledExample) -> int:
    return sum(map(count_words, _texts(example)))


def _texts(example: LabelledExample) -> list[str]:
    """All that a model reads of an example."""
    return [_text(value) for name, value in example.fields.items() if name not in SKIPPED]


def _sizes(splits: Splits, skipped: Mapping[str, int], held_share: float) -> Finding:
    summary = ", ".join(f"{name} {len(examples):,}" for name, examples in splits.items())
    left = sum(skipped.values())
    rows = f"{counted(left, 'broken row')} {'is' if left == 1 else 'are'}"
    numbers = {**{name: len(examples) for name, examples in splits.items()}, "passed over": left}
    dev = held_share > 0 or any(name.startswith("dev") for name in splits)
    held = f", of which plmctl finetune holds out {held_share:.0%}" if held_share else ""
    few = f"fewer than {_LITTLE} examples to learn from" if len(splits["train"]) < _LITTLE else ""
    lacks = " and ".join(filter(None, [few, "" if dev else "none to validate on"]))
    return judge(
        "size",
        summary + held + (f"; {rows} left out" if left else ""),
        bool(lacks),
        look=0.5,
        bad=2,
        numbers=numbers,
        advice=f"{lacks.capitalize()}: scores vary by chance.",
    )


def _balance(splits: Splits) -> list[Finding]:
    labels = {name: _labels(examples) for name, examples in splits.items()}
    train, first = labels["train"], splits["train"][0]
    if not train:
        return [
            Finding(
                "labels",
                "bad",
                "the training split has none",
                "Name the column: task.columns.label=...",
            )
        ]
    if _is_scale(train):
        values = np.array([float(label) for label in train.elements()])
        summary = f"scores from {values.min():g} to {values.max():g}, mean {values.mean():.2f}"
        return [Finding("labels", "ok", summary, numbers={"mean": float(values.mean())})]
    classes = isinstance(first.label, str) and "answers" not in first.fields
    return _judge_classes(labels, one_each=classes)


def _judge_classes(labels: Mapping[str, Counter[str]], *, one_each: bool) -> list[Finding]:
    """Findings on labels that are classes.

    Args:
        labels: The number of examples of each label, by split.
        one_each: an example has one class, so that always predicting the same one can be right.
    """
    train = labels["train"]
    share = train.most_common(1)[0][1] / train.total() if one_each else 0.0
    rare = sorted(label for label, count in train.items() if count < _FEW)
    shares = [f"{label} {format_percent(n / train.total())}" for label, n in train.most_common()]
    summary = list_some(shares, LABELS) + ("; --json lists all" if len(train) > LABELS else "")
    few = f": {list_some(rare, LABELS)}" if rare else ""
    alike = find_alike_labels(rare, train)
    few += "".join(f"; {label} may be {' or '.join(others)}" for label, others in alike.items())
    unseen = {name: sorted(set(counts) - set(train)) for name, counts in labels.items()}
    strange = {name: counts for name, counts in unseen.items() if counts}
    return [
        judge(
            "labels",
            f"{len(train)}: {summary}",
            share,
            look=0.85,
            bad=0.99,
            advice=(
                f"Always predicting '{train.most_common(1)[0][0]}' is right that often: judge by"
                " macro F1, not by accuracy."
            ),
            numbers={name: dict(counts) for name, counts in labels.items()},
        ),
        judge(
            "rare labels",
            f"{len(rare)} with fewer than {_FEW} examples{few}",
            len(rare),
            look=0,
            bad=max(1, len(train) / 2),
            advice="Too few to learn or to score: merge them, drop them, or collect more.",
            numbers={"labels": rare, "alike": alike},
        ),
        Finding(
            "labels that train lacks",
            "bad" if strange else "ok",
            "; ".join(f"{name}: {list_some(counts, LABELS)}" for name, counts in strange.items())
            or "none",
            (
                "No model can learn them: correct the spelling, or split the data again."
                if strange
                else ""
            ),
            numbers=strange,
        ),
        *_find_unscored(labels),
    ]


def _find_unscored(labels: Mapping[str, Counter[str]]) -> list[Finding]:
    """A finding on the labels of train without an example in another split, if there are any."""
    lacking = {
        name: sorted(labels["train"].keys() - counts.keys())
        for name, counts in labels.items()
        if counts
    }
    found = {name: names for name, names in lacking.items() if names}
    said = "; ".join(f"{name}: {list_some(names, LABELS)}" for name, names in found.items())
    advice = "No score there says anything of these: plmctl data clean divides with all labels."
    return [Finding("labels of train alone", "look", said, advice, found)] if found else []


def find_alike_labels(rare: Sequence[str], known: Iterable[str]) -> dict[str, list[str]]:
    """{a rare label: the others that it may be}: equal but for case, width, spaces and dashes, or
    with characters of simplified text where the other has those of traditional text.
    """
    names = {label: fold_name(label) for label in known}
    found = {
        label: sorted(
            other
            for other, name in names.items()
            if other != label and (name == names[label] or _differ_in_form(name, names[label]))
        )
        for label in rare
    }
    return {label: others for label, others in found.items() if others}


def _differ_in_form(one: str, other: str) -> bool:
    """Whether two texts may be the same in simplified and in traditional characters."""
    different = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    forms = {(find_form(a), find_form(b)) for a, b in different}
    same = forms in ({("simplified", "traditional")}, {("traditional", "simplified")})
    return len(one) == len(other) and same


def _labels(examples: Sequence[LabelledExample]) -> Counter[str]:
    """How often each class or tag occurs, also of several for one example, or whether there is an
    answer.
    """
    counts = Counter[str]()
    for example in examples:
        if "answers" in example.fields:
            counts["answer" if example.fields["answers"] else "no answer"] += 1
        elif isinstance(example.label, list | tuple):
            counts.update(example.label)
        elif example.label is not None:
            counts[str(example.label)] += 1
    return counts


def _is_scale(labels: Counter[str]) -> bool:
    if len(labels) < _SCORES:
        return False
    try:
        return all(np.isfinite(float(label)) for label in labels)
    except ValueError:
        return False


def group_copies(examples: Sequence[Labelled], keys: Sequence[Key]) -> list[list[Labelled]]:
    """The examples of each key, in the order of their first ones."""
    found: dict[Key, list[Labelled]] = defaultdict(list)
    for key, example in zip(keys, examples, strict=True):
        found[key].append(example)
    return [*found.values()]


def is_disputed(group: Sequence[LabelledExample]) -> bool:
    """Whether equal texts have several labels, which differ by more than their spelling."""
    return len({fold_name(repr(example.label)) for example in group}) > 1


def _copies(splits: Splits, keys: Mapping[str, list[Key]]) -> list[Finding]:
    train = keys["train"]
    # empty texts have a finding of their own, as have contradictory ones
    groups = [own for own in group_copies(splits["train"], train) if all(find_key(own[0]))]
    disputed = [group for group in groups if is_disputed(group)]
    repeated = sum(len(group) - 1 for group in groups if not is_disputed(group))
    examples, texts = sum(map(len, disputed)), counted(len(disputed), "text")
    shown = f": {_place(disputed[0][0])} and {_place(disputed[0][1])}" if disputed else ""
    empty = [example for key, example in zip(train, splits["train"], strict=True) if not all(key)]
    return [
        judge(
            "duplicate examples",
            f"{repeated:,} of train ({format_percent(repeated / len(train))}) are copies, but for"
            " case",
            repeated / len(train),
            look=0.01,
            bad=0.2,
            numbers={"count": repeated},
            advice="Copies count more than the rest: drop them unless you want that.",
        ),
        judge(
            "contradictory labels",
            f"{examples:,} rows of train ({texts}) have a copy whose label differs by more than its"
            f" spelling{shown}",
            examples / len(train),
            look=0,
            bad=0.02,
            advice="Nothing can fit these: correct them or drop them.",
            numbers={
                "count": examples,
                "texts": len(disputed),
                "places": [[example.place for example in group] for group in disputed[:20]],
            },
        ),
        judge(
            "empty texts",
            f"{len(empty):,}" + (f", the first {_place(empty[0])}" if empty else ""),
            len(empty) / len(train),
            look=0,
            bad=0.01,
            advice="Drop them, or check task.columns.",
            numbers={"count": len(empty)},
        ),
    ]


def _leak(name: str, splits: Splits, keys: Mapping[str, list[Key]]) -> Finding:
    train = set(keys["train"])
    leaked = [
        example for key, example in zip(keys[name], splits[name], strict=True) if key in train
    ]
    share = len(leaked) / max(1, len(keys[name]))
    shown = (
        f", for one '{shorten(_text(next(iter(leaked[0].fields.values()))), 40)}'" if leaked else ""
    )
    return judge(
        f"{name} in train",
        f"{len(leaked):,} of {len(keys[name]):,} examples ({format_percent(share)}){shown}",
        share,
        look=0,
        bad=0.01,
        advice=(
            "The model has seen them in training: remove them from train, or the score is too high."
        ),
        numbers={
            "count": len(leaked),
            "share": share,
            "places": [example.place for example in leaked[:20]],
        },
    )


def _long(tokens: np.ndarray, cut: np.ndarray, train: Sequence[LabelledExample]) -> Finding:
    share, lost = float((cut > 0).mean()), int(cut.sum()) / max(1, int(tokens.sum()))
    longest = train[int(tokens.argmax())]
    return judge(
        "over-long examples",
        f"{format_percent(share)} of train are cut at max_length or max_query,"
        f" {format_percent(lost)} of the tokens; the"
        f" longest has {int(tokens.max()):,} ({_place(longest)})",
        share,
        look=0.02,
        bad=0.5,
        advice=(
            "Raise task.max_length as far as the model allows,"
            " or shorten the texts where they matter least."
        ),
        numbers={"share": share, "lost": lost, "longest": int(tokens.max())},
    )


def _place(example: LabelledExample) -> str:
    return str(example.place)
