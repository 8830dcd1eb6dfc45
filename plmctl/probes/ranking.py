"""`plmctl eval` of runs that rank: a bi-encoder searches the whole corpus, a cross-encoder orders
again what BM25 or a bi-encoder has found in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded, load
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import counted
from plmctl.probes.base import Opened
from plmctl.tasks import inference
from plmctl.tasks.bi_encoder import VectorRanking
from plmctl.tasks.cross_encoder import CrossEncoder
from plmctl.tasks.intervals import bootstrap
from plmctl.tasks.ranking import BM25, RankingTask, rank_others
from plmctl.tasks.scores.ranking import average, score_each
from plmctl.tasks.search import Ranked, search_words
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import (
    ALSO,
    Destination,
    describe_model,
    name_file,
    read_examples,
    write_results,
)
from plmctl.use.kept_results import name_result
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.sentence_vectors import SentencePooling, embed_terms, embed_texts, find_trained

AT_ONCE = 1 << 13  # pairs that are laid out together


def rank_corpus(
    opened: Opened, task: RankingTask, texts: str | None, output: Destination
) -> ScoreTable:
    """Rank the corpus for every question of a split, or of the file `texts`, and write the
    rankings. It returns their scores and those of the first search.
    """
    loaded = opened.loaded
    name, examples = read_examples(task, opened.split, texts)
    corpus = task.read_corpus(ALSO.get(opened.split, opened.split))
    names = list(corpus)
    queries = [str(example.fields["query"]) for example in examples]
    rankings: dict[str, list[Ranked]] = {}
    given: dict[str, Any] = {"batch_size": opened.batch_size, "precision": opened.precision}
    if task.first is None:
        encoder = cast(VectorRanking, task)
        by_vectors = partial(search_corpus, loaded, encoder, queries, corpus, **given)
        rankings[name] = list(rank_others(by_vectors, examples, names, top=task.depth))
    else:
        judge = cast(CrossEncoder, task)
        searched = partial(_find_first, opened, judge, queries, corpus)
        first = list(rank_others(searched, examples, names, top=judge.candidates))
        rankings[name] = _order_again(opened, judge, queries, corpus, first)
        rankings[f"first ({task.first})"] = first
    if BM25 in task.beside:
        by_words = partial(search_words, queries, corpus)
        rankings[BM25] = list(rank_others(by_words, examples, names, top=task.depth))
    written = {key: task.write_rankings(examples, own, names) for key, own in rankings.items()}
    kept = name if output.run is None else name_result(task, loaded.source, name, texts)
    file = write_results(output, kept, written[name])
    extra = {
        "task": task.name,
        "checkpoint": str(loaded.source.folder),
        "searched": Told(
            f"{counted(len(names), 'text')} for {counted(len(queries), 'question')}", len(names)
        ),
        "predictions": name_file(file),
    }
    scored = all(example.label is not None for example in examples)
    columns = written if scored else {}
    # in fine-tuning the same metrics are of the texts of a split alone
    return tabulate(f"{task.name}: {name}", columns, task.metrics, extra, spelled="{}/corpus")


def tabulate(
    title: str,
    columns: Mapping[str, Iterable[Mapping[str, Any]]],
    metrics: Sequence[str],
    extra: Mapping[str, Any],
    *,
    spelled: str = "{}",
) -> ScoreTable:
    """The means of metrics over questions, with intervals from draws of questions.

    Args:
        title: The title of the table.
        columns: {column: the questions, as `score_each` takes them}.
        extra: Remarks.
        spelled: The name of a metric in the table, with "{}" in it.
    """
    names = [spelled.format(metric) for metric in metrics]
    mean = partial(average, names=names)
    each = {
        column: [dict(zip(names, of.values(), strict=True)) for of in score_each(rows, metrics)]
        for column, rows in columns.items()
    }
    return ScoreTable(
        title,
        {column: mean(own) for column, own in each.items()},
        extra,
        {column: bootstrap(own, mean, names) for column, own in each.items()},
        {column: len(own) for column, own in each.items()},
    )


def search_corpus(
    loaded: Loaded,
    task: VectorRanking,
    queries: Sequence[str],
    corpus: Mapping[str, str],
    *,
    top: int,
    batch_size: int,
    precision: Precision,
) -> list[Ranked]:
    """The `top` texts of a corpus for each question, by the vectors of a bi-encoder."""

    pooling = find_trained(loaded) or SentencePooling(task.pooling, with_head=True)
    read: Callable[..., Any] = embed_terms if task.sparse else embed_texts

    def embed(some: Sequence[str], *prompts: str) -> Any:
        return read(
            loaded,
            some,
            pooling,
            prompts=prompts,
            batch_size=batch_size,
            precision=precision,
            max_length=task.max_length,
        )

    asked = embed(queries, "query")
    shown = embed(list(corpus.values()), "document", "passage", "corpus")
    return list(task.search(asked, shown, list(corpus), top=top))


def _find_first(
    opened: Opened, task: CrossEncoder, queries: Sequence[str], corpus: dict[str, str], *, top: int
) -> list[Ranked]:
    """The texts that a cross-encoder orders again: the candidates of BM25 or of a bi-encoder."""
    if task.first == BM25:
        return list(search_words(queries, corpus, top=top))
    other = load(task.first, plugins=opened.plugins)
    node = other.own_task()
    given = describe_model(other, opened.plugins)
    known = build(node, given, opened.plugins, path="task") if node else None
    if known is None or not known.facts.ranks or known.first is not None:
        allowed = "bm25, or a run of plmctl finetune task=bi_encoder"
        raise ConfigError("task.first", task.first, allowed, fix="task.first=bm25")
    other.model.to(opened.precision.device)
    return search_corpus(
        other,
        known,
        queries,
        corpus,
        top=top,
        batch_size=opened.batch_size,
        precision=opened.precision,
    )


def score_pairs(opened: Opened, task: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """[pairs] the score of a cross-encoder for each question with a text."""
    loaded, precision = opened.loaded, opened.precision
    how: Any = {"batch_size": opened.batch_size, "device": precision.device}
    found = [np.zeros(0, np.float32)]
    with torch.no_grad(), precision.autocast():
        for start in range(0, len(pairs), AT_ONCE):
            rows = task.encode_pairs(pairs[start : start + AT_ONCE], loaded.tokenizer)
            found.append(inference.run(loaded.model, task, rows, **how)[0]["score"])
    return np.concatenate(found)


def cut(scores: np.ndarray, lists: Iterable[Sized]) -> list[np.ndarray]:
    """`scores` in parts as long as the `lists`."""
    ends = np.cumsum([0, *map(len, lists)])
    return [scores[start:end] for start, end in pairwise(ends)]


def _order_again(
    opened: Opened,
    task: CrossEncoder,
    queries: Sequence[str],
    corpus: dict[str, str],
    first: Sequence[Ranked],
) -> list[Ranked]:
    names, texts = list(corpus), list(corpus.values())
    found = [each.numbers for each in first]
    asked = zip(queries, found, strict=True)
    scores = score_pairs(opened, task, [(q, texts[n]) for q, own in asked for n in own])
    ordered = []
    for own, part in zip(found, cut(scores, found), strict=True):
        best = task.order(part, [names[number] for number in own])
        ordered.append(Ranked(own[best.numbers], best.scores))
    return ordered
