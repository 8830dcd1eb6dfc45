"""The form of OpenAI: /v1/models and /v1/embeddings
(https://platform.openai.com/docs/api-reference/embeddings).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from plmctl.serve.routes.fields import Text
from plmctl.serve.server import Server
from plmctl.serve.vectors import shorten


def _spell_base64(vector: np.ndarray) -> str:
    """32-bit numbers, the least byte first."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


SPELLINGS: dict[str, Callable[[np.ndarray], Any]] = {
    "float": np.ndarray.tolist,
    "base64": _spell_base64,
}


class EmbeddingsRequest(BaseModel):
    """Texts, or the numbers of their tokens."""

    input: Text | list[Text] | list[int] | list[list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None
    prompt_name: str | None = None


def make_router(server: Server) -> APIRouter:
    """The addresses for the models of a server."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.get("/models", summary="The models of the server")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_describe(each) for each in server.models]}

    @router.post("/embeddings", summary="A vector for each text")
    async def embeddings(body: EmbeddingsRequest, request: Request) -> dict[str, Any]:
        texts: Any = body.input
        if isinstance(texts, str) or (texts and isinstance(texts[0], int)):
            texts = [texts]
        server.check_count(texts)
        served, engine = server.models.find(body.model, "make vectors", lambda own: own.vectors)
        read = partial(engine.read, prompt=body.prompt_name)
        found, tokens = await server.answer(request, engine, texts, read)
        vectors = [shorten(vector, body.dimensions) for vector in found]
        spell = SPELLINGS[body.encoding_format]
        data = [
            {"object": "embedding", "index": number, "embedding": spell(vector), **marks}
            for number, (vector, marks) in enumerate(zip(vectors, request.state.marks, strict=True))
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": served.name, "usage": usage}

    return router


def _describe(served: Any) -> dict[str, Any]:
    own = {"id": served.name, "object": "model", "owned_by": "plmctl"}
    return {**own, "max_model_len": served.longest}
