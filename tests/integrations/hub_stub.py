"""The part of the Hub's HTTP API that pushing and loading use, on loopback (not a test)."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = (".safetensors", ".mp4")
"""Files that the stub wants by LFS."""


@dataclass
class Repository:
    """What was committed: the files of each revision, "main" and numbers of commits."""

    private: bool
    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


@dataclass
class Hub:
    """A Hub with its repositories, uploaded objects, and the requests so far."""

    address: str
    token: str = "hf_stub"
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}"
            new = Repository(bool(given.get("private") or given.get("visibility") == "private"))
            status = 409 if name in self.hub.repositories else 200
            self.hub.repositories.setdefault(name, new)
            self._answer(status, {"url": f"{self.hub.address}/{name}", "name": name, "id": name})
        elif self.path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            self._answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(LARGE) else "regular" for name in names}
            files = [
                {"path": name, "uploadMode": mode, "shouldIgnore": False}
                for name, mode in modes.items()
            ]
            self._answer(200, {"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.hub.address}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            self._commit(self.path.split("/commit/")[0].removeprefix("/api/models/"), body)
        else:
            self._answer(404, {"error": f"no {self.path}"})

    def do_PUT(self) -> None:
        body = self._body()
        assert hashlib.sha256(body).hexdigest() == self.path.rpartition("/")[2]
        self.hub.objects[self.path.rpartition("/")[2]] = body
        self._answer(200, {})

    def do_HEAD(self) -> None:
        self._file()

    def do_GET(self) -> None:
        self._file()

    def _commit(self, name: str, body: bytes) -> None:
        repository = self.hub.repositories[name]
        files = dict(repository.revisions.get("main", {}))
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                repository.messages.append(value["summary"])
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.hub.objects[value["oid"]]
        oid = f"{len(repository.messages):040x}"
        repository.revisions |= {"main": files, oid: files}
        url = f"{self.hub.address}/{name}/commit/{oid}"
        self._answer(200, {"commitUrl": url, "commitOid": oid})

    def _file(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        name, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._answer(404, {"error": "Repository not found"}, "RepoNotFound")
        elif revision not in repository.revisions:
            self._answer(404, {"error": "Revision not found"}, "RevisionNotFound")
        elif file not in repository.revisions[revision]:
            self._answer(404, {"error": "Entry not found"}, "EntryNotFound")
        else:
            data = repository.revisions[revision][file]
            oid = f"{len(repository.messages):040x}" if revision == "main" else revision
            self._send(
                200, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": oid}
            )

    def _body(self) -> bytes:
        self.hub.requests.append(f"{self.command} {self.path}")
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, status: int, content: Any, error: str | None = None) -> None:
        headers = {"Content-Type": "application/json"} | ({"X-Error-Code": error} if error else {})
        self._send(status, json.dumps(content).encode(), headers)

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a Hub in a thread."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    handler.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
