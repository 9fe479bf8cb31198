"""A service that the tests of a module share, and what a test opens."""

from __future__ import annotations

import contextlib

import pytest
from support import service as support
from support.service import serving, wait_until_empty


def pytest_generate_tests(metafunc):
    """Tests run over UDP, or once with each transport that their mark names."""
    if "carrier" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("carriers")
        names = mark.args if mark else ("udp",)
        metafunc.parametrize("over", names, ids=names if mark else [pytest.HIDDEN_PARAM])


@pytest.fixture(autouse=True)
def carrier(over, monkeypatch):
    """What carries packets of workers who join by ``joined``."""
    monkeypatch.setattr(support, "CARRIER", over)


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
