"""SuperLink's nine layers of web server, each at the price of a call.

As installed every layer runs the next one as a task of its own and hands its response on through a queue, so that a response
could be read while it is made, and every endpoint runs in another thread: nearly all of SuperLink's work. Here a response is
whole before it is handed on, and endpoints, which look into memory, are called where they are. No path that the door lets
through streams.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from starlette.middleware.base import BaseHTTPMiddleware, _CachedRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

_WITH_THREADS = (
    "fastapi.dependencies.utils",
    "fastapi.routing",
    "flwr.supercore.protobuf.routing",
    "flwr.superlink.routers.fleet.node_auth",
)


def flatten() -> None:
    """Let the layers of this process call each other directly."""
    BaseHTTPMiddleware.__call__ = _call  # type: ignore[assignment]
    for module in _WITH_THREADS:
        importlib.import_module(module).run_in_threadpool = _at_once  # type: ignore[attr-defined]


async def _at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


async def _call(layer: BaseHTTPMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
    """What a layer does with a request: its own part, and in the middle of it the next layer's."""
    if scope["type"] != "http":
        await layer.app(scope, receive, send)
        return
    request = _CachedRequest(scope, receive)

    async def call_next(_: Request) -> Response:
        response, body = Response(), bytearray()

        async def collect(event: Message) -> None:
            if event["type"] == "http.response.start":
                response.status_code, response.raw_headers = event["status"], list(event["headers"])
            else:
                body.extend(event.get("body", b""))

        await layer.app(scope, request.wrapped_receive, collect)
        response.body = bytes(body)
        return response

    response = await layer.dispatch_func(request, call_next)
    await response(scope, request.wrapped_receive, send)
