"""The published class of a model: by the heads that ours has, or by the tensors of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.core.errors import ConfigError, DataError, list_some
from plmctl.heads.features import BEFORE_HEADS
from plmctl.interop.family import Architecture, Family
from plmctl.interop.names import Weights

ROW_HEADS = (  # whichever family the backbone is of
    "fine-tune with a head that a published class has: heads.class.dense=true"
    " heads.class.activation=gelu (ELECTRA's), heads.class.dense=true (RoBERTa's), or with the"
    " pooler (BERT's, ALBERT's)"
)


def architecture_for(family: Family, heads: Sequence[str]) -> tuple[Architecture, list[str]]:
    """(the class that holds most of `heads`, the heads it leaves out)."""
    between = [name for name in BEFORE_HEADS if name in heads]
    if between:
        fix = (
            "fine-tune with features=last head_encoder=none,"
            " or keep the run as it is: plmctl.load reads it"
        )
        allowed = (
            f"null: no class of {family.model_type} has anything between the last layer and its"
            " heads"
        )
        raise ConfigError(f"heads.{between[0]}", ", ".join(heads), allowed, fix=fix)
    architecture = next(a for a in family.architectures if set(a.heads) <= set(heads))
    if "pooler" in heads and not architecture.bare:
        architecture = with_pooler(family, architecture)
    lost = [name for name in heads if name not in architecture.heads]
    if lost and architecture.bare:
        able = [a for a in family.architectures if lost[0] in a.heads]
        needs = (
            "; ".join(f"{a.name} has {', '.join(a.heads)}" for a in able)
            or f"no class of {family.model_type} has such a head"
        )
        rows = dict.fromkeys(("class", "score"), ROW_HEADS)
        fix = {**rows, **family.remedies}.get(
            lost[0], "keep the run as it is: plmctl.load reads it"
        )
        allowed = f"heads that a published class has: {needs}"
        raise ConfigError(f"heads.{lost[0]}", ", ".join(heads), allowed, fix=fix)
    return architecture, lost


def architecture_of(family: Family, name: str | None, tensors: Weights) -> Architecture:
    """The class called `name` (None: any), or one with more heads if their tensors exist.

    (The released bert-base is called BertForMaskedLM and has the pooler and the next-sentence
    head.)
    """
    # with the names of the bare class
    plain = {key.removeprefix(family.prefix): tensor for key, tensor in tensors.items()}
    known = [a for a in family.architectures if name in (None, a.name)]
    matching = next((a for a in known if a.in_file(plain if a.bare else tensors)), None)
    if matching is None:
        absent = [part for part in known[0].tensors if part not in tensors]
        problem = f"{name} without its tensors {list_some(absent)}"
        raise DataError(problem, fix="check that the download is complete")
    more = [
        a
        for a in family.architectures
        if set(matching.heads) < set(a.heads) and not matching.bare and a.in_file(tensors)
    ]
    architecture = max([matching, *more], key=lambda a: len(a.heads))
    # a head of rows in a class without a pooler reads none: released RoBERTa has a spare one
    unpooled = not {"class", "score", "choice"}.isdisjoint(architecture.heads)
    carried = not (architecture.bare or unpooled) and all(
        family.prefix + part in tensors for rule in family.pooler for part in rule.theirs
    )
    return with_pooler(family, architecture) if carried else architecture


def bare_in(family: Family, tensors: Weights) -> Architecture:
    """The backbone alone, or with its pooler, whichever is in `tensors` (without prefix)."""
    return next(a for a in family.architectures if a.bare and a.in_file(tensors))


def with_pooler(family: Family, architecture: Architecture) -> Architecture:
    """`architecture` with the family's pooler in addition to its own heads."""
    if not family.pooler or "pooler" in architecture.heads:
        return architecture
    rules = [
        replace(rule, theirs=tuple(family.prefix + name for name in rule.theirs))
        for rule in family.pooler
    ]
    return replace(
        architecture, heads=(*architecture.heads, "pooler"), rules=[*architecture.rules, *rules]
    )
