"""Flower's SuperLink, run as a child of the coordinator with its Control API closed to everybody else.

SuperLink serves sites, control and run time on one port, and as installed anybody who reaches that port may
register nodes and start runs. Here the Control API asks for the secret that the coordinator made for this session, and
before all of it stands a door that knows what fedns uses.
"""

from __future__ import annotations

import hmac
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedns.transports.flower import settings as flower_settings  # noqa: F401  (before flwr)

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID  # isort: skip
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.superlink.auth_plugin import ControlAuthnPlugin
from starlette.middleware import Middleware

from fedns.transports.flower.door import Door
from fedns.transports.flower.turns import Application, Receive, Scope, Send

Metadata = Sequence[tuple[str, str | bytes]]


class SecretControl(ControlAuthnPlugin):
    """Lets in who knows the secret, and nobody else; there is no login."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        if not hmac.compare_digest(given.encode() if isinstance(given, str) else given, self._secret):
            return False, None
        return True, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)

    def get_login_details(self) -> AccountAuthLoginDetails | None:
        return None

    def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
        return None

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        return None, None


class OnPathsOf:
    """One of SuperLink's layers, for the paths that it is about; all others pass it by.

    Each costs about half a millisecond, there are nine, and most look at the path and do nothing.
    """

    def __init__(self, superlink: Application, prefix: str, layer: Middleware) -> None:
        self._prefix, self._without = prefix, superlink
        self._with: Application = layer.cls(superlink, *layer.args, **layer.kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        layered = self._with if str(scope.get("path", "")).startswith(self._prefix) else self._without
        await layered(scope, receive, send)

    @classmethod
    def narrowed(cls, layer: Middleware) -> Middleware:
        """A layer from a router's package is about that router's paths."""
        package = layer.cls.__module__.partition(".routers.")[2].partition(".")[0]
        return Middleware(cls, f"/v1/{package}", layer) if package else layer


async def _at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def main() -> None:
    """What `flower-superlink` does, with the plugin above and the door; the first argument is the largest message."""
    start_parent_process_monitor(os.getppid())
    largest_message = int(sys.argv.pop(1))
    secret_file, host = (sys.argv[sys.argv.index(name) + 1] for name in ("--superexec-auth-secret-file", "--host"))
    # Each look at a dictionary, several for every request, would be handed to another thread: a quarter of all the work.
    for module in ("fastapi.dependencies.utils", "fastapi.routing", "flwr.supercore.protobuf.routing"):
        importlib.import_module(module).run_in_threadpool = _at_once  # type: ignore[attr-defined]
    control = SecretControl(Path(secret_file).read_text())
    service = importlib.import_module("flwr.superlink.main")
    create_app, layers = service.create_app, service._get_middleware
    service._get_middleware = lambda: [OnPathsOf.narrowed(layer) for layer in layers()]  # type: ignore[attr-defined]
    service.create_app = lambda *arguments: Door(create_app(*arguments), largest_message, host)  # type: ignore[attr-defined]
    # The package hides the module behind the function of the same name.
    command = importlib.import_module("flwr.superlink.cli.flower_superlink")
    command.load_control_authn_plugin = lambda: control  # type: ignore[attr-defined]
    command.flower_superlink()


if __name__ == "__main__":
    main()
