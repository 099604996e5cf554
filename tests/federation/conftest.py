"""Federations of real processes on loopback, one folder per engine."""

import importlib.util

import pytest

PACKAGES = {"flower": "flwr", "nvflare": "nvflare"}


@pytest.fixture(params=list(PACKAGES))
def engine(request):
    if importlib.util.find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"{PACKAGES[request.param]} is not installed")
    return request.param
