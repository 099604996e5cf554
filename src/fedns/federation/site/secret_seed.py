"""Random numbers of a site's own: whoever knows the matrix of a sketch can solve for rows, so nobody else knows it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients

SECRET_FILE = "secret"


def site_secret(folder: Path) -> bytes:
    """The secret of a site, made when it is first needed; only its owner's account can read it."""
    path = folder / SECRET_FILE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
            try:
                file.write(secrets.token_bytes(32))
                os.fsync(file.fileno())
            except OSError:  # a full disk: half a secret would be there for good
                path.unlink()
                raise
    except FileExistsError:
        pass
    secret = path.read_bytes()
    if len(secret) != 32:
        raise OSError(f"{path} is damaged: it must hold 32 bytes; delete it to have a new one made")
    return secret


@dataclass(frozen=True)
class SecretClients(Clients):
    """A site as its handlers see it: random streams follow from its secret, the run, the round and the purpose."""

    secret: bytes = b""
    run: bytes = b""
    commitments: dict[str, str] = field(default_factory=dict)  # by purpose, a hash of the stream's key

    def keys(self, purpose: str) -> NDArray[np.uint64]:
        """The same again when the round is repeated; of another round or purpose nothing follows from these."""
        text = b"/".join([self.run.hex().encode(), str(self.round).encode(), purpose.encode()])
        key = hmac.digest(self.secret, text, "sha256")
        self.commitments[purpose] = hashlib.sha256(key).hexdigest()
        return np.frombuffer(key[:16], dtype="<u8").reshape(1, 2).astype(np.uint64)

    def seed_for(self, purpose: str, agreed: int) -> int:
        """Whoever knows which rows a mean is over can solve for them."""
        return int(self.keys(purpose)[0, 0] >> np.uint64(1))
