"""The labelled half of `plmctl data check`: the files of a task, read as `plmctl finetune` reads
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.data.check import labels
from plmctl.data.check.finding import Finding, Report, Verdict, judge
from plmctl.data.check.labels import LabelledExample
from plmctl.tasks import inference
from plmctl.tasks.cleaned import can_clean, group_near
from plmctl.tasks.readers import files
from plmctl.tasks.readers.label_text import describe_names
from plmctl.tasks.readers.merged_labels import MERGED, propose_table
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.bundles import KNOWN
from plmctl.tasks.splits import Splits, count_common_bundles, describe_bundles
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer

# findings on rows that `plmctl data clean` leaves out
DROPPED = {"broken rows", "duplicate examples", "contradictory labels", "empty texts"}
BATCH = 1024  # examples laid out at once
WHOLE = (
    "The score does not say how new bundles are answered: put the rows into one file, of which"
    " plmctl finetune holds out whole bundles. Ids that begin anew in each file name no bundles."
)


def check_task(task: Task, tokenizer: Tokenizer | None) -> Report:
    """The report on all splits that `task.path` has; lengths in tokens where there is a
    tokenizer.
    """
    divided, held, task.splits = task.splits, task.splits.held_share, task.splits.whole()
    reader: Any = task.splits.reader
    strict = not getattr(reader, "lenient", True)
    if strict:  # all rows that cannot be read are named, with the findings on the others
        reader.lenient = True
    names = (
        ["train"]
        if files.is_single(task.splits.path)
        else [name for name in task.splits.reader.splits if task.splits.has(name)]
    )
    # without train, reading it says what is there instead
    read = dict.fromkeys([*names, "train"] if names != ["train"] else names)
    splits = _leave_repeated({name: task.read(name) for name in read})

    def measure(examples: Sequence[LabelledExample]) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            _count_tokens(task, examples[start : start + BATCH], tokenizer)
            for start in range(0, len(examples), BATCH)
        ]
        return np.concatenate([part[0] for part in parts]), np.concatenate(
            [part[1] for part in parts]
        )

    how = measure if tokenizer else None
    report = labels.check(
        str(task.splits.path),
        splits,
        measure=how,
        skipped=task.splits.reader.skipped,
        classes=task.facts.has_classes,
        remarks=task.remarks,
        held_share=held,
    )
    report.findings.extend(_judge_near(splits) if can_clean(task) else ())
    counts = inference.count_labels(example for own in splits.values() for example in own)
    report.findings.extend(
        Finding("names of labels", "look", line, "Correct the spelling, if they are.")
        for line in (describe_names(counts) if task.facts.has_classes else ())
    )
    report.findings.extend(
        Finding("scores", "look", f"{name}: {line}", "You may want other metrics.")
        for name, examples in splits.items()
        if (line := task.describe_scoring(examples))
    )
    advice = "Correct the lines, or train without them: task.reader.lenient=true"
    left_out = inference.describe_skipped(reader)
    verdict: Verdict = "bad" if strict else "look"
    report.findings[1:1] = [Finding("broken rows", verdict, left_out, advice)] if left_out else []
    if divided.names_bundles:
        report.findings[1:1] = _judge_bundles(divided, splits)
    report.findings.extend(
        Finding("header", "ok", line) for line in inference.describe_reading(task.splits.reader)
    )
    report.findings.extend([*_propose_cleaning(task, report.findings, counts)])
    return report


def _propose_cleaning(
    task: Task, findings: Sequence[Finding], counts: Mapping[str, int]
) -> Iterator[Finding]:
    """The commands that mend a table with such findings."""
    reader: Any = task.splits.reader
    if not can_clean(task):
        return
    if hasattr(reader, "merged") and (table := propose_table(counts)):
        found = "a table may say which labels count as one"
        yield Finding("alike labels", "look", found, f"{table}  # {MERGED}")
    if DROPPED & {each.name for each in findings if each.verdict != "ok"}:
        found = "copies, contradictory labels, empty texts and broken rows can go"
        yield Finding(
            "cleaning", "look", found, "plmctl data clean shows them, with the same task."
        )


def _judge_bundles(divided: Splits, splits: Mapping[str, Examples]) -> Iterator[Finding]:
    """A finding on the bundles of train and of each other split, also of one that is held out."""
    parts, who = {name: own for name, own in splits.items() if name != "train"}, ""
    train: Examples = splits["train"]
    if divided.divided:
        train, who = divided.read("train"), "plmctl finetune has "
        parts |= {name: divided.read(name) for name in divided.divided if divided.has(name)}
        del parts["train"]
    for name, own in parts.items():
        if line := describe_bundles(train, own, name):
            known = count_common_bundles(train, own)
            yield judge(
                "bundles", who + line, known, look=0, bad=0, advice=WHOLE, numbers={KNOWN: known}
            )


def _judge_near(splits: Mapping[str, Examples]) -> Iterator[Finding]:
    """A finding on near copies in several splits, by the rule of `data dedup`."""
    if len(splits) < 2:
        return
    groups = group_near([each for own in splits.values() for each in own])
    first: dict[int, tuple[str, str]] = {}
    pairs: dict[str, list[list[str]]] = {name: [] for name in splits if name != "train"}
    for name, own in splits.items():
        for each in own:
            other, place = first.setdefault(groups[each.place], (name, each.place))
            if other != name:
                pairs[name].append([each.place, place])
    said = ", ".join(f"{name} {len(own):,} of {len(splits[name]):,}" for name, own in pairs.items())
    shown = next((f": {own[0][0]} and {own[0][1]}" for own in pairs.values() if own), "")
    yield judge(
        "near copies across parts",
        f"{said} have one in an earlier part{shown}",
        max(len(own) / max(1, len(splits[name])) for name, own in pairs.items()),
        look=0,
        bad=0.05,
        advice="Scores count what the model has nearly seen: plmctl data clean, from one table,"
        " leaves near copies in one part.",
        numbers={name: {"count": len(own), "places": own[:20]} for name, own in pairs.items()},
    )


def _leave_repeated(splits: Mapping[str, list[Example]]) -> dict[str, list[Example]]:
    """The splits without those of the same lines as one before: a file may have two names."""
    places = {name: tuple(each.place for each in own) for name, own in splits.items()}
    first = dict(zip(reversed(places.values()), reversed(places), strict=True))
    return {name: own for name, own in splits.items() if first[places[name]] == name}


def _count_tokens(
    task: Task, examples: Sequence[LabelledExample], tokenizer: Tokenizer | None
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, tokens that are cut off) of each example, over all of its rows."""
    bare = [replace(example, label=None) for example in examples if isinstance(example, Example)]
    rows = task.encode(bare, tokenizer)
    owner = rows.values["example"]
    cut = rows.values["cut"] + rows.values.get("question_cut", 0)
    lost = np.bincount(owner, cut, len(bare)).astype(np.int64)
    length = np.sum([seq.length for seq in rows.seqs.values()], axis=0)
    return lost + np.bincount(owner, length, len(bare)).astype(np.int64), lost
