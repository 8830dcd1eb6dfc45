"""A server in this process, over tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from plmctl.runtime.eager import EagerRuntime
from plmctl.serve.app import make_app
from plmctl.serve.models import Models, open_models
from plmctl.serve.server import Limits, Server


def open_all(paths: Sequence[Path], **settings: Any) -> Models:
    given: dict[str, Any] = {"device": "cpu", "precision": "fp32", "pooling": None, "rows": 4}
    given |= {
        "runtime": lambda precision, loaded: loaded.runtime or EagerRuntime(),
        "plugins": (),
    } | settings
    return open_models([str(path) for path in paths], **given)


@contextmanager
def serve(models: Models, *, token: str | None = None, **limits: Any) -> Iterator[TestClient]:
    """A client of a server of these models."""
    app = make_app(Server(models, Limits(**limits)), token=token)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
