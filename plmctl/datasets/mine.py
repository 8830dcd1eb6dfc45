"""Hard negatives: texts that look right for a question and are not, from which encoders learn
(Karpukhin et al., 2020, arXiv:2004.04906, sec. 3.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from plmctl.tasks.ranking import rank_others
from plmctl.tasks.record import Example
from plmctl.tasks.search import Ranked

# questions, {id: text}, top=how many -> a ranking for each question
Search = Callable[..., Iterable[Ranked]]


@dataclass(frozen=True)
class Mining:
    """A transform of the questions of a split into rows of query, positive and negatives.

    Args:
        search: Finds texts for questions.
        corpus: {id: text} of the split.
        count: The most negatives of a question.
        skipped: The number of best wrong texts to pass over. They may answer the question, too.
        counted: Receives the numbers of questions and negatives.
    """

    search: Search
    corpus: Mapping[str, str]
    count: int
    skipped: int
    counted: dict[str, int]

    def __call__(self, examples: Sequence[Example], first: int) -> Iterator[str]:
        """A line for each question."""
        answers = max(len(each.fields["positives"]) for each in examples)
        queries = [str(each.fields["query"]) for each in examples]
        top = self.count + self.skipped + answers
        search = partial(self.search, queries, self.corpus)
        found = rank_others(search, examples, [*self.corpus], top=top)
        for example, query, ranked in zip(examples, queries, found, strict=True):
            right = example.fields["positives"]
            negatives = self._choose([*right.values()], ranked)
            self.counted["questions"] += 1
            self.counted["negatives"] += len(negatives)
            row = {"id": example.id, "query": query, "positive": [*right.values()]}
            yield json.dumps({**row, "negatives": negatives}, ensure_ascii=False) + "\n"

    def _choose(self, right: Sequence[str], ranked: Ranked) -> list[str]:
        """The best texts that are not known to answer the question."""
        texts, known = list(self.corpus.values()), set(right)
        wrong = dict.fromkeys(texts[n] for n in ranked.numbers if texts[n] not in known)
        return list(wrong)[self.skipped : self.skipped + self.count]
