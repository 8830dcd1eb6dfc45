"""`plmctl eval task=fact_completion`: how a model scores candidates for the object of a fact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.mention import MentionHead
from plmctl.objectives.wklm import take_states
from plmctl.tasks.fact_completion import FactCompletion, Query, Relation, average
from plmctl.tasks.layouts import encode
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.predict import AVERAGE, ScoreTable
from plmctl.use.vectors import group_lines, make_batch


class Filled(NamedTuple):
    """A row whose gap is filled: [start, start + length) of its tokens."""

    ids: list[int]
    start: int
    length: int


def complete_facts(
    spec: Evaluate, loaded: Loaded, task: FactCompletion, precision: Precision
) -> ScoreTable:
    """The scores of each relation, and their mean."""
    needed, fix = {
        "original": ("mention", "task.scorer=masks, or a run of plmctl pretrain wklm"),
        "masks": ("mlm", "task.scorer=original of a run of wklm, or a masked language model"),
    }[task.scorer]
    if needed not in loaded.model.heads:
        allowed = f"this checkpoint has no head '{needed}'"
        raise ConfigError("task.scorer", task.scorer, allowed, fix=fix)
    scorer = Scorer(loaded, precision, spec.batch_size)
    ask = scorer.originals if task.scorer == "original" else scorer.masks
    found = {
        relation.name: task.score(relation, score_relation(relation, ask))
        for relation in task.read()
    }
    scores = {**found, AVERAGE: average(found)} if len(found) > 1 else found
    extra = {"checkpoint": str(loaded.source.folder), "scorer": task.scorer}
    return ScoreTable("fact completion", scores, extra)


def score_relation(
    relation: Relation, ask: Callable[[Query, Sequence[str]], np.ndarray]
) -> np.ndarray:
    """[Q, C] the best score of the names of each candidate, for each query."""
    names = [name for candidate in relation.candidates for name in candidate]
    begins = np.cumsum([0, *map(len, relation.candidates)])[:-1]
    return np.array([np.maximum.reduceat(ask(q, names), begins) for q in relation.queries])


class Scorer:
    """Scores names in the gap of a query.

    Args:
        loaded: the model.
        precision: of the computation.
        batch_size: rows at the same time.
    """

    def __init__(self, loaded: Loaded, precision: Precision, batch_size: int) -> None:
        self.loaded, self.precision, self.batch_size = loaded, precision, batch_size
        self._length = loaded.model.backbone.max_length or 512

    def fill(self, query: Query, name: str) -> Filled:
        """The row of a query with a name in its gap."""
        encoder = self.loaded.source.spelling or self.loaded.tokenizer
        text = f"{query.before}{name}{query.after}"
        ids, offsets = encoder.encode_offsets(text)
        begin, end = len(query.before), len(query.before) + len(name)
        inside = [n for n, (a, b) in enumerate(offsets) if a < end and b > begin]
        row = encode.lay_out(ids, None, self.loaded.vocab, max_length=self._length, pooling="first")
        if not inside or row.a_start + inside[-1] + 1 >= len(row.ids):
            return Filled([], 0, 0)  # no token of it, or no room
        return Filled(row.ids, row.a_start + inside[0], len(inside))

    def originals(self, query: Query, names: Sequence[str]) -> np.ndarray:
        """[k] the log-probability that each name is the original."""
        rows = [self.fill(query, name) for name in names]
        head = cast(MentionHead, self.loaded.model.heads["mention"])
        scores = np.full(len(rows), -np.inf)
        for index, batch in self._batches([row.ids for row in rows]):
            table = [[n, rows[i].start, rows[i].length] for n, i in enumerate(index)]
            spans = torch.tensor(table, device=self.precision.device)
            with torch.inference_mode(), self.precision.autocast():
                hidden = self.loaded.model(batch)
                logits = head(take_states(self.loaded.model, head, hidden, spans))
            scores[index] = logits.float().log_softmax(-1)[:, 1].cpu().numpy()
        return scores

    def masks(self, query: Query, names: Sequence[str]) -> np.ndarray:
        """[k] the mean log-probability of the tokens of each name, all of them masked; names of
        one length share a row.
        """
        mask = self.loaded.vocab.mask
        if mask is None:
            raise ConfigError("task.scorer", "masks", "the tokenizer has no mask")
        rows = [self.fill(query, name) for name in names]
        order = sorted((i for i, row in enumerate(rows) if row.ids), key=lambda i: rows[i].length)
        scores = np.full(len(rows), -np.inf)
        groups = [list(each) for _, each in groupby(order, key=lambda i: rows[i].length)]
        hidden_rows = []
        for group in groups:
            ids, start, length = rows[group[0]]
            hidden_rows.append([*ids[:start], *[mask] * length, *ids[start + length :]])
        for index, batch in self._batches(hidden_rows):
            with torch.inference_mode(), self.precision.autocast():
                states: Tensor = self.loaded.model(batch).last
            for n, g in enumerate(index):
                start, length = rows[groups[g][0]][1:]
                with torch.inference_mode(), self.precision.autocast():
                    logits = self.loaded.model.heads["mlm"](states[n, start : start + length])
                logs = logits.float().log_softmax(-1).cpu().numpy()  # [length, V]
                for i in groups[g]:
                    tokens = rows[i].ids[rows[i].start : rows[i].start + length]
                    scores[i] = logs[np.arange(length), tokens].mean()
        return scores

    def _batches(self, rows: Sequence[list[int]]) -> Iterator[tuple[list[int], Batch]]:
        for index in group_lines([len(row) for row in rows], batch_size=self.batch_size):
            lines = [EmbeddingLine(rows[i]) for i in index]
            yield index, make_batch(lines).to(self.precision.device)
