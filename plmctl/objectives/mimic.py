"""Mimicking (Pinter et al., 2017): vectors from letters and contexts imitate a model's own input
vectors of frequent words, so that rare words can be given one (Schick and Schütze, 2020: BERTRAM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.mimic import MimicHead
from plmctl.knowledge.words import MODES, SLOTS, Mode, WordCounts
from plmctl.models.base import Backbone, Model
from plmctl.models.encoder import Encoder
from plmctl.objectives.base import Contrast, Facts, Objective, Output, Term


@dataclass(frozen=True)
class Groups:
    """Rows that are contexts of one word, side by side."""

    of_row: Tensor  # [n] number of the group
    place: Tensor  # [n] index of the row in its group
    first: Tensor  # [G] the first row of each group

    @classmethod
    def of(cls, numbers: Tensor) -> Groups:
        """The groups of rows with these numbers [n], of which neighbours are equal in a group."""
        begins = torch.ones_like(numbers, dtype=torch.bool)
        begins[1:] = numbers[1:] != numbers[:-1]
        of_row, first = begins.cumsum(0) - 1, begins.nonzero()[:, 0]
        return cls(of_row, torch.arange(len(numbers), device=numbers.device) - first[of_row], first)

    def gather(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States of rows [n, H] by group [G, m, H], and which of them are real [G, m]."""
        size = int(self.place.max()) + 1
        shape = (len(self.first), size)
        real = torch.zeros(shape, dtype=torch.bool, device=states.device)
        real[self.of_row, self.place] = True
        padded = states.new_zeros(*shape, states.shape[1])
        return padded.index_put((self.of_row, self.place), states), real


def read_contexts(
    model: Model, batch: Batch, words: Sequence[str], groups: Groups, *, mode: Mode
) -> dict[str, Tensor]:
    """The tensors that `combine` needs of each row. Modes with contexts need its "states" [n, H].
    Modes that mix in the form of its word, or use nothing else, need the "form" [n, d].
    """
    head, anchors = cast(MimicHead, model.heads["mimic"]), batch.anchors
    if mode == "form":
        return {"form": head.form(words)[groups.of_row]}
    assert anchors is not None
    if mode in ("context", "shallow"):
        states = {"states": model(batch).gather_anchors(anchors)}
        return states | ({"form": head.form(words)[groups.of_row]} if mode == "shallow" else {})
    form = head.form(words)[groups.of_row]  # [n, d]
    column = anchors[:, 1]
    column = torch.full_like(column, SLOTS[mode]) if mode in SLOTS else column
    x = embed_with(model.backbone, batch, column, form)
    return {"states": model.backbone.encode(x, batch).gather_anchors(anchors)}


def combine(head: MimicHead, rows: Mapping[str, Tensor], groups: Groups) -> Tensor:
    """[G, d] the vectors of words from what `read_contexts` gives."""
    form = rows["form"][groups.first] if "form" in rows else None
    if "states" not in rows:
        assert form is not None
        return form
    vectors: Tensor = head.context(*groups.gather(rows["states"]))
    return vectors if form is None else head.mix(vectors, form)


def make_vectors(
    model: Model, batch: Batch, words: Sequence[str], groups: Groups, *, mode: Mode
) -> Tensor:
    """[G, d] the vectors of words from their contexts in a batch, with the head `mimic`.

    Args:
        model: an encoder.
        batch: one context in each row, with the mask at the anchor of the row.
        words: The word of each group.
        groups: The group of each row.
        mode: The mode: how the form of a word enters.
    """
    rows = read_contexts(model, batch, words, groups, mode=mode)
    return combine(cast(MimicHead, model.heads["mimic"]), rows, groups)


def embed_with(backbone: Backbone, batch: Batch, column: Tensor, vectors: Tensor) -> Tensor:
    """[n, T, W] the input of the first layer, before positions, segments and norm are applied. The
    token at `column [n]` of each row has the vector `vectors [n, d]`.
    """
    assert isinstance(backbone, Encoder)
    table = backbone.embedding.token(batch.text.ids)
    rows = torch.arange(len(column), device=column.device)
    changed = table.index_put((rows, column), vectors.to(table.dtype))
    return backbone.embed_tokens(batch.text, vectors=changed)


@part_of("objective")
class Mimic(Objective):
    """`mean (v_{w,C} - e_w)^2` over words and dimensions, e_w the row of w in the model's own table
    of tokens.

    v comes from the head `mimic`, in the mode of the rows (`format.mode`). Logged: `cos/mimic`, the
    mean cosine of v and e_w. (Schick and Schütze, 2020, arXiv:1910.07181, sec. 3;
    timoschick/bertram.)

    Args:
        model: The model whose vectors are imitated, an encoder.
        words: the table of words that the marks in the text point into, or its folder.
    """

    facts = Facts(
        needs=frozenset({"text", "labels.word", "labels.token", "values.group", "values.mode"}),
        heads=frozenset({"mimic"}),
        terms=frozenset({"mimic"}),
        contrasts=True,
        measures=frozenset({"cos/mimic"}),
    )

    def __init__(self, *, model: Model, table_width: int, words: str | None = None) -> None:
        super().__init__()
        if not isinstance(model.backbone, Encoder):
            kind = type(model.backbone).__name__
            raise ConfigError("model", kind, "an Encoder: BERT, RoBERTa", fix="model=encoder")
        self.width, self.place = table_width, words

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """The words by their numbers."""
        if self.place is None:
            fix = "data.path=<folder of plmctl data contexts>"
            raise ConfigError("objective.mimic.words", None, "the table of the words", fix=fix)
        return WordCounts.read(self.place).spellings

    def counts(self, batch: Batch) -> dict[str, int]:
        group = batch.values["group"][batch.labels["word"] != IGNORE]
        return {"mimic": len(torch.unique(group)) * self.width}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        real = batch.labels["word"] != IGNORE  # rows that only fill a batch have no word
        table = model.backbone.token_embedding.weight
        assert isinstance(table, Tensor)
        if not bool(real.any()):
            none = table.new_zeros(())
            return Output({"mimic": Term(none)}, {"cos/mimic": (none, 0)})
        number = torch.where(real, batch.values["group"], -1)
        groups = Groups.of(number)
        mode = MODES[int(batch.values["mode"][0])]
        numbers = torch.where(real, batch.labels["word"], 0)[groups.first].tolist()
        words = [self.spellings[number] for number in numbers]
        rows = read_contexts(model, batch, words, groups, mode=mode)
        beside = {"group": number, "wanted": table[batch.labels["token"].clamp(min=0)].detach()}
        compare = partial(self.compare, cast(MimicHead, model.heads["mimic"]))
        return Contrast(compare, rows, beside).output("mimic")

    def compare(
        self, head: MimicHead, rows: Mapping[str, Tensor], beside: Mapping[str, Tensor]
    ) -> Output:
        """The loss of all words of an update."""
        groups = Groups.of(beside["group"])
        kept = beside["group"][groups.first] >= 0
        vectors, wanted = combine(head, rows, groups)[kept], beside["wanted"][groups.first[kept]]
        error = (vectors - wanted).float().square().sum()
        cosine = F.cosine_similarity(vectors.detach().float(), wanted.float()).sum()
        term = Term(error, count=len(wanted) * self.width)
        return Output({"mimic": term}, {"cos/mimic": (cosine, len(wanted))})
