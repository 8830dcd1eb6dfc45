"""How much of the text of a run do the files know from which it takes words, entities and facts?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from plmctl.core.errors import PlmctlError, collect, raise_all
from plmctl.data.loader import RowSource
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards
from plmctl.knowledge.known import TextSample
from plmctl.models.base import Model
from plmctl.noise.base import Chain
from plmctl.objectives.base import Objective
from plmctl.text.vocab import Vocab

PIECES = 16  # pieces of a text, in which words are counted


def describe_known(
    source: RowSource, model: Model, objective: Objective, vocab: Vocab
) -> list[str]:
    """A line of each part that knows something of the text of a source.

    Raises:
        DataError: A part knows nothing of it; one message names several parts.
    """
    parts: list[Any] = [*model.backbone.modules(), *objective.modules()]
    parts += source.noise.noises if isinstance(source.noise, Chain) else []
    knowing = [part for part in dict.fromkeys(parts) if hasattr(part, "describe_known")]
    if not knowing:
        return []
    shards = [reader.shards for reader, _ in source.reader.corpora("").values()]
    text = take_sample(shards, vocab)
    lines: list[str] = []
    errors: list[PlmctlError] = []
    for part in knowing:
        with collect(errors):
            lines.append(part.describe_known(text))
    raise_all(errors)
    return [line for line in lines if line]


def describe_links(model: Model, marked: Callable[[str], bool]) -> list[str]:
    """A line if a part of a model lets tokens see tokens linked to them, and no token has links.

    Args:
        model: The model whose parts have patterns.
        marked: Whether any token of the text has a number in the track of this name.
    """
    patterns = [getattr(module, "pattern", None) for module in model.modules()]
    fields = {field for pattern in patterns for field in getattr(pattern, "links", ())}
    names = sorted(field.removeprefix("tracks.") for field in fields)
    if not names or any(map(marked, names)):
        return []
    listed = ", ".join(names)
    return [
        f"no edges: no token of this text has a number in {listed}, so that in the graph each sees"
        f" itself alone (data.tags=[{listed}] reads them from marked text)"
    ]


def has_marks(source: RowSource, name: str) -> bool:
    """Whether the format of a source gives the track, or the text has numbers in it."""
    readers = [reader for reader, _ in source.reader.corpora("").values()]
    return any(
        f"tracks.{name}" in reader.format.provides
        or (name in reader.shards.tracks and bool(np.any(reader.shards.tracks[name])))
        for reader in readers
    )


def take_sample(corpora: list[Shards], vocab: Vocab) -> TextSample:
    """Pieces of the text of each corpus, and all of its mentions of entities."""
    mentions = list(_find_mentions(corpora))
    return TextSample(
        vocab,
        np.concatenate([sample_corpus(shards.ids, pieces=PIECES) for shards in corpora]),
        np.concatenate([documents for documents, _ in mentions]),
        np.concatenate([entities for _, entities in mentions]),
        {
            name: np.concatenate([np.asarray(each.spans[name].id) for each in corpora])
            for name in (corpora[0].spans if corpora else ())
            if name != "entity" and all(name in each.spans for each in corpora)
        },
    )


def _find_mentions(corpora: list[Shards]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(document, entity) of the mentions of each corpus."""
    before = 0
    for shards in corpora:
        documents = np.asarray(shards.sentences)[np.asarray(shards.documents)]
        start = entities = np.zeros(0, np.int64)
        if track := shards.spans.get("entity"):
            start, entities = np.asarray(track.start), np.asarray(track.id)
        yield before + np.searchsorted(documents, start, side="right") - 1, entities
        before += len(documents)
