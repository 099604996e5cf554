"""The base of all errors, and what a backend says when it cannot do what it is asked."""

from typing import ClassVar


class FednsError(ValueError):
    """Base of every error this package raises on purpose."""

    exit_status: ClassVar[int] = 2  # of a command that it ends


class ConfigError(FednsError):
    """A method, parameter or setting that does not exist or is out of range."""


class BackendError(FednsError):
    """Something that the chosen device cannot do, or a device that is not there: one sentence with the fix."""
