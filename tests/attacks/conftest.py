"""What the attacks share."""

import pytest

from fedns.numerics.cpu import parts


@pytest.fixture
def passes(monkeypatch):
    """Every pass over rows that is made: a site that refuses before it computes makes none."""
    made = []
    start = parts.on_threads

    def noting(kernel, *arguments, **settings):
        made.append(kernel)
        return start(kernel, *arguments, **settings)

    monkeypatch.setattr(parts, "on_threads", noting)
    return made
