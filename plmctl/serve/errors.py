"""Requests that a server refuses."""

from __future__ import annotations

import json

from plmctl.core.errors import PlmctlError, list_problems
from plmctl.core.terminal import WARN, remark

TYPES = {  # the names of text-embeddings-inference and of OpenAI
    400: ("validation", "invalid_request_error"),
    401: ("unauthorized", "authentication_error"),
    404: ("not_found", "invalid_request_error"),
    405: ("validation", "invalid_request_error"),
    413: ("validation", "invalid_request_error"),
    422: ("validation", "invalid_request_error"),
    424: ("backend", "invalid_request_error"),
    429: ("overloaded", "rate_limit_error"),
    500: ("backend", "server_error"),
    503: ("unhealthy", "server_error"),
}
OPENAI = "/v1/"  # addresses of OpenAI begin like this
HEADERS = {429: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}


class Refusal(Exception):
    """A request that gets no answer: the status of HTTP, and a sentence for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def as_refusal(error: Exception, path: str) -> Refusal:
    """The refusal that says to a client what an error means; one of ours goes to the log."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, PlmctlError):
        return Refusal(422, list_problems(error))
    remark(f"{path}: {type(error).__name__}: {error}", WARN)
    return Refusal(500, "the server failed at this request; its log says why")


def spell_error(status: int, message: str, *, path: str) -> tuple[bytes, dict[str, str]]:
    """(body, headers) of a refusal, in the form of OpenAI or of text-embeddings-inference."""
    own, theirs = TYPES.get(status, TYPES[500] if status >= 500 else TYPES[400])
    content: dict[str, object] = {"error": message, "error_type": own}
    if path.startswith(OPENAI):
        error = {"message": message, "type": theirs, "param": None, "code": None}
        content = {"error": error}
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return body.encode("utf-8", "replace"), HEADERS.get(status, {})
