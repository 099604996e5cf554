"""The command line."""

from fedns.cli.app import main

__all__ = ["main"]
