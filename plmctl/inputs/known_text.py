"""Are the files there from which a run knows words, entities and facts, and how much of its text do
they know?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import nn

from plmctl.config.build import MISSING
from plmctl.config.spec import RunSpec, thaw
from plmctl.config.walks import all_parts_in
from plmctl.core.errors import PlmctlError, collect, raise_all
from plmctl.core.locate import locate, parameters
from plmctl.data.loader import RowSource
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards
from plmctl.knowledge.known import TextSample
from plmctl.models.base import Model
from plmctl.noise.base import Chain
from plmctl.objectives.base import Objective
from plmctl.text.vocab import Vocab

PIECES = 16  # of a text, in which words are counted


def check_opened(spec: RunSpec) -> None:
    """Raise for every file that a part of a spec will open (its class says in `opens` which) and
    that is not there.

    Of a model that starts from another one, tables that a lexicon fills come with the weights.
    """
    errors: list[PlmctlError] = []
    begun = spec.provenance.resume or spec.get("init") or spec.get("checkpoint")
    for path, node in all_parts_in(thaw(spec)):
        try:
            part = locate(node["_target_"], spec.plugins)
        except ValueError:
            continue  # told by the check of its slot
        is_module = isinstance(part, type) and issubclass(part, nn.Module)
        if begun and path.startswith("model.") and not is_module:
            continue
        known = parameters(part)
        for name, confirm in getattr(part, "opens", {}).items():
            given = node.get(name, known[name].default if name in known else MISSING)
            if given != MISSING:
                with collect(errors):
                    confirm(given)
    raise_all(errors)


def describe_known(
    source: RowSource, model: Model, objective: Objective, vocab: Vocab
) -> list[str]:
    """A line of each part that knows something of the text of a source.

    Raises:
        DataError: a part knows nothing of it; several are told together.
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
    """A line where a part of a model lets tokens see those that are linked to them, and none is.

    Args:
        model: whose parts have patterns.
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
