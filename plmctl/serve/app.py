"""All addresses of a server as one application."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request

from plmctl import __version__
from plmctl.core.errors import PlmctlError, nearest
from plmctl.serve.direct import DirectRoute
from plmctl.serve.errors import OPENAI, Refusal, as_refusal, spell_error
from plmctl.serve.guard import Guard
from plmctl.serve.routes import completions, inference, openai, pooling, texts
from plmctl.serve.server import Server
from plmctl.tasks.record import cut

SHOWN = 40  # characters of a wrong value
# needs of a body, by the types of pydantic's errors
NEEDED = {
    "string_type": "a text",
    "dict_type": "an object",
    "list_type": "a list",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}

ROUTERS = (inference, openai, completions, pooling, texts)


def make_app(server: Server, *, token: str | None = None) -> Guard:
    """The application of a server, behind its limits and its token."""
    app = FastAPI(title="plmctl", version=__version__, lifespan=_answer_meanwhile(server))
    routers = [module.make_router(server) for module in ROUTERS]
    for router in routers:
        app.include_router(router)

    @app.get("/health", summary="200 while the server answers", tags=["server"])
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Numbers for Prometheus", tags=["server"])
    async def metrics() -> PlainTextResponse:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(server.metrics.spell(), media_type=kind)

    known = [str(getattr(route, "path", "")) for each in (app, *routers) for route in each.routes]
    _answer_errors(app, sorted({path for path in known if "{" not in path and path}))
    return Guard(
        app,
        metrics=server.metrics,
        token=token,
        longest_body=server.limits.body,
        routes=frozenset(known),
        direct={route.path: DirectRoute(route.endpoint) for route in _list_posts(routers)},
    )


def _list_posts(routers: Sequence[APIRouter]) -> list[APIRoute]:
    """The addresses that take a body."""
    routes = [route for router in routers for route in router.routes]
    return [own for own in routes if isinstance(own, APIRoute) and "POST" in (own.methods or ())]


def _answer_meanwhile(server: Server) -> Any:
    """The life of an application: its queue answers until the last request."""

    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        server.queue.start()
        yield
        server.queue.stop()

    return live


def _answer_errors(app: FastAPI, paths: Sequence[str]) -> None:
    """Sentences instead of the input that was wrong, or of a traceback."""

    async def fail(request: Request, error: Exception) -> Response:
        refusal = as_refusal(error, request.url.path)
        return _reply(request, refusal.status, refusal.message)

    for kind in (Refusal, PlmctlError, Exception):
        app.add_exception_handler(kind, fail)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, Refusal):  # while the body was read
            return _reply(request, error.__cause__.status, error.__cause__.message)
        if error.status_code == 400:
            return _reply(request, 400, "the body is no JSON in UTF-8, or is nested too deeply")
        message = f"{error.detail}: {request.method} {request.url.path}"
        if error.status_code == 404:
            message += f"{nearest(request.url.path, paths)}; there are {', '.join(paths)}"
        return _reply(request, error.status_code, message)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        status = 400 if request.url.path.startswith(OPENAI) else 422
        return _reply(request, status, _explain(request, error.errors()))


def _explain(request: Request, errors: Sequence[Any]) -> str:
    """The first mistake of a body: its field, and what is allowed there."""
    first = errors[0]
    field = str(next(iter(first["loc"][1:]), ""))
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}"
    if not field and first["type"] == "missing":
        return "the body is empty: a JSON object is needed"
    if not field:
        kind = request.headers.get("content-type", "")
        header = "" if "json" in kind else ", with the header 'content-type: application/json'"
        return f"the body must be a JSON object{header}"
    if first["type"] == "none_required":
        return f"{field}: this server has none; leave it out, or send null"
    if first["type"] == "extra_forbidden":
        return f"there is no field '{field}' at {request.url.path}"
    if first["type"] == "missing":
        others = [each["loc"][-1] for each in errors if each["type"] == "extra_forbidden"]
        found = f"; found {', '.join(map(str, others))}" if others else ""
        return f"there is no field '{field}', which {request.url.path} needs{found}"
    return _explain_value(field, [own for own in errors if own["loc"][1:2] == first["loc"][1:2]])


def _explain_value(field: str, errors: Sequence[Any]) -> str:
    """`inputs[1]: a text or a list is needed, not null`, by the errors of the alternatives that
    come deepest into the value.
    """
    places = [tuple(part for part in each["loc"][2:] if isinstance(part, int)) for each in errors]
    place = max(places, key=len)
    own = [each for each, other in zip(errors, places, strict=True) if other == place]
    where = field + "".join(f"[{number}]" for number in place)
    kinds = dict.fromkeys(NEEDED.get(each["type"], "") for each in own)
    if not all(kinds):
        return f"{where}: {', or '.join(dict.fromkeys(str(each['msg']) for each in own))}"
    value = json.dumps(own[0]["input"], ensure_ascii=False)
    return f"{where}: {' or '.join(kinds)} is needed, not {cut(value, SHOWN)}"


def _reply(request: Request, status: int, message: str) -> Response:
    body, headers = spell_error(status, message, path=request.url.path)
    return Response(body, status, headers, media_type="application/json")
