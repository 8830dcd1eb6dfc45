"""The form of text-embeddings-inference: /predict, /embed, /rerank, /info
(https://huggingface.github.io/text-embeddings-inference).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from plmctl import __version__
from plmctl.serve.errors import Refusal
from plmctl.serve.ranking import rank_texts
from plmctl.serve.routes.fields import Body, Record, Text, list_texts
from plmctl.serve.server import Server
from plmctl.serve.vectors import shorten


class PredictRequest(Body):
    """Texts, or records of the columns of the task."""

    inputs: Text | Record | list[Text | Record | list[Text]] = Field(
        description='A text, or several; of pairs ["a", "b"] or [["a", "b"], ["c", "d"]];'
        " for any task a record {column: value}, or several."
    )
    top_k: int | None = Field(None, ge=1, description="The likeliest labels; null: all.")
    model: str | None = None


class EmbedRequest(Body):
    """Texts to make vectors of."""

    inputs: Text | list[Text]
    truncate: bool = True
    truncation_direction: Literal["right", "Right"] = "right"
    normalize: bool = True
    prompt_name: str | None = None
    dimensions: int | None = Field(None, ge=1)
    model: str | None = None


class RerankRequest(Body):
    """Texts to order by how well they answer a question."""

    query: Text
    texts: list[Text]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool = True
    model: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(tags=["text-embeddings-inference"])

    @router.post("/predict", summary="The answers of a fine-tuned model")
    async def predict(body: PredictRequest, request: Request) -> Any:
        served, engine = server.models.find(body.model, "label texts", lambda own: own.labels)
        items, alone = _list_items(body.inputs, pairs=served.reads_pairs)
        server.check_count(items)
        found = await server.label_items(request, served.name, engine, items)
        answers = [_rank_labels(answer, body.top_k) for answer in found]
        return answers[0] if alone else answers

    @router.post("/embed", summary="A vector for each text")
    async def embed(body: EmbedRequest, request: Request) -> list[list[float]]:
        texts = list_texts(body.inputs)
        server.check_count(texts)
        if not body.normalize:
            raise Refusal(422, "normalize: vectors of this server have length 1")
        _, engine = server.models.find(body.model, "make vectors", lambda own: own.vectors)
        read = partial(engine.read, cut=body.truncate, prompt=body.prompt_name)
        found, _ = await server.answer(request, engine, texts, read)
        return [shorten(vector, body.dimensions).tolist() for vector in found]

    @router.post("/rerank", summary="Texts in the order in which they answer a question")
    async def rerank(body: RerankRequest, request: Request) -> list[dict[str, Any]]:
        ranked, _ = await rank_texts(
            server, request, body.query, body.texts, body.model, raw=body.raw_scores
        )
        text = {"text": body.texts} if body.return_text else {}
        return [
            {"index": index, "score": score, **{name: own[index] for name, own in text.items()}}
            | request.state.marks[index]
            for index, score in ranked
        ]

    @router.get("/info", summary="The models of the server")
    async def info() -> dict[str, Any]:
        models = [
            {
                "id": own.name,
                "path": own.path,
                "can": own.list_abilities(),
                **own.describe_lengths(),
            }
            for own in server.models
        ]
        return {"version": __version__, "models": models, "limits": vars(server.limits)}

    return router


def _list_items(inputs: Any, *, pairs: bool) -> tuple[list[Any], bool]:
    """(the texts, pairs or records of a request, whether it asks for one answer alone).

    Texts in a list are one pair for a task that reads pairs; for others each is a text.
    """
    if isinstance(inputs, str | Mapping):
        return [inputs], True
    if pairs and inputs and all(isinstance(item, str) for item in inputs):
        return [inputs], True
    single = [
        item[0] if isinstance(item, list) and len(item) == 1 else item  # a text in brackets
        for item in inputs
    ]
    return single, False


def _rank_labels(answer: dict[str, Any], most: int | None) -> list[dict[str, Any]] | dict[str, Any]:
    """The labels with their probabilities, the likeliest first, `most` of them or all; another
    answer as it is.
    """
    shares = answer.get("probabilities")
    if not isinstance(shares, Mapping):
        return answer
    ranked = sorted(shares.items(), key=lambda pair: -pair[1])[:most]
    return [{"score": score, "label": label} for label, score in ranked]
