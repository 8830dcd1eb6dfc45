"""`plmctl eval task=sts`: vectors of sentences out of a model, and how well they agree with
people.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.tasks.sentence_similarity import ScoredPair, SentenceSimilarity, average
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import lay_out_text, read
from plmctl.use.predict import ScoreTable
from plmctl.use.sentence_vectors import check_weights, choose_pooling, count_weights, embed_texts


def compare_sentences(
    spec: Evaluate, loaded: Loaded, task: SentenceSimilarity, precision: Precision
) -> ScoreTable:
    """The correlations of every set of pairs, and their mean."""
    check_weights(task.weights_from, task.pooling, beside="task.")
    pooling = choose_pooling(loaded, task.pooling, path="task.pooling")
    sets = task.read(spec.split)
    if task.weights_from is not None:
        lines, source = read(Path(task.weights_from), loaded), task.weights_from
    else:
        texts = [text for pairs in sets.values() for pair in pairs for text in pair[:2]]
        lines = [lay_out_text(text, loaded, None) for text in texts if pooling.weighs]
        source = str(task.path)
    pooling = count_weights(pooling, loaded, lines, source=source)

    def embed(pairs: list[ScoredPair]) -> tuple[np.ndarray, np.ndarray]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair[:2]))
        place = {text: number for number, text in enumerate(texts)}
        vectors = embed_texts(
            loaded,
            texts,
            pooling,
            batch_size=spec.batch_size,
            precision=precision,
            max_length=task.max_length,
        )
        first = [place[pair.first] for pair in pairs]
        second = [place[pair.second] for pair in pairs]
        return vectors[first], vectors[second]

    scores = {name: task.score(pairs, *embed(pairs)) for name, pairs in sets.items()}
    if len(scores) > 1:
        scores["mean"] = average(scores)
    extra: dict[str, Any] = {"checkpoint": str(loaded.source.folder), "pooling": pooling.words}
    return ScoreTable("similarity of sentences", scores, extra)
