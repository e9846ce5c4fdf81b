"""The server of the dashboard: a page, its parts as server-sent events, and videos."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noisynet.dashboard.read_runs import Runs
from noisynet.dashboard.videos import Videos
from noisynet.dashboard.views import compare_view, run_view, runs_view

PERIOD_SECONDS: Final = 1.0
"""Between two looks at the run folders, while somebody watches."""
LEAST_TOKEN_LENGTH: Final = 16
_HEARTBEAT_SECONDS: Final = 15.0
# The files of the page, by address; no other file is served under any name.
_STATIC: Final = {
    "/": ("dashboard/page.html", "text/html"),
    "/dashboard.js": ("dashboard/dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard/dashboard.css", "text/css"),
    "/icon.svg": ("dashboard/icon.svg", "image/svg+xml"),
    "/components.js": ("reports/components.js", "text/javascript"),
    "/page.css": ("reports/page.css", "text/css"),
}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self'; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests without the token, from other sites, or for names that are not ours.

    Without a token the server listens on loopback only. A foreign page could still reach it by a
    name of its own that resolves to loopback, so the name is checked.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it; every answer has the security headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        answer = self._refuse(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refuse(self, request: Request) -> Response | None:
        origin = request.headers.get("origin")
        if origin not in (None, f"{request.url.scheme}://{request.url.netloc}"):
            return PlainTextResponse("requests from other sites are refused", 403)
        if not self._token:
            if is_loopback(request.url.hostname or ""):
                return None
            return PlainTextResponse("open this page as localhost or 127.0.0.1", 403)
        cookie = f"noisynet-{request.url.port}"
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            answer = RedirectResponse("/", 303)  # the token does not stay in the address
            answer.set_cookie(cookie, given, httponly=True, samesite="strict")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(cookie, "")) or self._is_token(bearer):
            return None
        return PlainTextResponse("this dashboard needs a token: open /?token=…", 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


class Dashboard:
    """The handlers of requests.

    Attributes:
        stopping: set to end the streams of events, which would otherwise go on for ever.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs, self.videos, self.stopping = runs, Videos(), False
        self._looked_at = 0.0
        self._lock = asyncio.Lock()

    def page(self, request: Request) -> Response:
        """One of the files of the page."""
        name, kind = _STATIC[request.url.path]
        return Response((files("noisynet") / name).read_bytes(), media_type=kind)

    async def events(self, request: Request) -> Response:
        """A view as server-sent events: all parts, and from then on those that change."""
        asked = request.query_params
        view, key = asked.get("view", "runs"), asked.get("run", "")
        builders: dict[str, Callable[[], dict[str, Any]]] = {
            "runs": partial(runs_view, self.runs),
            "run": partial(self._run_view, key),
            "compare": partial(
                compare_view,
                self.runs,
                asked.get("environment", ""),
                "off" if asked.get("noise") == "off" else "on",
                "hours" if asked.get("unit") == "hours" else "frames",
            ),
        }
        if view not in builders:
            return PlainTextResponse(f"expected view {', '.join(builders)}", 404)
        return StreamingResponse(self._stream(builders[view], key), media_type="text/event-stream")

    async def video(self, request: Request) -> Response:
        """Send the video of a run, or render it (POST)."""
        run = self.runs.by_key.get(request.query_params.get("run", ""))
        if run is None:
            return PlainTextResponse("there is no such run", 404)
        if request.method == "POST":
            self.videos.start(run)
            return Response(status_code=202)
        path = self.videos.file(run.key)
        return FileResponse(path) if path else PlainTextResponse("it is not rendered", 404)

    def _run_view(self, key: str) -> dict[str, Any]:
        run = self.runs.by_key.get(key)
        return run_view(run) | {"video": self.videos.describe(key)} if run else {"row": None}

    async def _stream(self, build: Callable[[], dict[str, Any]], key: str) -> AsyncIterator[str]:
        sent: dict[str, int] = {}
        version, spoken_at = -1, time.monotonic()
        while not self.stopping:
            async with self._lock:  # one look at a time serves all clients
                if self.runs.behind or time.monotonic() - self._looked_at > 0.9 * PERIOD_SECONDS:
                    await run_in_threadpool(self.runs.refresh, key)
                    self._looked_at = time.monotonic()
                now = self.runs.version + self.videos.version
                text = ""
                if now != version:
                    text = await run_in_threadpool(lambda: changes(build(), sent))
            if text or time.monotonic() - spoken_at > _HEARTBEAT_SECONDS:
                yield f"data: {text}\n\n" if text else ": still here\n\n"
                spoken_at = time.monotonic()
            version = now
            await asyncio.sleep(0.1 if self.runs.behind else PERIOD_SECONDS)


def changes(parts: dict[str, Any], sent: dict[str, int]) -> str:
    """The parts that differ from those sent before, as JSON; empty if there are none.

    `sent` has a hash of each part that the client has, and is updated.
    """
    texts = {name: json.dumps(part, allow_nan=False) for name, part in parts.items()}
    changed = {name: text for name, text in texts.items() if sent.get(name) != hash(text)}
    removed = [name for name in sent if name not in texts]
    begun = not sent
    for name in removed:
        del sent[name]
    sent.update((name, hash(text)) for name, text in changed.items())
    if not (changed or removed or begun):
        return ""
    members = ",".join(f"{json.dumps(name)}:{text}" for name, text in changed.items())
    return f'{{"changed":{{{members}}},"removed":{json.dumps(removed)}}}'


def make_app(paths: Sequence[Path], token: str = "") -> Starlette:
    """The dashboard as an ASGI application; with a token, every request needs it."""
    dashboard = Dashboard(Runs(paths))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await dashboard.videos.close()

    app = Starlette(
        routes=[
            *(Route(path, dashboard.page) for path in _STATIC),
            Route("/events", dashboard.events),
            Route("/video", dashboard.video, methods=["GET", "POST"]),
        ],
        middleware=[Middleware(Guard, token=token)],
        lifespan=lifespan,
    )
    app.state.dashboard = dashboard
    return app


class _Server(uvicorn.Server):
    """A server that ends the streams of events when it is told to stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app: Any = self.config.app
        app.state.dashboard.stopping = True
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    paths: Sequence[Path], host: str, port: int, token: str, on_start: Callable[[str], None]
) -> None:
    """Serve the dashboard until Ctrl-C.

    Args:
        paths: run folders, or folders of them.
        host: address to listen on. Without a token, one is made for any address but loopback.
        port: 0 for any free one.
        token: at least 16 characters, or empty.
        on_start: called with the address of the page.

    Raises:
        ValueError: a path is no folder, or the token is too short.
        OSError: the address cannot be listened on.
    """
    if missing := [str(path) for path in paths if not path.is_dir()]:
        raise ValueError(f"expected folders of runs, got {', '.join(missing)}; give their --out")
    if token and len(token) < LEAST_TOKEN_LENGTH:
        raise ValueError(
            f"expected a token of at least {LEAST_TOKEN_LENGTH} characters, got {len(token)}; "
            "leave it out to have one made"
        )
    if not token and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        config = uvicorn.Config(
            make_app(paths, token),
            loop="asyncio",  # as installed by the extra, whatever else there is
            http="h11",
            ws="none",
            log_level="warning",
            access_log=False,  # it would have the token
            timeout_graceful_shutdown=10,
            server_header=False,
        )
        on_start(f"{address}?token={token}" if token else address)
        _Server(config).run(sockets=[listening])
