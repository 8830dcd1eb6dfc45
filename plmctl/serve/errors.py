"""Requests that a server refuses."""

from __future__ import annotations

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


def spell_error(
    status: int, message: str, *, path: str
) -> tuple[dict[str, object], dict[str, str]]:
    """(body, headers) of a refusal, in the form of OpenAI or of text-embeddings-inference."""
    own, theirs = TYPES.get(status, TYPES[500] if status >= 500 else TYPES[400])
    headers = HEADERS.get(status, {})
    if path.startswith(OPENAI):
        error = {"message": message, "type": theirs, "param": None, "code": None}
        return {"error": error}, headers
    return {"error": message, "error_type": own}, headers
