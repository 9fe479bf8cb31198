"""Names that other distributions add by entry points."""

from __future__ import annotations

import pytest

import innet
from innet.core.errors import ConfigError, UnknownNameError
from innet.core.registry import Registry, split_name

ENTRY_POINTS = """[innet.things]
theirs = innet_test_things:THING
inside = innet_test_things:Holder.thing
ours = innet_test_things:THING
moved = innet_test_nowhere:THING
renamed = innet_test_things:NOTHING
"""


@pytest.fixture
def things(tmp_path, monkeypatch):
    """A registry with a thing of its own, where another distribution is installed."""
    folder = tmp_path / "things-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: things\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    module = "THING = 'a thing'\nclass Holder:\n    thing = 'another'\n"
    (tmp_path / "innet_test_things.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[str] = Registry("thing", "innet.things")
    registry.register("ours", "string:digits")
    return registry


def test_another_distributions_names_are_known_and_loaded_when_asked_for(things):
    assert things.names() == ["inside", "moved", "ours", "renamed", "theirs"]
    assert things.get("theirs") == "a thing"
    assert things.get("inside") == "another"


def test_a_name_of_our_own_wins(things):
    assert things.get("ours") == "0123456789"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("moved", "No module named 'innet_test_nowhere'"), ("renamed", "no attribute 'NOTHING'")],
)
def test_what_cannot_be_loaded_is_told_with_who_promised_it(things, name, reason):
    said = rf"thing '{name}' .* entry point of things in the group 'innet.things': .*{reason}"
    with pytest.raises(ConfigError, match=said):
        things.get(name)


def test_an_unknown_name_is_told_with_theirs(things):
    with pytest.raises(UnknownNameError, match=r"unknown thing 'thiers'.*Did you mean 'theirs'"):
        things.get("thiers")
    with pytest.raises(
        UnknownNameError,
        match=r"Add your own by innet --import FILE, by an entry point innet\.things, or",
    ):
        things.get("hat")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("string:nothing", "no attribute 'nothing'"),
        ("string", "no attribute ''"),
        ("innet.nowhere.thing:THING", r"No module named 'innet\.nowhere'"),
    ],
)
def test_a_name_that_is_registered_wrong_is_told_with_the_line(things, target, reason):
    things.register("broken", target)
    said = rf"thing 'broken' is registered as '{target}': .*{reason}.*Mend the line"
    with pytest.raises(ConfigError, match=said):
        things.get("broken")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import innet_test_nowhere", ModuleNotFoundError),
        ("from innet_test_broken import THING", ImportError),
        ("import string; string.nothing", AttributeError),
    ],
)
def test_a_module_that_fails_itself_is_not_taken_for_a_wrong_name(things, tmp_path, text, error):
    (tmp_path / "innet_test_broken.py").write_text(f"{text}\nTHING = 1\n")
    things.register("broken", "innet_test_broken:THING")
    with pytest.raises(error) as raised:
        things.get("broken")
    assert not isinstance(raised.value, ConfigError)


def test_lazy_names_are_listed():
    assert {"Collective", "all_reduce", "__version__"} <= set(dir(innet))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topk", ("topk", {})),
        ("topk:ratio=0.05", ("topk", {"ratio": 0.05})),
        ("a:b=1, c=x,d=None", ("a", {"b": 1, "c": "x", "d": None})),
    ],
)
def test_names_with_parameters(text, expected):
    assert split_name(text) == expected


@pytest.mark.parametrize("text", ["a:", ":b=1", "a:b", "a:b=", "a:=1", "a:b=1,"])
def test_names_with_parameters_that_cannot_be_read(text):
    with pytest.raises(ConfigError, match="write NAME, or NAME:KEY=VALUE"):
        split_name(text)
