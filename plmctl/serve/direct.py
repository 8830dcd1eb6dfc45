"""A short way to the answer: a right request needs none of the steps of FastAPI."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

JSON = b"application/json"


class DirectRoute:
    """An address that takes a JSON body: it reads a request, and spells the answer, as FastAPI
    does.

    Args:
        endpoint: An async function of `body` and `request`, annotated with its types.
    """

    def __init__(self, endpoint: Callable[..., Awaitable[Any]]) -> None:
        self.endpoint = endpoint
        types = get_type_hints(endpoint, include_extras=True)
        self._body, self._answer = TypeAdapter(types["body"]), TypeAdapter(types["return"])

    def read(self, kind: bytes, content: bytes) -> Any | None:
        """The body as the endpoint takes it; None: it is wrong, and FastAPI says why.

        Args:
            kind: The header `content-type`.
            content: The bytes of the body.
        """
        if kind.partition(b";")[0].strip().lower() != JSON:
            return None
        try:
            return self._body.validate_python(json.loads(content))
        except (ValueError, RecursionError):  # no JSON, no UTF-8, a wrong field
            return None

    async def answer(self, body: Any, request: Request) -> bytes | Response:
        """The answer of the endpoint as JSON, or one that it sends in parts."""
        found = await self.endpoint(body=body, request=request)
        return found if isinstance(found, Response) else self._answer.dump_json(found)
