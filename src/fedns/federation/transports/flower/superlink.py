"""Flower's SuperLink, run as a child of the coordinator with its Control API closed to everybody else.

SuperLink serves sites, control and run time on one port, and as installed anybody who reaches that port may
register nodes and start runs. Here the Control API asks for the secret that the coordinator made for this session, and
before all of it stands a door that knows what fedns uses.
"""

from __future__ import annotations

import hmac
import importlib
import logging
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.superlink.auth_plugin import ControlAuthnPlugin

from fedns.federation.transports.flower.door import Door
from fedns.federation.transports.flower.layers import flatten

log = logging.getLogger("fedns.superlink")

Metadata = Sequence[tuple[str, str | bytes]]


class Greeting(ssl.SSLObject):
    """A visitor's handshake; what breaks it off is a line of the log, where the web server would not say a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # it is under way
            raise
        except ssl.SSLError as error:
            log.warning("Handshake failed: %s", error.reason)
            raise


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


def main() -> None:
    """What `flower-superlink` does, with the plugin above and the door; the first argument is the largest message."""
    start_parent_process_monitor(os.getppid())
    largest_message = int(sys.argv.pop(1))
    secret_file, host = (sys.argv[sys.argv.index(name) + 1] for name in ("--superexec-auth-secret-file", "--host"))
    flatten()
    ssl.SSLContext.sslobject_class = Greeting
    control = SecretControl(Path(secret_file).read_text())
    service = importlib.import_module("flwr.superlink.main")
    create_app = service.create_app
    service.create_app = lambda *arguments: Door(create_app(*arguments), largest_message, host)  # type: ignore[attr-defined]
    # The package hides the module behind the function of the same name.
    command = importlib.import_module("flwr.superlink.cli.flower_superlink")
    command.load_control_authn_plugin = lambda: control  # type: ignore[attr-defined]
    command.flower_superlink()


if __name__ == "__main__":
    main()
