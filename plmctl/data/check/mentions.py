"""How much of the tokens is known: the marks of a token directory, and the entities they mean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.data.check.finding import Finding, format_percent, judge
from plmctl.data.shards import Shards, SpanTrack
from plmctl.knowledge.directory import FILE, KnowledgeDirectory, refuse_other_knowledge

SHOWN = 5  # types that a line names


def check_mentions(train: Shards) -> list[Finding]:
    """Findings on each track of marks; none for tokens without any."""
    findings = [_measure_coverage(name, track, train) for name, track in train.spans.items()]
    if train.spans and (left := train.manifest.get("left_out")):
        findings.append(_count_left_out(left, train))
    if (stated := train.manifest.get("knowledge")) and "entity" in train.spans:
        findings += _check_entities(Path(stated["path"]), train)
    return findings


def _measure_coverage(name: str, track: SpanTrack, train: Shards) -> Finding:
    """The share of documents and tokens that marks cover."""
    edges = np.asarray(train.sentences)[np.asarray(train.documents)]
    home = np.searchsorted(edges, np.asarray(track.start), side="right") - 1
    documents = len(np.unique(home)) / max(1, len(edges) - 1)
    tokens = int(np.asarray(track.length).sum()) / max(1, len(train.ids))
    per_mention = int(np.asarray(track.length).sum()) / max(1, len(track.start))
    return judge(
        f"mentions ({name})",
        f"{len(track.start):,} marks of {per_mention:.1f} tokens: {format_percent(documents)} of"
        f" the documents have one, {format_percent(tokens)} of the tokens are in one",
        -tokens,
        look=-0.005,
        bad=-1e-9,
        advice="Few tokens are in a mention: a model learns little of them.",
        numbers={"mentions": len(track.start), "documents": documents, "tokens": tokens},
    )


def _count_left_out(left: dict[str, int], train: Shards) -> Finding:
    """The numbers of marks that tokenizing left out, and of the others."""
    kept = sum(len(track.start) for track in train.spans.values())
    lost = sum(left.values())
    reasons = "; ".join(f"{count:,} {why}" for why, count in left.items() if count)
    return judge(
        "marks left out",
        f"{format_percent(lost / max(1, lost + kept))}: {reasons or 'none'}",
        lost / max(1, lost + kept),
        look=0.02,
        bad=0.3,
        advice="Tokens cover whole marks inside one sentence; another data.lines may keep more.",
        numbers=dict(left),
    )


def _check_entities(folder: Path, train: Shards) -> list[Finding]:
    """Check that the ids of marks have meanings, if the directory exists."""
    if not (folder / FILE).is_file():
        advice = "Models that read entities need it; copy it there, or tokenize again."
        return [Finding("entities", "look", f"{folder} is not there", advice)]
    known = KnowledgeDirectory(folder)
    try:
        refuse_other_knowledge(train.manifest, known)
    except DataError as error:
        advice = "Tokenize its text.jsonl again: the ids mean other entities now."
        return [Finding("entities", "bad", error.message, advice)]
    ids = np.asarray(train.spans["entity"].id)
    return [_judge_ids(ids, known), _count_types(ids, known)]


def _judge_ids(ids: np.ndarray, known: KnowledgeDirectory) -> Finding:
    """Entities that are mentioned, those without a name, and ids that are none."""
    beyond = int((ids >= len(known)).sum())
    unnamed = sum(known.problems.values())
    found = f"{len(np.unique(ids)):,} of {len(known):,} are mentioned"
    found += f"; {unnamed:,} without a name" if unnamed else ""
    found += f"; {beyond:,} marks have an id that no entity has" if beyond else ""
    advice = "; ".join(known.describe_problems()) or "Tokenize the text.jsonl of this directory."
    return judge(
        "entities",
        found,
        2 * bool(beyond) + bool(unnamed),
        look=0,
        bad=1,
        advice=advice,
        numbers={"entities": len(known), "without a name": unnamed, "unknown ids": beyond},
    )


def _count_types(ids: np.ndarray, known: KnowledgeDirectory) -> Finding:
    """Mentions by type, mentions and entities without one, and types with a single member."""
    counts = np.bincount(ids[ids < len(known)], minlength=len(known))
    by_type: Counter[str] = Counter()
    for entity in np.flatnonzero(counts).tolist():
        for kind in known.types[entity]:
            by_type[kind] += int(counts[entity])
    typed = np.array([bool(kinds) for kinds in known.types])
    untyped = int(counts[~typed].sum()) / max(1, int(counts.sum()))
    alone = [kind for kind, members in known.members.items() if len(members) == 1]
    shown = ", ".join(f"{kind} {count:,}" for kind, count in by_type.most_common(SHOWN))
    numbers: dict[str, Any] = {
        "mentions": dict(by_type.most_common()),
        "mentions without a type": untyped,
        "entities without a type": int((~typed).sum()),
        "types": len(known.members),
        "types with one member": len(alone),
    }
    return judge(
        "types",
        f"{len(known.members):,} types ({len(alone):,} with one member): {shown or 'none'};"
        f" {format_percent(untyped)} of the mentions have none",
        untyped,
        look=0.5,
        bad=0.95,
        advice=(
            "Replaced entities and typing need types: plmctl data link type_table=<name, type>,"
            " or types=[categories] of an export with the pages of these entities."
        ),
        numbers=numbers,
    )
