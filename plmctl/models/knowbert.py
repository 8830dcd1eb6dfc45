"""KnowBERT's encoder (Peters et al., 2019): between two layers mentions choose among entities."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of
from plmctl.knowledge.candidates import CandidateTable
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts
from plmctl.nn.cells.knowledge_attention import KnowledgeAttention, name_stream, number_documents
from plmctl.nn.entities import EntityVectors
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack


class MentionChoices(NamedTuple):
    """The mentions of a batch, and what they may mean.

    Args:
        mentions: int64 [m, 4] row, start, length, document.
        ids: The candidates, int64 [m, K]; -1 in empty slots.
        priors: [m, K].
        gold: int64 [m] the id that the mark names.
    """

    mentions: Tensor
    ids: Tensor
    priors: Tensor
    gold: Tensor


@part_of("further")
class KnowledgeBase(nn.Module):
    """Entities and their names, among which the mentions of a track choose."""

    def __init__(self, *, entities: EntityVectors, candidates: CandidateTable) -> None:
        super().__init__()
        self.entities, self.candidates = entities, candidates

    def find_rows(self, choices: MentionChoices) -> Tensor:
        """[m, K] the row of the vector of each candidate; 0 for empty slots."""
        rows = self.entities.find_rows((choices.ids + 1).clamp(min=0))
        return rows * (choices.ids >= 0)


@part_of("model")
class KnowBert(Encoder):
    """`Encoder` whose layout has a cell of knowledge attention between two layers: `af*9 afk af*2`
    (Peters et al., 2019, arXiv:1909.04164, sec. 3.3).

    A mention is a run of tokens with the same number in `tracks.entity`. Its candidates are those
    of the name of that entity; the model learns nothing else about it. Without the track nothing is
    mentioned.

    Args:
        entities: The entities among which mentions choose.
        candidates: The number of candidates of each mention.
        further: Further bases of knowledge, each with mentions in the track of its name, which the
            cells of that `base` read (the paper's Wikipedia and WordNet).
    """

    uses = Encoder.uses | {"tracks.entity"}
    fields: Mapping[str, Field] = {
        "tracks.meaning": Field(
            "[n, T]", "int", "meaning of the token in a second base of knowledge, from 1; 0: none"
        )
    }

    def __init__(
        self,
        *,
        stack: Stack,
        entities: EntityVectors,
        candidates: CandidateTable,
        further: Mapping[str, KnowledgeBase] = MappingProxyType({}),
        **parts: Unpack[EncoderParts],
    ) -> None:
        super().__init__(stack=stack, **parts)
        self.entities, self.candidates = entities, candidates
        self.further = nn.ModuleDict(further)
        # in a list, since both are parts of the model by the names above
        self._first = [KnowledgeBase(entities=entities, candidates=candidates)]
        self.uses = self.uses | {f"tracks.{name}" for name in further}
        for cell in self.linkers:
            if cell.base and cell.base not in further:
                known = f"one of model.further: {', '.join(further) or 'none'}"
                raise ConfigError("model.stack.cells.base", cell.base, known)
        bases, layers = {cell.base for cell in self.linkers}, len(stack.rounds)
        if len(bases) > layers:
            least = f"at least {len(bases)}: mentions choose in each base in a layer of its own"
            raise ConfigError("size.num_layers", layers, least, fix=f"size.num_layers={len(bases)}")

    @property
    def linkers(self) -> list[KnowledgeAttention]:
        """The cells in which mentions choose."""
        return [part for part in self.modules() if isinstance(part, KnowledgeAttention)]

    def find_base(self, name: str) -> KnowledgeBase:
        """One of the bases of knowledge; "": the first one."""
        return self.further[name] if name else self._first[0]  # type: ignore[return-value]

    @outside_graphs  # how many mentions there are depends on values
    def find_choices(self, seq: Seq, base: str = "") -> MentionChoices:
        """The mentions of the rows of `seq` that choose in one of the bases."""
        track = seq.tracks.get(base or "entity", torch.zeros_like(seq.ids)).long()
        tables = self.find_base(base).candidates.tables
        ids, priors = (torch.from_numpy(table).to(track.device) for table in tables)
        shown = torch.where((track > 0) & (track <= len(ids)), track, 0)
        home = number_documents(shown, seq.tracks.get("document"))
        same = torch.zeros_like(shown, dtype=torch.bool)
        same[:, 1:] = (shown[:, 1:] == shown[:, :-1]) & (home[:, 1:] == home[:, :-1])
        row, start = ((shown > 0) & ~same).nonzero(as_tuple=True)
        run = (~same).long().cumsum(1)  # the number of the run of each token
        length = (run[row] == run[row, start][:, None]).sum(1)
        gold = shown[row, start] - 1
        mentions = torch.stack([row, start, length, home[row, start]], 1)
        return MentionChoices(mentions, ids[gold], priors[gold], gold)

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        beside: dict[str, Tensor] = {}
        for name in ("", *self.further):
            base, found = self.find_base(name), self.find_choices(batch.text, name)
            rows = base.find_rows(found)
            own = {
                "mentions": found.mentions,
                "candidates": base.entities.vectors[rows].to(x.dtype),  # [m, K, E]
                "priors": found.priors.to(x.dtype),
                "possible": (rows > 0).to(x.dtype),
            }
            beside |= {name_stream(stream, name): each for stream, each in own.items()}
        return self.read(batch.text, x, cache=state, record=record, beside=beside)
