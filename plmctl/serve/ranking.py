"""Texts in the order in which they answer a question."""

from __future__ import annotations

import math
from collections.abc import Sequence

from starlette.requests import Request

from plmctl.serve.models import Served
from plmctl.serve.pairs import PairEngine
from plmctl.serve.server import Server
from plmctl.serve.vectors import VectorEngine


def _score_pairs(served: Served) -> PairEngine | VectorEngine | None:
    return served.pairs


def _make_vectors(served: Served) -> PairEngine | VectorEngine | None:
    return served.vectors


async def rank_texts(
    server: Server,
    request: Request,
    query: str,
    texts: Sequence[str],
    model: str | None,
    *,
    raw: bool = False,
) -> tuple[list[tuple[int, float]], str]:
    """([(number of a text, its score)], the name of the model), the best first; of equal scores
    the first text.

    A model that reads question and text together gives `s = sigmoid(logit)`, or the logit with
    `raw`; another one the cosine of their vectors.
    """
    server.check_count(texts)
    served, _ = server.models.find(model, "rank texts", _score_pairs, _make_vectors)
    if (engine := served.pairs) is not None:
        asked = [(query, text) for text in texts]
        found, _ = await server.answer(request, engine, asked, engine.read)
        scores = [each["score"] for each in found]
        scores = scores if raw else [1 / (1 + math.exp(-score)) for score in scores]
    else:
        vectors = served.vectors
        assert vectors is not None
        made, _ = await server.answer(request, vectors, [query, *texts], vectors.read)
        scores = [float(made[0] @ vector) for vector in made[1:]]
        request.state.marks = request.state.marks[1:]
    return sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0])), served.name
