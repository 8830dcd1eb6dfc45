"""Zero-shot fact completion (Petroni et al., 2019; Xiong et al., 2020): the object of a fact among
all objects of its relation (eval only).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.heads.mention import MentionHead
from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.knowledge.kinds import strip_qualifier
from plmctl.knowledge.tables import read_table
from plmctl.objectives.wklm import take_states
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers import files
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.predict import AVERAGE, ScoreTable
from plmctl.use.vectors import group_lines, make_batch

SUBJECT, OBJECT = "[X]", "[Y]"


class Query(NamedTuple):
    """A text with a gap, and which candidates fill it truly."""

    subject: str
    before: str
    after: str
    answers: tuple[int, ...]  # numbers of candidates


class Relation(NamedTuple):
    """The queries of one relation, and their answers."""

    name: str
    queries: list[Query]
    candidates: list[tuple[str, ...]]  # the names of each object
    counts: np.ndarray  # [C] facts of each object


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class FactCompletion(Probe):
    """Hits@`top`, Hits@1 and mean reciprocal rank of true objects among all objects of a relation.

    Each fact is a query: a template with its subject, where the object is missing. A candidate's
    rank counts candidates with a higher score, half of those with the same score, and none that are
    true as well. (Xiong et al., 2020, arXiv:1912.09637, sec. 3.1: ten relations, 1,000 queries
    each, Hits@10.)

    Three ways to answer without a model stand next to it. They are chance; the objects by how many
    facts they have ("frequency"); and by how much of the object's name the subject's name has
    ("names": Apple Watch is by Apple; Poerner et al., 2020, arXiv:1911.03681, sec. 2). "no leaks":
    the model, without the queries whose answer stands in the subject's name.

    Args:
        path: a knowledge directory with triples.
        templates: relation and text a line, with a tab between: `capital of <tab> [X] is the
            capital of [Y].`; None: subject, relation, object.
        scorer: "original", the probability that a mention is the original, of a model with
            objective=wklm; "masks", the mean log-probability of a candidate's tokens in as many
            masks (BERT).
        aliases: a candidate has the best score of all its names; else its main one alone.
        queries: The queries of a relation, at most, drawn at random.
        top: ranks that count as a hit.
        seed: The seed of the draw.
    """

    path: str
    templates: str | None = None
    scorer: Literal["original", "masks"] = "original"
    aliases: bool = False
    queries: Count = 1000
    top: Count = 10
    seed: Whole = 0

    def read(self) -> list[Relation]:
        """The relations that have facts, each with its queries.

        Raises:
            DataError: No triples are found, or a template lacks a slot.
        """
        known = KnowledgeDirectory(files.existing(self.path))
        if not len(known.triples):
            fix = "plmctl data link ... triples=<head, relation, tail>"
            raise DataError("it has no triples of known entities", file=known.folder, fix=fix)
        templates = self._read_templates(known)
        names = [self._names(entity.name, entity.aliases) for entity in known]
        found = []
        for number, relation in enumerate(known.relations):
            facts = known.triples[known.triples[:, 1] == number]
            if relation in templates and len(facts):
                found.append(self._ask(relation, templates[relation], facts, names))
        return found

    def _names(self, name: str, aliases: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        seen = [alias for alias, count in aliases if count]
        names = tuple(dict.fromkeys([*seen, strip_qualifier(name)]))
        return names if self.aliases else names[:1]

    def _read_templates(self, known: KnowledgeDirectory) -> dict[str, str]:
        if self.templates is None:
            return {name: f"{SUBJECT} {name} {OBJECT}" for name in known.relations}
        file, found = files.existing(self.templates), {}
        for line, (relation, text, *_) in read_table(file, ("relation", "template")):
            if text.count(SUBJECT) != 1 or text.count(OBJECT) != 1:
                what = f"{text!r} does not have {SUBJECT} and {OBJECT} once each"
                raise DataError(what, file=file, line=line, fix=f"{SUBJECT} is in {OBJECT}.")
            if relation not in known.relations:
                what = f"there is no relation '{relation}'{nearest(relation, known.relations)}"
                raise DataError(what, file=file, line=line)
            found[relation] = text
        return found

    def _ask(
        self, name: str, template: str, facts: np.ndarray, names: Sequence[tuple[str, ...]]
    ) -> Relation:
        objects, counts = np.unique(facts[:, 2], return_counts=True)
        number = {entity: place for place, entity in enumerate(objects.tolist())}
        true: dict[int, list[int]] = {}
        for head, _, tail in facts.tolist():
            true.setdefault(head, []).append(number[tail])
        heads = np.array(sorted(true))
        if len(heads) > self.queries:
            rng = np.random.default_rng(self.seed)
            heads = np.sort(rng.choice(heads, self.queries, replace=False))
        before, _, after = template.partition(OBJECT)
        queries = []
        for head in heads.tolist():
            subject = names[head][0]
            left, right = (text.replace(SUBJECT, subject) for text in (before, after))
            queries.append(Query(subject, left, right, tuple(sorted(set(true[head])))))
        return Relation(name, queries, [names[entity] for entity in objects.tolist()], counts)

    def score(self, relation: Relation, scores: np.ndarray) -> dict[str, float]:
        """The scores of the model on a relation, and those of the ways without a model.

        Args:
            relation: C candidates for each of Q queries.
            scores: [Q, C], higher is likelier.
        """
        columns = {
            "model": scores,
            "frequency": np.broadcast_to(relation.counts, scores.shape),
            "names": measure_overlap(relation),
        }
        found: dict[str, float] = {}
        for name, each in columns.items():
            ranks = rank(each, [query.answers for query in relation.queries])
            prefix = "" if name == "model" else f"{name} "
            found[f"{prefix}hits@{self.top}"] = float(np.mean(ranks <= self.top))
            if name == "model":
                found["hits@1"] = float(np.mean(ranks <= 1))
                found["mrr"] = float(np.mean(1 / ranks))
                kept = ranks[~find_leaks(relation)[find_queries(relation)]]
                hits = float(np.mean(kept <= self.top)) if len(kept) else 0.0
                found[f"no leaks hits@{self.top}"] = hits
        found[f"chance hits@{self.top}"] = min(1.0, self.top / len(relation.candidates))
        found["queries"], found["candidates"] = len(relation.queries), len(relation.candidates)
        return found

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of each relation, and their mean."""
        loaded, precision = opened.loaded, opened.precision
        needed, fix = {
            "original": ("mention", "task.scorer=masks, or a run of plmctl pretrain wklm"),
            "masks": ("mlm", "task.scorer=original of a run of wklm, or a masked language model"),
        }[self.scorer]
        if needed not in loaded.model.heads:
            allowed = f"this checkpoint has no head '{needed}'"
            raise ConfigError("task.scorer", self.scorer, allowed, fix=fix)
        scorer = Scorer(loaded, precision, opened.batch_size)
        ask = scorer.originals if self.scorer == "original" else scorer.masks
        relations = self.read()
        texts = [query.before + query.after for each in relations for query in each.queries]
        texts += [names[0] for each in relations for names in each.candidates]
        read = (number for ids in loaded.tokenizer.encode_batch(texts) for number in ids)
        unknown = tell_unknown(read, loaded.vocab, self.path)
        found = {each.name: self.score(each, score_relation(each, ask)) for each in relations}
        scores = {**found, AVERAGE: average(found)} if len(found) > 1 else found
        extra: dict[str, Any] = {"checkpoint": opened.folder, "scorer": self.scorer}
        return ScoreTable("fact completion", scores, extra | unknown)


def find_queries(relation: Relation) -> np.ndarray:
    """[A] the query of each true answer, in order."""
    return np.repeat(
        np.arange(len(relation.queries)), [len(query.answers) for query in relation.queries]
    )


def rank(scores: np.ndarray, answers: Sequence[Iterable[int]]) -> np.ndarray:
    """[A] the rank of every true answer among the candidates that are not true; ties count half.

    Args:
        scores: [Q, C].
        answers: The numbers of the true candidates of each query.
    """
    ranks = []
    for row, true in zip(scores, answers, strict=True):
        others = np.delete(row, list(true))
        for answer in true:
            higher, same = (others > row[answer]).sum(), (others == row[answer]).sum()
            ranks.append(1 + higher + same / 2)
    return np.array(ranks, np.float64)


def measure_overlap(relation: Relation) -> np.ndarray:
    """[Q, C] the share of the words of a candidate's name that the subject's name has."""
    names = [set(names[0].lower().split()) for names in relation.candidates]
    subjects = [set(query.subject.lower().split()) for query in relation.queries]
    return np.array([[len(name & own) / max(1, len(name)) for name in names] for own in subjects])


def find_leaks(relation: Relation) -> np.ndarray:
    """[Q] bool: an answer's name stands in the subject's."""
    return np.array(
        [
            any(
                relation.candidates[answer][0].lower() in query.subject.lower()
                for answer in query.answers
            )
            for query in relation.queries
        ]
    )


def average(relations: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of all relations."""
    names = dict.fromkeys(name for scores in relations.values() for name in scores)
    return {name: float(np.mean([scores[name] for scores in relations.values()])) for name in names}


class Filled(NamedTuple):
    """A row whose gap is filled: [start, start + length) of its tokens."""

    ids: list[int]
    start: int
    length: int


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
        precision: The precision of the computation.
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
                states: Tensor = self.loaded.model(batch).words
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
