"""Rows of heads that answer with labels: each goes with the name of its label, not with its
position.

Two models have the same labels in any order, and heads of published models have them in upper case,
or without names (LABEL_0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from plmctl.artifacts.loading import Source
from plmctl.config.build import class_of
from plmctl.core.errors import ConfigError
from plmctl.core.folding import fold_name
from plmctl.heads.base import Head
from plmctl.tasks.readers.label_codes import LabelNames, names_of, read_codes
from plmctl.tasks.readers.label_text import SETTING, spell_codes, spell_names
from plmctl.tasks.readers.tag_spelling import respell
from plmctl.tasks.record import cut

PUBLISHED = ("class", "tag", "types")  # heads whose names of labels a Hugging Face folder has
# names of rows in their order, or {name: what files call it}; None: the rows have none
Names = Sequence[str] | Mapping[str, str] | None


def facts_of(node: Mapping[str, Any], plugins: Sequence[str] = ()) -> Any:
    """The facts of a config's task, which its class states or one of its parts; None for a probe.

    Args:
        node: The node `task` of a config.
    """
    part = class_of(node, plugins)
    stated = getattr(part, "facts_from", None)
    return facts_of(node[stated], plugins) if stated else getattr(part, "facts", None)


def labels_of(config: Mapping[str, Any], plugins: Sequence[str] = ()) -> dict[str, Names]:
    """{head: the names of its rows} of heads that answer with labels, also of side tasks."""
    tasks = [(None, config.get("task") or {})]
    sides = (config.get("beside") or {}).values()
    tasks += [(side["heads"], side["task"]) for side in sides if "heads" in side]
    found: dict[str, Names] = {}
    for heads, node in tasks:
        if node.get("label_names") is not None:
            name = getattr(facts_of(node, plugins), "head", "")
            codes = {label: code for code, label in read_codes(node["label_names"]).items()}
            found[name if heads is None else heads[name]] = codes or names_of(node["label_names"])
    if not config.get("task"):
        own = [name for name in PUBLISHED if name in (config.get("heads") or {})]
        stated = config.get("labels")
        found |= dict.fromkeys(own, stated and names_of(stated))
    return found


def find_order(
    known: Names, wanted: Sequence[str] | Mapping[str, str], *, rows: int | None = None
) -> list[int] | None:
    """For each of the `wanted` labels its position among the `known` ones; None where these are
    others. Names that differ in case, spaces, - and _ alone are the same, and those of tags in how
    they spell the marks of entities. The names of one side may be the codes of the other.

    Args:
        rows: The number of rows of a head without names, LABEL_0, LABEL_1, ..., whose labels are
            numbers.
    """
    if known is None:
        known = [str(place) for place in range(rows or 0)]
    pairs = [([*known], [*wanted]), ([*known], _codes(wanted)), (_codes(known), [*wanted])]
    for pair in pairs:
        for fold in (list, respell, _fold):
            theirs, ours = [fold(names) for names in pair]
            if len({*theirs}) == len(theirs) and sorted(theirs) == sorted(ours):
                return [theirs.index(name) for name in ours]
    return None


def _codes(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    """The codes of labels in files, or their names where files have these."""
    return list(names.values() if isinstance(names, Mapping) else names)


def arrange(names: Sequence[str] | Mapping[str, str], known: Names) -> list[str]:
    """The names in the order of the `known` ones, where both are the same labels; else as they
    are.
    """
    order = None if known is None else find_order(known, names)
    own = [*names]
    return own if order is None else [own[order.index(n)] for n in range(len(order))]


def follow_labels(
    source: Source, wanted: Mapping[str, Names], *, stated: bool, say: Callable[[str], None]
) -> Source:
    """The source whose heads have their rows in the order of the `wanted` labels, without those of
    other labels, which are new; a line says so.

    Args:
        stated: the user wrote the names of the labels, which rows without names then have.
    """
    known, tensors = labels_of(source.config, source.plugins), dict(source.tensors)
    for head, names in wanted.items():
        own = [name for name in tensors if name.startswith(f"heads.{head}.")]
        rows = count_rows(source.config, head)
        if not own or names is None:
            continue
        theirs = known.get(head)
        order = find_order(theirs, names, rows=rows)
        if order is None and theirs is None and stated and rows == len(names):
            continue
        if order is None:
            axes = _axes(source, head)
            for name in own:
                if not axes or name.removeprefix(f"heads.{head}.") in axes:
                    tensors.pop(name)
            say(_describe_new(head, theirs, [*names], rows))
        elif order != sorted(order):
            tensors |= _permute(source, head, order)
            say(f"heads.{head}: its rows are put in the order of the labels here: {_list(names)}")
    return replace(source, tensors=tensors)


def with_order(source: Source, head: str, names: Sequence[str] | Mapping[str, str]) -> Source:
    """The source with the rows of a head in the order of `names`, which are its labels; itself
    where they are in this order, or are others.
    """
    known = labels_of(source.config, source.plugins).get(head)
    order = find_order(known, names, rows=count_rows(source.config, head))
    if order is None or known is None or [*known] == [*names]:
        return source
    config = dict(source.config)
    if config.get("task"):
        codes = _codes(known)
        own = {codes[place]: name for place, name in zip(order, names, strict=True)}
        coded = own if isinstance(known, Mapping) else [*names]
        config["task"] = {**config["task"], "label_names": coded}
    else:
        config["labels"] = list(names)
    if order != sorted(order):
        source = replace(source, tensors={**source.tensors, **_permute(source, head, order)})
    return replace(source, config=config)


def name_rows(
    stated: LabelNames | None,
    known: Names,
    rows: int | None,
    *,
    place: str,
    coded: Mapping[str, str] | None = None,
) -> tuple[list[str] | dict[str, str], str]:
    """(the names of the rows of a head in their order, with the codes of files where there are
    some; a line about them). They are the known names, or a user's names: the same ones in any
    order, or a new one for each row. `coded`: {code: name} of the task, which an error proposes.

    Raises:
        ConfigError: It has none and none are stated, or it has another number of rows.
    """
    own = None if known is None else names_of([*known])
    asked = None if stated is None else names_of(stated)
    codes = {name: code for code, name in read_codes(stated).items()}
    if asked is None and own is None:
        count = rows or 2
        allowed = (
            f"the names of the {count} labels of its head, in the order of its rows: {place} has"
            " none (LABEL_0, ...)"
        )
        fix = spell_names([str(number) for number in range(count)])
        if coded and len(coded) == count:
            fix = spell_codes(coded)
        raise ConfigError(SETTING, None, allowed, fix=fix)
    if asked is None:
        return _with_codes(own or [], codes, known), ""
    asked = arrange(asked, own)  # the same ones: each is where it was
    size = len(own) if own is not None else rows
    if size is not None and len(asked) != size:
        what = f": {_list(own)}" if own else ""
        allowed = f"{size} names, one for each row of the head of {place} in their order{what}"
        fix = spell_names(own or [str(number) for number in range(size)])
        raise ConfigError(SETTING, asked, allowed, fix=fix)
    said = f"{_list(own)} are called {_list(asked)} here ({SETTING})"
    return _with_codes(asked, codes, known), said if own not in (None, asked) else ""


def _with_codes(
    names: list[str], codes: Mapping[str, str], known: Names
) -> list[str] | dict[str, str]:
    """{code: name} by the codes of these names, or by the codes of known rows."""
    if codes:
        return {codes[name]: name for name in names}
    if isinstance(known, Mapping):
        return dict(zip(known.values(), names, strict=True))
    return names


def count_rows(config: Mapping[str, Any], head: str) -> int | None:
    """The number of labels of a head; None where it has no number of its own."""
    rows: int | None = ((config.get("heads") or {}).get(head) or {}).get("num_classes")
    return rows


def _fold(names: Sequence[str]) -> list[str]:
    return [fold_name(name) for name in names]


def _axes(source: Source, head: str) -> Mapping[str, Sequence[int]]:
    """{tensor of a head: its axes that have a block for each label}."""
    kind: Any = class_of(source.config["heads"][head], source.plugins)
    return kind.by_label if issubclass(kind, Head) else {}


def _permute(source: Source, head: str, order: Sequence[int]) -> dict[str, Tensor]:
    """The tensors of a head whose labels stand in another order."""
    axes, moved = _axes(source, head), {}
    for name, of_labels in axes.items():
        whole = f"heads.{head}.{name}"
        tensor = source.tensors.get(whole)
        if tensor is None:
            continue
        for axis in of_labels:
            size = tensor.shape[axis] // len(order)
            blocks = torch.tensor(order)[:, None] * size + torch.arange(size)
            tensor = tensor.index_select(axis, blocks.flatten())
        moved[whole] = tensor
    return moved


def _describe_new(head: str, theirs: Names, ours: Sequence[str], rows: int | None) -> str:
    if theirs is not None:
        return f"heads.{head} is new: its labels are {_list(theirs)}, and those here {_list(ours)}"
    count = "" if rows is None else f" {rows}"
    fix = spell_names(ours)
    line = f"heads.{head} is new: its{count} rows have no names (LABEL_0, ...)"
    return f"{line}; {fix} takes it, in the order of its rows" if rows == len(ours) else line


def _list(names: Names) -> str:
    return cut(", ".join(names or ()), 160)
