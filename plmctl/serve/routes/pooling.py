"""The form of vLLM and Jina: /classify and /v1/rerank
(https://docs.vllm.ai/en/latest/models/pooling_models.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from plmctl.serve.labels import LabelEngine
from plmctl.serve.models import Served
from plmctl.serve.ranking import rank_texts
from plmctl.serve.routes.fields import Body, Text, list_texts
from plmctl.serve.server import Server


class ClassifyRequest(Body):
    """Texts to label."""

    input: Text | list[Text]
    model: str | None = None


class RankRequest(Body):
    """Documents to order by how well they answer a question."""

    query: Text
    documents: list[Text]
    top_n: int = Field(0, ge=0, description="The number of documents; 0: all.")
    return_documents: bool = True
    model: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(tags=["vLLM and Jina"])

    @router.post("/classify", summary="The label of each text, with all probabilities")
    async def classify(body: ClassifyRequest, request: Request) -> dict[str, Any]:
        texts, what = list_texts(body.input), "choose classes"
        served, found = await server.label(request, texts, body.model, what, _choose)
        described = map(_describe, count(), found)
        data = [own | marks for own, marks in zip(described, request.state.marks, strict=True)]
        return {"object": "list", "model": served.name, "data": data}

    @router.post("/v1/rerank", summary="Documents in the order in which they answer a question")
    async def rerank(body: RankRequest, request: Request) -> dict[str, Any]:
        texts = body.documents
        ranked, name = await rank_texts(server, request, body.query, texts, body.model)
        results = [
            {"index": index, "relevance_score": score}
            | ({"document": {"text": texts[index]}} if body.return_documents else {})
            | request.state.marks[index]
            for index, score in ranked[: body.top_n or None]
        ]
        return {"model": name, "results": results}

    return router


def _choose(served: Served) -> LabelEngine | None:
    """The engine of a model whose answers are labels with probabilities."""
    chooses = served.task is not None and served.task.facts.answer in ("class", "types")
    return served.labels if chooses else None


def _describe(number: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    shares = answer["probabilities"]
    own = {"label": answer["guess"], "probs": list(shares.values()), "labels": list(shares)}
    return {"index": number, **own, "num_classes": len(shares)}
