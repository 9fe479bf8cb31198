"""A service that the tests of a module share, and what a test opens."""

from __future__ import annotations

import contextlib

import pytest
from support.service import serving, wait_until_empty


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
