"""The numbers of labels, and the error for a label that training has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from plmctl.core.batch import IGNORE
from plmctl.core.errors import DataError, did_you_mean, find_meant, list_some
from plmctl.core.folding import fold_name
from plmctl.core.terminal import counted
from plmctl.tasks.readers.label_text import SETTING, spell_names
from plmctl.tasks.readers.merged_labels import MERGED, write_table
from plmctl.tasks.record import cut


def label_ids(
    labels: Iterable[tuple[str, str]],
    names: Sequence[str],
    *,
    learned: bool = False,
    merged: bool = False,
    missed: Collection[str] = (),
) -> list[int]:
    """The numbers of (label, file:line) pairs; DataError for a label that is not in training.

    Args:
        missed: Labels without a number, by `find_new`: they have `IGNORE`.
        learned: the names are those of the training split, which can have no others.
        merged: a table may say which labels count as one (`merged_by`).
    """
    ids, labels = dict.fromkeys(missed, IGNORE), list(labels)
    ids |= {name: number for number, name in enumerate(names)}
    place = next((place for label, place in labels if label not in ids), None)
    if place is not None:
        raise _explain_unknown(
            [str(label) for label, _ in labels if label not in missed],
            names,
            place,
            learned=learned,
            merged=merged,
        )
    return [ids[label] for label, _ in labels]


def find_new(labels: Collection[str], names: Sequence[str]) -> Counter[str]:
    """How many rows have each label that a model lacks. A label that looks like a misspelt name is
    none; where no row has a known label, none is.
    """
    counts, folded = Counter(labels), {fold_name(name) for name in names}
    if counts.keys().isdisjoint(names):
        return Counter()
    return Counter(
        {
            label: count
            for label, count in counts.items()
            if label not in names
            and fold_name(label) not in folded
            and not _find_misspelt(label, names)
        }
    )


def describe_new(new: Counter[str], rows: int) -> str:
    """A sentence on such rows; "" without any."""
    if not new:
        return ""
    named = list_some([f"'{cut(label, 60)}'" for label in sorted(new)])
    what = f"{new.total():,} of {counted(rows, 'row')}"
    have = "has a label" if new.total() == 1 else "have a label"
    return f"{what} {have} that the model lacks: {named}; they count as wrong, the loss lacks them"


def _explain_unknown(
    labels: Sequence[str], names: Sequence[str], place: str, *, learned: bool, merged: bool
) -> DataError:
    """The error for the first of the labels that is none of the names."""
    found = dict.fromkeys(labels)
    label = next(label for label in found if label not in names)
    others = {fold_name(each): each for each in found if each not in names}
    alike = {name: [each for each in found if fold_name(each) == fold_name(name)] for name in names}
    meant = next((name for name in names if fold_name(name) == fold_name(label)), None)
    fix, what = "correct the label, or train on data that has it", "was never seen in training"
    if not learned:
        fix, what = f"correct the label, or name it, too: {SETTING}", f"is none of {SETTING}"
    if meant is not None:
        what = f"differs from '{meant}' in case, spaces, - or _ alone"
        fix = f"spell it '{meant}'"
        if merged and any(
            len(each) > 1 for each in alike.values()
        ):  # a name cannot have two spellings
            rows = [(old, name) for name, olds in alike.items() for old in olds if old != name]
            fix = f"{write_table(rows)}  # {MERGED}"
        elif not learned:
            fix = spell_names([others.get(fold_name(name), name) for name in names])
    elif not learned and _are_numbered(found, names):
        what = "is none of the rows of the head, whose names may be others"
        fix = f"{spell_names(sorted(found))}, if these stand for {', '.join(names)} in this order"
    elif not learned and (near := _find_misspelt(label, names)) and near not in found:
        what = f"is none of the names in {SETTING}, or of the head's"
        fix = spell_names([label if name == near else name for name in names])
    elif merged and (near := _find_misspelt(label, names)):
        fix = f"{write_table([(label, near)])}  # {MERGED}"
    known = cut(", ".join(names), 160)
    hint = "" if meant is not None else did_you_mean(filter(None, [_find_misspelt(label, names)]))
    return DataError(f"label '{cut(label, 60)}' {what}{hint}; known: {known}", file=place, fix=fix)


def _are_numbered(found: Collection[str], names: Sequence[str]) -> bool:
    """Whether one side has the numbers 0, 1, ... of all rows, and the other side as many words."""
    numbers = {*map(str, range(len(names)))}
    apart = len(found) == len(names) and {*found}.isdisjoint(names)
    return apart and numbers in ({*found}, {*names})


def _find_misspelt(label: str, names: Sequence[str]) -> str:
    """The name that a label misspells, or "": a number is none of a similar one."""
    return "" if label.isdecimal() else find_meant(label, names)
