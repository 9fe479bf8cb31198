"""Settings: what is refused, and what the message says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from innet.allreduce.collective import Collective, all_reduce
from innet.core.errors import ConfigError
from innet.core.settings import (
    AllReduceSettings,
    DemoSettings,
    FaultSettings,
    Settings,
    SimulateSettings,
    load_toml,
    validate,
)
from innet.network import Faults
from innet.protocol import Timing


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["inner"] = "inner"
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.5


class Other(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["other"] = "other"
    rows: int


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    inner: Inner = Inner()
    either: str | Annotated[Inner | Other, Field(discriminator="name")] = "inner"
    even: int = 0

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("it must be even")
        return value


@pytest.mark.parametrize(
    ("model", "mapping", "expected"),
    [
        (
            AllReduceSettings,
            {"workers": 40_000},
            "workers = 40000 cannot be used; a job takes 1 to 32768.",
        ),
        (
            AllReduceSettings,
            {"workers": True},
            "workers = True cannot be used; allowed is an integer from 1 to 32768.",
        ),
        (
            AllReduceSettings,
            {"values_per_packet": 33},
            "values_per_packet = 33 cannot be used; allowed is 32, 64, 256 or 1024.",
        ),
        (
            AllReduceSettings,
            {"engine": "fast"},
            "engine = 'fast' cannot be used; allowed is 'jit' or 'interpret'.",
        ),
        (
            AllReduceSettings,
            {"density": float("nan")},
            "density = nan cannot be used; allowed is a number from 0 to 1.",
        ),
        (
            AllReduceSettings,
            {"codec": 3},
            "codec = 3 cannot be used; allowed is a string or a table of settings.",
        ),
        (
            AllReduceSettings,
            {"input": [3]},
            "input.0 = 3 cannot be used; allowed is a path.",
        ),
        (
            DemoSettings,
            {"momentum": 1.0},
            "momentum = 1.0 cannot be used; allowed is a number at least 0 and below 1.",
        ),
        (
            DemoSettings,
            {"ratio": 0},
            "ratio = 0 cannot be used; allowed is a number above 0 and at most 1.",
        ),
        (
            Outer,
            {"inner": {"ratoi": 1.0}},
            "unknown key 'inner.ratoi'. Did you mean 'ratio'? Known: name, ratio.",
        ),
        (
            Outer,
            {"either": {"name": "other"}},
            "either.rows is missing; give an integer.",
        ),
        (
            Outer,
            {"either": {"name": "inner", "ratio": 2.0}},
            "either.ratio = 2.0 cannot be used; allowed is a number above 0 and at most 1.",
        ),
        (Outer, {"even": 3}, "even = 3 cannot be used; it must be even."),
    ],
)
def test_message_names_key_value_and_what_is_allowed(
    model: type[BaseModel], mapping: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(model, mapping)
    assert str(caught.value) == expected


@pytest.mark.parametrize("given", [1e6, 1_000_000])
def test_a_whole_number_is_an_integer_however_it_is_written(given: Any) -> None:
    found = validate(SimulateSettings, {"size": given, "compute": 2.0, "window": 64.0})
    assert (found.size, found.window) == (1_000_000, 64)
    assert all(type(each) is int for each in (found.size, found.window))
    assert type(found.compute) is float
    for wrong in (1.5, 1e99, float("inf"), "1e6", True):
        with pytest.raises(ConfigError, match=r"size = .* cannot be used; allowed is an integer"):
            validate(SimulateSettings, {"size": wrong})


def test_unknown_key_suggests_the_nearest_and_lists_the_known() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown key 'worker'\. Did you mean 'workers'"
    ) as caught:
        validate(AllReduceSettings, {"worker": 4})
    assert "values_per_packet" in str(caught.value)


def test_all_problems_are_listed_at_once_with_their_source() -> None:
    with pytest.raises(ConfigError) as caught:
        validate(AllReduceSettings, {"size": -1, "seed": -1, "codec": 3}, source="run.toml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "run.toml: 3 settings cannot be used:"
    assert {line.split()[0] for line in lines[1:]} == {"codec", "size", "seed"}


def test_good_settings_are_taken_and_cannot_be_changed_later() -> None:
    settings = validate(
        AllReduceSettings, {"workers": 32, "density": 1, "input": ["a.npz"], "codec": {"a": 1}}
    )
    assert settings.workers == 32
    assert settings.density == 1.0
    assert [path.name for path in settings.input] == ["a.npz"]
    with pytest.raises(ValueError, match="frozen"):
        settings.workers = 2  # type: ignore[misc]


@pytest.mark.parametrize("model", [AllReduceSettings, DemoSettings])
def test_defaults_are_within_their_own_ranges(model: type[BaseModel]) -> None:
    assert validate(model, {}) == model()


class TestToml:
    def test_values_arrive(self, tmp_path: Any) -> None:
        path = tmp_path / "run.toml"
        path.write_text("workers = 8\n[codec]\nselector = 'topk'\n")
        settings = load_toml(path, AllReduceSettings)
        assert (settings.workers, settings.codec) == (8, {"selector": "topk"})

    def test_a_bad_key_is_told_with_the_file(self, tmp_path: Any) -> None:
        path = tmp_path / "run.toml"
        path.write_text("sed = 8\n")
        with pytest.raises(
            ConfigError, match=r"run\.toml: unknown key 'sed'\. Did you mean 'seed'"
        ):
            load_toml(path, AllReduceSettings)

    def test_a_syntax_error_is_told_with_the_line(self, tmp_path: Any) -> None:
        path = tmp_path / "run.toml"
        path.write_text("workers = 8\nsize = = 3\n")
        with pytest.raises(ConfigError, match=r"run\.toml is no valid TOML: .*line 2"):
            load_toml(path, AllReduceSettings)

    def test_a_missing_file(self, tmp_path: Any) -> None:
        with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
            load_toml(tmp_path / "absent.toml", AllReduceSettings)

    def test_bytes_that_are_no_text(self, tmp_path: Any) -> None:
        path = tmp_path / "run.toml"
        path.write_bytes(b"a = 1\n\xff")
        with pytest.raises(ConfigError, match="not UTF-8 text"):
            load_toml(path, AllReduceSettings)


@pytest.mark.parametrize(
    ("function", "model"),
    [(Collective, AllReduceSettings), (Timing, AllReduceSettings), (Faults, FaultSettings)],
)
def test_defaults_in_python_are_those_of_the_settings(
    function: Callable[..., object], model: type[Settings]
) -> None:
    arguments = inspect.signature(function).parameters
    shared = {
        name: field.default
        for name, field in model.model_fields.items()
        if name in arguments and field.default_factory is None and name != "faults"
    }
    assert len(shared) > 1
    assert {name: arguments[name].default for name in shared} == shared


def test_all_reduce_takes_the_arguments_of_collective() -> None:
    takes = {name: (each.annotation, each.default) for name, each in parameters_of(all_reduce)}
    collective = {name: (each.annotation, each.default) for name, each in parameters_of(Collective)}
    del takes["gradients"], collective["workers"]
    del collective["rack_codec"]  # it sums once, over all workers
    assert takes == collective


def parameters_of(function: Callable[..., object]) -> list[tuple[str, inspect.Parameter]]:
    return list(inspect.signature(function).parameters.items())
