"""Zero-shot fact completion (Petroni et al., 2019; Xiong et al., 2020): the object of a fact among
all objects of its relation (eval only).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.knowledge.kinds import strip_qualifier
from plmctl.knowledge.tables import read_table
from plmctl.tasks.readers import files

SUBJECT, OBJECT = "[X]", "[Y]"
Scorer = Literal["original", "masks"]


class Query(NamedTuple):
    """A text with a gap, and which candidates fill it truly."""

    subject: str
    before: str
    after: str
    answers: tuple[int, ...]  # numbers of candidates


class Relation(NamedTuple):
    """The queries of one relation, and what is asked of each."""

    name: str
    queries: list[Query]
    candidates: list[tuple[str, ...]]  # the names of each object
    counts: np.ndarray  # [C] facts of each object


@part_of("task")
@dataclass(frozen=True, kw_only=True)
class FactCompletion:
    """Hits@`top`, Hits@1 and mean reciprocal rank of true objects among all objects of a relation.

    Each fact is a query: a template with its subject, where the object is missing. A candidate's
    rank counts those that score higher, half of those that score the same, and none that are true
    as well. (Xiong et al., 2020, arXiv:1912.09637, sec. 3.1: ten relations, 1,000 queries each,
    Hits@10.)

    Beside the model stand three ways to answer without one: chance; the objects by how many facts
    they have ("frequency"); and by how much of the object's name the subject's name has ("names":
    Apple Watch is by Apple; Poerner et al., 2020, arXiv:1911.03681, sec. 2). "no leaks": the model,
    without the queries whose answer stands in the subject's name.

    Args:
        path: a knowledge directory with triples.
        templates: relation and text a line, with a tab between: `capital of <tab> [X] is the
            capital of [Y].`; None: subject, relation, object.
        scorer: "original", the probability that a mention is the original, of a model with
            objective=wklm; "masks", the mean log-probability of a candidate's tokens in as many
            masks (BERT).
        aliases: a candidate has the best score of all its names; else its main one alone.
        queries: of a relation, at most, drawn at random.
        top: ranks that count as a hit.
        seed: of the draw.
    """

    path: str
    templates: str | None = None
    scorer: Scorer = "original"
    aliases: bool = False
    queries: Count = 1000
    top: Count = 10
    seed: Whole = 0

    def read(self) -> list[Relation]:
        """The relations that have facts, each with its queries.

        Raises:
            DataError: there are no triples, or a template lacks a place.
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
        """What the model reaches on a relation, and what one reaches without a model.

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


def find_queries(relation: Relation) -> np.ndarray:
    """[A] the query of each true answer, in order."""
    return np.repeat(
        np.arange(len(relation.queries)), [len(query.answers) for query in relation.queries]
    )


def rank(scores: np.ndarray, answers: Sequence[Iterable[int]]) -> np.ndarray:
    """[A] the rank of every true answer among the candidates that are not true; ties count half.

    Args:
        scores: [Q, C].
        answers: of each query the numbers of its true candidates.
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
