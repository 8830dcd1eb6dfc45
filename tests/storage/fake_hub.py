"""A small hub on this machine: repositories of models, their commits and their files.

The routes and the fields are those that `huggingface_hub` asks for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_good"


class FakeHub:
    """Repositories by name: their commits, and the commit of each branch or tag."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[str] = []
        self.url = ""

    def find(self, name: str, revision: str = "main") -> tuple[str, dict[str, bytes]]:
        """The commit that a revision names, and its files."""
        commit = self.refs[name].get(revision, revision)
        return commit, self.commits[name][commit]

    def create(self, name: str, *, private: bool = False) -> None:
        self.commits[name], self.refs[name], self.private[name] = {}, {}, private
        self.commit(name, {".gitattributes": b""})

    def commit(self, name: str, files: dict[str, bytes], revision: str = "main") -> str:
        commit = hashlib.sha1(repr((len(self.commits[name]), files)).encode()).hexdigest()
        self.commits[name][commit] = files
        self.refs[name][revision] = commit
        return commit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, message: str, code: str = "") -> None:
        self._answer({"error": message}, status, X_Error_Message=message, X_Error_Code=code)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.hub.requests.append(f"{self.command} {'/'.join(words)}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "Invalid credentials in Authorization header")
        elif words == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif words == ["api", "validate-yaml"]:
            self._answer({"errors": [], "warnings": []})
        elif words[:2] == ["api", "models"]:
            self._repository("/".join(words[2:4]), words[4:], body)
        else:
            self._file("/".join(words[:2]), words[3], "/".join(words[4:]))

    do_GET = do_HEAD = do_POST = _handle

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if wanted["organization"] != "ada":
            self._refuse(403, "You don't have the rights to create a model under this namespace")
        elif name in self.hub.commits:
            what = "You already created this model repo"
            self._answer({"error": what, "url": f"{self.hub.url}/{name}"}, 409)
        else:
            self.hub.create(name, private=wanted.get("visibility") == "private")
            self._answer({"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def _repository(self, name: str, words: list[str], body: bytes) -> None:
        what, revision = [*words, "revision"][0], [*words, "", "main"][1] or "main"
        if name not in self.hub.commits:
            self._refuse(404, "Repository not found", "RepoNotFound")
        elif what == "preupload":
            files = json.loads(body)["files"]
            modes = [{**f, "uploadMode": "regular", "shouldIgnore": False} for f in files]
            self._answer({"files": modes})
        elif what == "commit":
            self._commit(name, revision, [json.loads(line) for line in body.splitlines()])
        else:
            self._describe(name, revision, what)

    def _commit(self, name: str, revision: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.hub.find(name, revision)[1])
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del files[line["value"]["path"]]
        commit = self.hub.commit(name, files, revision)
        where = f"{self.hub.url}/{name}/commit/{commit}"
        self._answer({"success": True, "commitOid": commit, "commitUrl": where})

    def _describe(self, name: str, revision: str, what: str) -> None:
        try:
            commit, files = self.hub.find(name, revision)
        except KeyError:
            self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
            return
        listed = [
            {"type": "file", "path": path, "size": len(content), "oid": _name(content)}
            for path, content in files.items()
        ]
        siblings = [{"rfilename": path} for path in files]
        about = {"id": name, "sha": commit, "private": self.hub.private[name], "tags": []}
        self._answer(listed if what == "tree" else {**about, "siblings": siblings})

    def _file(self, name: str, revision: str, path: str) -> None:
        commit, files = self.hub.find(name, revision)
        self._answer(files[path], ETag=f'"{_name(files[path])}"', X_Repo_Commit=commit)


def _name(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """A hub without repositories, at its `url`."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
