"""How well vectors of a model find the texts that answer a question: any sets in the layout of BEIR
or MS MARCO (eval only; Thakur et al., 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted, remark
from plmctl.core.values import Count
from plmctl.heads.sentences import take_columns
from plmctl.probes.base import Opened, Probe
from plmctl.probes.ranking import tabulate
from plmctl.tasks.bi_encoder import unit
from plmctl.tasks.predictions import write_rows
from plmctl.tasks.ranking import BM25, RankingTask, rank_others
from plmctl.tasks.readers import files
from plmctl.tasks.readers.ranking import CorpusFolder, find_corpus
from plmctl.tasks.record import Example
from plmctl.tasks.scores.ranking import average, check_ranking_metrics
from plmctl.tasks.search import Index, Ranked, search_vectors, search_words
from plmctl.tasks.term_vectors import search_terms
from plmctl.use.embedding_lines import lay_out_text
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.sentence_vectors import (
    SentencePooling,
    choose_pooling,
    count_weights,
    embed_terms,
    embed_texts,
)

MEAN = "mean"
Scores = Mapping[str, Mapping[str, Any]]  # by column and name


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class Retrieval(Probe):
    """Scores of the rankings of a whole corpus for the questions of a split, by the likeness of
    vectors, without any training on them. They are means over questions, as trec_eval has them. The
    mean over sets is that of BEIR (Thakur et al., 2021, arXiv:2104.08663, sec. 4); a text that is
    the question itself, by its id, is left out, as there.

    Args:
        path: A folder in the layout of BEIR (corpus.jsonl, queries.jsonl, qrels/<split>.tsv) or of
            MS MARCO, a folder of such folders, or several of these.
        pooling: The vector of a text (heads/sentences.py, heads/token_weights.py), or "trained";
            None: as the model was trained, else the mean of its tokens.
        likeness: The likeness of two vectors: "cosine", or "dot", their product; None: as the model
            was trained, "dot" for weights of the vocabulary, else "cosine".
        metrics: The metrics, over a ranking or at a depth.
        depth: The texts of a ranking.
        beside: Further rankings to score: "bm25".
        index: The search: "exact", by all products, by "faiss", or by vectors of "int8" or
            "binary" numbers.
        max_length: tokens of a text at most, special ones included.
        dimensions: The first columns of vectors that are compared; None: all.
    """

    path: str | Sequence[str]
    pooling: str | None = None
    likeness: Literal["cosine", "dot"] | None = None
    metrics: Sequence[str] = ("ndcg@10", "map", "recall@100")
    depth: Count = 1000
    beside: Sequence[str] = ()
    index: Index = "exact"
    max_length: int | None = None
    dimensions: Count | None = None

    def __post_init__(self) -> None:
        check_ranking_metrics(self.metrics, self.depth)
        if unknown := [name for name in self.beside if name != BM25]:
            raise ConfigError("task.beside", unknown[0], f"[{BM25}] or []")

    def find_sets(self, split: str) -> dict[str, CorpusFolder]:
        """{name: set} of the folders at `path`; DataError without any."""
        paths = [self.path] if isinstance(self.path, str) else list(self.path)
        sets: dict[str, CorpusFolder] = {}
        for each in (found for path in paths for found in _list_sets(files.existing(path), split)):
            if each.folder.name in sets:
                what = f"two sets are called '{each.folder.name}'"
                raise DataError(what, file=each.folder, fix="name each folder otherwise")
            sets[each.folder.name] = each
        return sets

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of every set, and their mean."""
        pooling = choose_pooling(opened.loaded, self.pooling, path="task.pooling")
        out, columns = opened.claim_file("rankings.jsonl"), dict[str, list[dict[str, Any]]]()
        texts = questions = ungraded = unanswered = 0
        sets, split = self.choose_split(opened)
        for name, folder in sets.items():
            corpus, (examples, left) = dict(folder.texts()), folder.read(split)
            texts, questions = texts + len(corpus), questions + len(examples)
            ungraded, unanswered = ungraded + folder.count_unjudged(split), unanswered + left
            for search, ranked in self._rank(opened, pooling, examples, corpus):
                own = RankingTask.write_rankings(examples, ranked, list(corpus))
                known = {"set": name, "search": search or "vectors"}
                columns[f"{name} {search}".strip()] = [{**known, **row} for row in own]
        extra: dict[str, Any] = {"checkpoint": opened.folder, "pooling": pooling.words}
        extra["likeness"] = choose_likeness(self.likeness, pooling)
        searched = f"{counted(texts, 'text')} for {counted(questions, 'question')}"
        extra["searched"] = Told(searched, texts)
        if ungraded:
            said = f"{counted(ungraded, 'question')} left out: no grade in {split}"
            extra["ungraded"] = Told(said, ungraded)
        if unanswered:
            said = f"{counted(unanswered, 'question')} left out: no relevant text"
            extra["unanswered"] = Told(said, unanswered)
        if out is not None:
            extra["rankings"] = str(write_rows(out, [*chain(*columns.values())]))
        table = tabulate(f"retrieval: {split}", columns, self.metrics, extra)
        return replace(table, metrics=self._add_means(table.metrics, sets))

    def _add_means(self, scores: Scores, sets: Iterable[str]) -> Scores:
        """The scores of each search, and their mean behind those of several sets."""
        found: dict[str, Mapping[str, Any]] = {}
        for search in ("", *self.beside):
            own = {name: scores[name] for name in (f"{each} {search}".strip() for each in sets)}
            mean = average([*own.values()], self.metrics)
            found |= {**own, f"{MEAN} {search}".strip(): mean} if len(own) > 1 else own
        return found

    def choose_split(self, opened: Opened) -> tuple[dict[str, CorpusFolder], str]:
        """(the sets, the split to score). Where the command line names no split and no set has
        grades of the usual one, the split is one that has them.
        """
        sets = self.find_sets(opened.split)
        there = [split for folder in sets.values() for split in folder.splits()]
        missing = all(folder.qrels(opened.split) is None for folder in sets.values())
        if "split" in opened.given.keys or not (missing and there):
            return sets, opened.split
        remark(f"split={there[0]}: there are no grades of {opened.split}")
        return self.find_sets(there[0]), there[0]

    def _rank(
        self,
        opened: Opened,
        pooling: SentencePooling,
        examples: Sequence[Example],
        corpus: Mapping[str, str],
    ) -> Iterator[tuple[str, Iterable[Ranked]]]:
        """Yield (name of a search, its rankings); the name "" is that of the vectors."""
        queries = [str(example.fields["query"]) for example in examples]
        searches: dict[str, Callable[..., Iterable[Ranked]]] = {
            "": partial(self._search, opened, pooling, queries, corpus)
        }
        for name in self.beside:
            searches[name] = partial(search_words, queries, corpus)
        for name, search in searches.items():
            yield name, rank_others(search, examples, [*corpus], top=self.depth)

    def _search(
        self,
        opened: Opened,
        pooling: SentencePooling,
        queries: Sequence[str],
        corpus: Mapping[str, str],
        *,
        top: int,
    ) -> Iterator[Ranked]:
        """The `top` best texts of a corpus for each question, by vectors."""
        names = list(corpus)
        q, d = read_vectors(
            opened,
            pooling,
            queries,
            list(corpus.values()),
            max_length=self.max_length,
            dimensions=self.dimensions,
            likeness=choose_likeness(self.likeness, pooling),
        )
        if pooling.sparse:
            return search_terms(q, d, names, top=top)
        return search_vectors(q, d, names, top=top, index=self.index)


def choose_likeness(stated: str | None, pooling: SentencePooling) -> str:
    """The likeness of two vectors: the `stated` one, else that of the training, else "cosine"."""
    if stated is not None:
        return stated
    trained = "" if pooling.settings is None else pooling.settings.similarity
    return "dot" if pooling.sparse or trained == "dot" else "cosine"


def read_vectors(
    opened: Opened,
    pooling: SentencePooling,
    queries: Sequence[str],
    texts: Sequence[str],
    *,
    max_length: int | None,
    dimensions: int | None,
    likeness: str,
) -> tuple[Any, Any]:
    """The vectors of questions and of texts, each with its prompt, whose product is the likeness;
    `TermVectors` of a sparse pooling. Tokens weigh by their counts in the texts.
    """
    model = opened.loaded
    how: Any = {
        "batch_size": opened.batch_size,
        "precision": opened.precision,
        "max_length": max_length,
    }
    asked: Any = {**how, "prompts": ["query"]}
    shown: Any = {**how, "prompts": ["document", "passage", "corpus"]}
    if pooling.sparse:
        terms = embed_terms(model, queries, pooling, **asked)
        return terms, embed_terms(model, texts, pooling, **shown)
    lines = [lay_out_text(text, model, None) for text in texts if pooling.weighs]
    pooling = count_weights(pooling, model, lines, source="task.path")
    vectors = [
        take_columns(each, dimensions, path="task.dimensions")
        for each in (
            embed_texts(model, queries, pooling, **asked),
            embed_texts(model, texts, pooling, **shown),
        )
    ]
    q, d = map(unit, vectors) if likeness == "cosine" else vectors
    return q, d


def _list_sets(place: Path, split: str) -> list[CorpusFolder]:
    """The set at `place`, or the sets in its folders that have the split; DataError without any."""
    if (own := find_corpus(place)) is not None:
        return [own]
    inside = sorted(place.iterdir()) if place.is_dir() else []
    found = [folder for child in inside if (folder := find_corpus(child)) is not None]
    chosen = [folder for folder in found if folder.qrels(split) is not None]
    if chosen or found:
        return chosen or found[:1]
    there = ", ".join(child.name for child in inside[:12]) or "nothing"
    fix = "task.path=<a folder with corpus.jsonl, queries.jsonl and qrels/, or a folder of such>"
    raise DataError(f"no corpus.jsonl or collection.tsv; there is {there}", file=place, fix=fix)
