"""A service that the tests of a module share, and what a test opens."""

from __future__ import annotations

import contextlib

import pytest
from support import service as support
from support.service import serving, wait_until_empty


def pytest_generate_tests(metafunc):
    """A module's tests run once for each of its CARRIERS; by default over UDP alone."""
    if "carrier" in metafunc.fixturenames:
        metafunc.parametrize("carrier", getattr(metafunc.module, "CARRIERS", ["udp"]))


@pytest.fixture(autouse=True)
def carrier(carrier, monkeypatch):
    """What carries packets of workers who join by ``joined``."""
    monkeypatch.setattr(support, "CARRIER", carrier)
    return carrier


@pytest.fixture(scope="module")
def service():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """Jobs of one test are over before the next one begins, where they share a service."""
    shared = "service" in request.fixturenames
    service = request.getfixturevalue("service") if shared else None
    yield
    if service is not None:
        wait_until_empty(service)


@pytest.fixture
def stack():
    with contextlib.ExitStack() as opened:
        yield opened
