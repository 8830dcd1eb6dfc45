"""Bidirectional language modelling (Peters et al., 2018): the next word and the one before are
predicted.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.objectives.clm import find_neighbours
from plmctl.text.vocab import Vocab


@part_of("objective")
class BidirectionalLM(Objective):
    """`- 1/2 mean_t log p(w_{t+1} | w_0..w_t) - 1/2 mean_t log p(w_{t-1} | w_t..w_T)`, both from
    the head "bilm".

    A format whose rows continue in the next batch gives both words itself; otherwise they are taken
    from the row, within its document. Words beyond the first `words` of the vocabulary are
    predicted as the unknown word, and read as they are spelled. The perplexity of the paper's sec.
    3.4 is exp(loss). (arXiv:1802.05365, sec. 3.1; allenai/bilm-tf training.py.) Differs: the
    equation of sec. 3.1 is the sum of both directions, the released code half of it, as here.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.clm", "targets.backward"}),
        heads=frozenset({"bilm"}),
        terms=frozenset({"clm", "backward"}),
        reads_text=True,
    )

    def __init__(
        self, *, vocab: Vocab, words: int | None = None, model: Model | None = None
    ) -> None:
        super().__init__()
        if model is not None and not {"forward", "backward"} <= model.backbone.streams:
            allowed = "a backbone with a stream for each direction, neither of which sees the other"
            fix = "model=two_way, or model=bilm tokenizer=word"
            raise ConfigError("model", type(model.backbone).__name__, allowed, fix=fix)
        self.words, self.unknown = words, -1 if vocab.unk is None else vocab.unk
        if words is not None and not 0 <= self.unknown < words:
            allowed = f"more than {vocab.unk}, the id of the unknown word, or null for all"
            raise ConfigError("words", words, allowed)

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        text, targets = rows.seqs["text"], rows.targets
        neighbours = {
            name: targets[name] if name in targets else find_neighbours(text, after=name == "clm")
            for name in ("clm", "backward")
        }
        return {name: self._replace_rare(labels) for name, labels in neighbours.items()}

    def _replace_rare(self, labels: np.ndarray) -> np.ndarray:
        """The labels, those beyond the first `words` as the unknown word."""
        return (
            labels
            if self.words is None
            else np.where(labels >= self.words, self.unknown, labels).astype(labels.dtype)
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in ("clm", "backward")}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        hidden = model(batch, state)
        terms: dict[str, Term] = {}
        logs: dict[str, tuple[Tensor, int | Tensor]] = {}
        for name, stream in (("clm", "forward"), ("backward", "backward")):
            targets = batch.require(f"targets.{name}")
            states = hidden.streams[stream].flatten(0, 1)[targets.index]
            loss, right = head_of(model, "bilm").loss(states, targets.ids)
            terms[name] = Term(loss, 0.5)
            logs |= {} if right is None else {f"acc/{name}": (right, batch.counts[name])}
        return Output(terms, logs, hidden.state)
