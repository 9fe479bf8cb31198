"""Experiment descriptions: typed, checked, read from TOML or from the command line.

Every experiment has one settings model here. All models refuse unknown keys, take values of the
right type only (``workers = "4"`` and ``workers = true`` are mistakes, not four and one) and know
their ranges. ``validate`` turns pydantic's findings into one ``ConfigError`` that says, for each
key, what was given and what is allowed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import ErrorDetails

from innet.core.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

Engine = Literal["jit", "interpret"]
ValuesPerPacket = Literal[32, 64, 256, 1024]
BatchSize = Annotated[int, Field(ge=1, le=4096)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
CodecDescription = str | dict[str, Any]  # a registered name, or the parts by name with settings

_UNITS = 32  # workers a slot's bitmap has room for
_SHOWN = 60  # characters of a wrong value that an error message repeats


class Settings(BaseModel):
    """What all settings models share: frozen, strict, no unknown keys, no NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )


Probability = Annotated[float, Field(ge=0, le=1)]
Duration = Annotated[float, Field(ge=0)]


class OutageSettings(Settings):
    """Workers that are cut off for a while.

    Attributes:
        begin, end: virtual seconds; without an end they stay cut off.
        workers: indices; all if there is none.
    """

    begin: Duration = 0.0
    end: Duration | None = None
    workers: tuple[Annotated[int, Field(ge=0, lt=_UNITS)], ...] = Field(default=(), strict=False)


class FaultSettings(Settings):
    """What happens to packets on every link, each way; as ``innet.network.Faults``.

    Attributes:
        loss, duplicate, reorder, corrupt, truncate, mark: probabilities, of each packet.
        delay, jitter, hold: virtual seconds.
        outages: workers that are cut off.
        restarts: virtual seconds at which the switches lose their registers.
    """

    loss: Probability = 0.0
    duplicate: Probability = 0.0
    reorder: Probability = 0.0
    corrupt: Probability = 0.0
    truncate: Probability = 0.0
    mark: Probability = 0.0
    delay: Duration = 0.0
    jitter: Duration = 0.0
    hold: Duration = 1e-3
    outages: tuple[OutageSettings, ...] = Field(default=(), strict=False)
    restarts: tuple[Duration, ...] = Field(default=(), strict=False)


class AllReduceSettings(Settings):
    """One all-reduce of generated tensors, or of those in ``input``.

    Attributes:
        workers: how many workers take part. With ``input``, as many as it has arrays.
        codec: a registered codec's name, or its parts.
        program: a compiled P4 program's name.
        racks: switches that the workers are spread over, for programs that know several levels.
        depth: levels of switches, likewise.
        engine: how the built-in switch runs the program.
        values_per_packet: int32 values in one packet; there is one compiled program for each.
        size: elements of each worker's generated tensor.
        density: share of a generated tensor's elements that are not zero, 0 to 1.
        seed: of the generated tensors, the codec's hashes and the faults.
        faults: what the network does to packets.
        window_control: how many chunks a worker has under way: "fixed" or "aimd".
        partial_after: virtual seconds after which sums go on without workers who are late.
        attempts: how often a stalled all-reduce is tried, each time under the next epoch.
        input: NumPy files (.npz or .npy) with the workers' tensors instead of generated ones.
    """

    workers: Annotated[int, Field(ge=1, le=_UNITS)] = 4
    codec: CodecDescription = "dense"
    program: str = "slots"
    racks: Annotated[int, Field(ge=1, le=_UNITS)] | None = None
    depth: Annotated[int, Field(ge=1, le=8)] | None = None
    engine: Engine = "jit"
    values_per_packet: ValuesPerPacket = 64
    size: Annotated[int, Field(ge=0, le=2**30)] = 1_000_000
    density: Annotated[float, Field(ge=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0)] = 0
    faults: FaultSettings = FaultSettings()
    window_control: Literal["fixed", "aimd"] = "fixed"
    partial_after: Annotated[float, Field(gt=0, lt=30)] | None = None
    attempts: Annotated[int, Field(ge=1, le=1000)] = 1
    input: tuple[Annotated[Path, Strict(False)], ...] = Field(default=(), strict=False)


class TrainingSettings(Settings):
    """What all experiments that train share.

    Attributes:
        workers: data-parallel workers; each holds one shard of what is trained on.
        engine: how the built-in switch runs the program.
        values_per_packet: int32 values in one packet.
        framework: a registered name of what computes the gradients; by default what the model is
            written in.
        seed: of the initial weights, the batches and the codec's hashes.
    """

    workers: Annotated[int, Field(ge=1, le=_UNITS)] = 4
    engine: Engine = "jit"
    values_per_packet: ValuesPerPacket = 64
    framework: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0


class DemoSettings(TrainingSettings):
    """The demonstration: one training, three ways to sum its gradients.

    Attributes:
        batch_size: images per worker and iteration.
        learning_rate: step size of SGD, for the mean gradient of the workers.
        momentum: of SGD, 0 to below 1.
        iterations: optimizer steps of each of the three runs.
        ratio: share of the gradient's elements that top-k selects, above 0 and at most 1.
    """

    batch_size: BatchSize = 16
    learning_rate: LearningRate = 0.05
    momentum: Momentum = 0.9
    iterations: Annotated[int, Field(ge=1, le=1_000_000)] = 330
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01


class TrainSettings(TrainingSettings):
    """One training for each codec and seed, beside plain float32 sums from the same start.

    Attributes:
        model: a registered model's name.
        codecs: at least one; registered names or their parts, no two the same.
        batch_size: samples per worker and iteration; None, here and below: as the model has it.
        learning_rate: step size of SGD, for the mean gradient of the workers.
        momentum: of SGD, 0 to below 1.
        epochs: passes over what is trained on.
        repeats: how many seeds, from ``seed`` on.
        evaluate: what the model is judged by: its test set, or a part of what it is trained on
            otherwise, for choosing settings by.
    """

    model: str = "digits-cnn"
    codecs: tuple[CodecDescription, ...] = Field(default=("topk",), min_length=1, strict=False)
    batch_size: BatchSize | None = None
    learning_rate: LearningRate | None = None
    momentum: Momentum | None = None
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    evaluate: Literal["test", "validation"] = "test"


class ThroughputSettings(Settings):
    """A sweep over all combinations of what is listed.

    Attributes:
        workers: numbers of workers.
        codecs: registered names.
        values_per_packet: int32 values in one packet.
        windows: chunks of a worker under way at once, powers of two.
        topologies: "star": one switch; "tree": two racks of workers below a root.
        switches: "memory"; or in Mininet "builtin" and "bmv2".
        size: elements of each worker's gradient.
        size_bmv2: the same for "bmv2", which is slower by an order of magnitude.
        density: share of the elements that are not zero.
        rounds: all-reduces at each point, after one to warm up.
        framing: in Mininet.
        seed: of gradients and hashes.
    """

    workers: tuple[Annotated[int, Field(ge=1, le=_UNITS)], ...] = Field(
        default=(2, 4), min_length=1, strict=False
    )
    codecs: tuple[str, ...] = Field(default=("dense",), min_length=1, strict=False)
    values_per_packet: tuple[ValuesPerPacket, ...] = Field(
        default=(64,), min_length=1, strict=False
    )
    windows: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(64, 256), min_length=1, strict=False
    )
    topologies: tuple[Literal["star", "tree"], ...] = Field(
        default=("star",), min_length=1, strict=False
    )
    switches: tuple[Literal["memory", "builtin", "bmv2"], ...] = Field(
        default=("memory",), min_length=1, strict=False
    )
    size: Annotated[int, Field(ge=1, le=2**30)] = 1_000_000
    size_bmv2: Annotated[int, Field(ge=1, le=2**30)] = 100_000
    density: Annotated[float, Field(ge=0, le=1)] = 1.0
    rounds: Annotated[int, Field(ge=1)] = 5
    framing: Literal["udp", "raw"] = "udp"
    seed: Annotated[int, Field(ge=0)] = 0


def validate(model_class: type[Model], mapping: Mapping[str, Any], source: str = "") -> Model:
    """``model_class`` filled from ``mapping``.

    Args:
        model_class: the settings to fill.
        mapping: keys and values as a person wrote them.
        source: where the mapping came from (a file's name), for the message.

    Raises:
        ConfigError: names every key that cannot be used, what was given and what is allowed.
    """
    try:
        return model_class.model_validate(dict(mapping))
    except ValidationError as error:
        schema = _json_schema(model_class)
        findings = [_explain(details, schema) for details in error.errors(include_url=False)]
    where = f"{source}: " if source else ""
    # The branches of a union each report the key; the one that looked deepest knows best.
    keys = [key for key, _ in findings]
    problems = [
        problem
        for key, problem in dict.fromkeys(findings)
        if not any(other.startswith(f"{key}.") for other in keys)
    ]
    if len(problems) == 1:
        raise ConfigError(where + problems[0])
    raise ConfigError(
        f"{where}{len(problems)} settings cannot be used:\n  " + "\n  ".join(problems)
    )


def load_toml(path: str | Path, model_class: type[Model]) -> Model:
    """``model_class`` filled from a TOML file.

    Raises:
        ConfigError: the file cannot be read, is no TOML (with the line), or a key cannot be used.
    """
    return validate(model_class, read_toml(Path(path)), source=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds, unchecked.

    Raises:
        ConfigError: the file cannot be read, or is no TOML (with the line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except RecursionError:
        raise ConfigError(f"{path} is no valid TOML: it is nested too deeply.") from None
    except tomllib.TOMLDecodeError as error:
        # The message ends in "(at line 3, column 7)".
        raise ConfigError(f"{path} is no valid TOML: {error}.") from None


def _json_schema(model_class: type[BaseModel]) -> dict[str, Any]:
    try:
        return model_class.model_json_schema()
    except PydanticInvalidForJsonSchema:
        return {}  # a field of a type JSON has no word for: messages then lack "allowed"


def _explain(details: ErrorDetails, schema: dict[str, Any]) -> tuple[str, str]:
    """The key of one of pydantic's findings, and a sentence about it."""
    kind = details["type"]
    if kind == "extra_forbidden":
        *parents, last = details["loc"]
        path, parent = _find(schema, tuple(parents))
        known = sorted(parent.get("properties", {}))
        close = difflib.get_close_matches(str(last), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        key = ".".join([*path, str(last)])
        return key, f"unknown key {key!r}.{hint} Known: {', '.join(known) or 'none'}."
    path, field = _find(schema, details["loc"])
    key = ".".join(path) or "the description"
    allowed = _describe(field, schema)
    if kind == "missing":
        return key, f"{key} is missing" + (f"; give {allowed}." if allowed else ".")
    # A check written in Python, or a discriminator, says more than the field's type.
    if kind in {"value_error", "union_tag_invalid", "union_tag_not_found"} or not allowed:
        return key, f"{key} = {_shown(details['input'])} cannot be used; " + (
            details["msg"].removeprefix("Value error, ").rstrip(".") + "."
        )
    return key, f"{key} = {_shown(details['input'])} cannot be used; allowed is {allowed}."


def _shown(value: object) -> str:
    return shortened(repr(value))


def shortened(text: str) -> str:
    """``text``, or so much of it as an error message can repeat."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _find(
    schema: dict[str, Any], location: tuple[str | int, ...]
) -> tuple[list[str], dict[str, Any]]:
    """Follows pydantic's ``location`` of a finding through a JSON schema.

    Returns:
        The keys as a person wrote them, without the names of a union's branches that pydantic puts
        between them; and the part of the schema that describes the value, {} if there is none.
    """
    path: list[str] = []
    here = _resolve(schema, schema)
    for step in location:
        branches = _branches(here, schema)
        tags = [branch.get("discriminator", {}).get("mapping", {}) for branch in (here, *branches)]
        tagged = next((mapping[step] for mapping in tags if step in mapping), None)
        found = next(
            (part for branch in branches if (part := _child(branch, step)) is not None), None
        )
        if tagged is not None:
            here = _resolve({"$ref": tagged}, schema)
        elif found is not None or branches == [here]:
            path.append(str(step))
            here = _resolve(found or {}, schema)
        # Otherwise the step is the name of a branch.
    return path, here


def _child(part: dict[str, Any], step: str | int) -> dict[str, Any] | None:
    children = part if isinstance(step, int) else part.get("properties", {})
    found: dict[str, Any] | None = children.get("items" if isinstance(step, int) else step)
    return found


def _branches(part: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a union, those of unions within it too; else the part itself."""
    alternatives = [*part.get("anyOf", ()), *part.get("oneOf", ())]
    if not alternatives:
        return [part]
    nested = [_resolve(each, schema) for each in alternatives]
    return [*nested, *(leaf for each in nested for leaf in _branches(each, schema))]


def _resolve(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def _describe(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    part = _resolve(part, schema)
    if "enum" in part or "const" in part:
        values = [repr(value) for value in part.get("enum", [part.get("const")])]
        return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)
    for union in ("anyOf", "oneOf"):
        if union in part:
            words = (_describe(each, schema) for each in part[union])
            return " or ".join(dict.fromkeys(filter(None, words)))
    kind = part.get("type", "")
    if kind in {"integer", "number"}:
        article = "an integer" if kind == "integer" else "a number"
        return article + _bounds(part)
    if kind == "array":
        return f"a list, each item {_describe(part.get('items', {}), schema) or 'anything'}"
    return {
        "string": "a path" if part.get("format") == "path" else "a string",
        "boolean": "true or false",
        "object": "a table of settings",
        "null": "nothing",
    }.get(kind, "")


def _bounds(part: dict[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    bounds = [
        f"{words} {limit}"
        for words, limit in (
            ("at least", low), ("above", above), ("at most", high), ("below", below)
        )
        if limit is not None
    ]  # fmt: skip
    return " " + " and ".join(bounds) if bounds else ""
