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

from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fedns.federation.transports.flower.turns import read_body

_WITH_THREADS = ("fastapi.dependencies.utils", "fastapi.routing", "flwr.supercore.protobuf.routing")


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
    body = await read_body(receive)

    async def call_next(_: Request) -> Response:
        response, content = Response(), bytearray()

        async def collect(event: Message) -> None:
            if event["type"] == "http.response.start":
                response.status_code, response.raw_headers = event["status"], list(event["headers"])
            else:
                content.extend(event.get("body", b""))

        await layer.app(scope, _again(body, receive), collect)
        response.body = bytes(content)
        return response

    response = await layer.dispatch_func(Request(scope, _again(body, receive)), call_next)
    await response(scope, receive, send)


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives the body that was read already, and then what comes after it."""
    given = False

    async def once_more() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once_more
