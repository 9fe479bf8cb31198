"""From a description to a codec: presets, overrides, checked parameters, checked compositions."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping
from typing import Any

from innet import kernels as kernel_sets
from innet.codecs.checks import check_seed
from innet.codecs.codec import Codec
from innet.codecs.layers import ModelLayers, as_shapes
from innet.codecs.parts import (
    Carrier,
    Clock,
    Context,
    ErrorFeedback,
    Part,
    Quantizer,
    Selector,
    check_composition,
)
from innet.codecs.presets import BUILT_IN, PARTS, PRESETS
from innet.codecs.scheduled import ScheduledSettings
from innet.core.errors import ConfigError
from innet.core.registry import split_name
from innet.core.schedules import Schedule
from innet.core.settings import RENAMED_KEYS

CodecSpec = str | Mapping[str, Any]
Normal = dict[str, dict[str, Any]]  # by kind: {"name": ..., parameter: value, ...}

_DEFAULT_PRESET = "dense"  # what a description says nothing about is as in this one
_BASES: Mapping[str, type[Part[Any]]] = {
    each.kind: each for each in (Selector, Quantizer, Carrier, ErrorFeedback)
}


def build_codec(
    spec: CodecSpec = _DEFAULT_PRESET,
    *,
    seed: int = 0,
    worker: int = 0,
    layers: ModelLayers | None = None,
    kernels: str = "cpu",
    clock: Clock = time.perf_counter,
) -> Codec:
    """One worker's codec.

    Args:
        spec: a preset's name, with or without parameters, such as "topk:ratio=0.05"; or a mapping
            with any of the keys "preset", "selector", "quantizer", "carrier" and "error_feedback".
            A part is a registered name or a mapping of "name" and the part's parameters; without
            "name" the parameters are those of the preset's part.
        seed: of the hashes, 0 .. 2**63 - 1; the same on all workers.
        worker: whose codec it is: for messages, and so that workers round by chance independently
            of each other.
        layers: the shapes of the model's layers, or their numbers of elements, in the order of the
            gradient: for parts that treat each by itself and are not given layers of their own.
        kernels: a name that ``innet.kernels.get`` knows.
        clock: seconds, for the times in the outcome.

    Raises:
        UnknownNameError: no preset or part of that name; lists those that exist.
        ConfigError: an unknown key or parameter, a value out of range, or something registered that
            is no part or preset.
        CompositionError: parts that cannot work together, with the reason.
        InputError: a seed out of range, or layers that have no shape.

    Example:
        >>> build_codec({"preset": "topk", "selector": {"ratio": 0.05}}).describe()
        'topk(ratio=0.05)'
    """
    seed = check_seed(seed)
    spec = parsed(spec)
    normal = normalize(spec)
    shapes = None if layers is None else as_shapes(layers)
    context = Context(kernel_sets.get(kernels), seed, worker, shapes)
    settings = scheduled_settings(normal)
    parts = {
        kind: _class(kind, chosen["name"])(settings[kind].at(0), context)
        for kind, chosen in normal.items()
    }
    check_composition(
        {kind: (normal[kind]["name"], part.capabilities) for kind, part in parts.items()}
    )
    named = spec.get("preset")
    given = {kind: _given(part, settings[kind].schedules) for kind, part in parts.items()}
    return Codec(
        **parts,
        spec=normal,
        context=context,
        clock=clock,
        settings=settings,
        description=_preset_description(named, normal, parts, given),
    )


def _given(part: Part[Any], schedules: Mapping[str, Schedule]) -> dict[str, Any]:
    """The parameters that differ from the defaults, with schedules in place of their numbers."""
    return {**part.parameters.model_dump(exclude_defaults=True), **schedules}


def _preset_description(
    named: str | None,
    normal: Normal,
    parts: Mapping[str, Part[Any]],
    given: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """The name of the preset that has these parts, with the parameters that differ from it.

    None where no preset has them: neither the one that was named nor one of innet's own. Others
    are not looked at, as that would import other distributions.
    """
    names = {kind: chosen["name"] for kind, chosen in normal.items()}
    for name in dict.fromkeys([*([named] if named else []), *BUILT_IN]):
        preset = {kind: _mapping(kind, each) for kind, each in _preset(name).items()}
        if {kind: each["name"] for kind, each in preset.items()} == names:
            break
    else:
        return None
    changed = []
    for kind in parts:
        others = [each.settings.model_fields for other, each in parts.items() if other != kind]
        for key, value in given[kind].items():
            if key not in preset[kind] or preset[kind][key] != value:
                shared = any(key in fields for fields in others)
                changed.append(f"{kind}.{key}={value}" if shared else f"{key}={value}")
        # What the preset sets, and this codec has by default.
        reset = sorted(preset[kind].keys() - given[kind].keys() - {"name"})
        changed += [f"{key}={getattr(parts[kind].parameters, key)}" for key in reset]
    return f"{name}({', '.join(changed)})" if changed else name


def normalize(spec: CodecSpec) -> Normal:
    """The four parts with name and parameters, whatever form the description has.

    Raises:
        UnknownNameError: no such preset.
        ConfigError: an unknown key, a part that is neither a name nor a mapping, or a preset that
            is none.
    """
    spec = parsed(spec)
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"a codec is described by a name or a mapping, not by a {type(spec).__name__}."
        )
    known = ["preset", *PARTS]
    for key in spec:
        if key in RENAMED_KEYS:
            raise ConfigError(
                f"codec: {key!r} is called {RENAMED_KEYS[key]!r}; write that instead."
            )
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"codec: unknown key {key!r}.{hint} Known: {', '.join(known)}.")
    preset = _preset(_text("preset", spec.get("preset", _DEFAULT_PRESET)))
    return {kind: _part(kind, preset[kind], spec.get(kind, {})) for kind in PARTS}


def spec_of_unit(spec: CodecSpec, *, first: bool) -> CodecSpec:
    """The codec's description for one of several units into which a model's gradient is divided.

    Args:
        spec: the user's description, for the whole model.
        first: whether the unit begins with the model's first parameter. Selectors with a rule for a
            model's first layer (``first_dense``) must apply it to this unit only.
    """
    described = normalize(spec)
    selector = described["selector"]
    if not first and "first_dense" in PARTS["selector"].get(selector["name"]).settings.model_fields:
        selector = {**selector, "first_dense": False}
    return {**described, "selector": selector}


def scheduled_settings(normal: Normal) -> dict[str, ScheduledSettings]:
    """The parameters of the four parts, which may still not fit each other or the layers.

    Raises:
        ConfigError: an unknown parameter, or a value out of range; or as ``build_codec``.
    """
    found: dict[str, ScheduledSettings] = {}
    for kind, chosen in normal.items():
        given = {key: value for key, value in chosen.items() if key != "name"}
        source = f"{kind} {chosen['name']!r}"
        found[kind] = ScheduledSettings.of(_class(kind, chosen["name"]).settings, given, source)
    return found


def _class(kind: str, name: str) -> type[Any]:
    """What is registered as a part, once it is known to be one."""
    found: object = PARTS[kind].get(name)
    base = _BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"{kind} {name!r} is registered as {found!r}; it has to be a class derived from "
            f"innet.codecs.parts.{base.__name__}."
        )
    lacking = sorted(getattr(found, "__abstractmethods__", ()))
    if lacking := lacking + ["name"] * (not hasattr(found, "name")):
        raise ConfigError(f"{kind} {name!r}: its class {found.__qualname__} lacks {lacking}.")
    return found


def _preset(name: str) -> dict[str, Any]:
    """All parts of a preset: those that it does not name are the default's."""
    if name not in PRESETS and (kind := _kind_of(name)):
        raise ConfigError(
            f"{name!r} is no codec but a {kind}, one part of it; write it behind a codec's name, "
            f"such as {_DEFAULT_PRESET}:{kind}={name}."
        )
    found: object = PRESETS.get(name)
    if not (isinstance(found, Mapping) and found.keys() <= PARTS.keys()):
        raise ConfigError(
            f"codec {name!r} is registered as {found!r}; it has to be a mapping with keys out of "
            f"{', '.join(PARTS)}."
        )
    return {**PRESETS.get(_DEFAULT_PRESET), **found}


def _kind_of(name: str) -> str | None:
    """Which part has this name."""
    return next((kind for kind, registry in PARTS.items() if name in registry), None)


def _part(kind: str, preset: object, given: object) -> dict[str, Any]:
    base, override = _mapping(kind, preset), _mapping(kind, given)
    name = _text(f"{kind}.name", override.get("name", base["name"]))
    # Parameters of the preset's part mean nothing to another part.
    kept = base if name == base["name"] else {}
    return {"name": name, **{k: v for k, v in {**kept, **override}.items() if k != "name"}}


def _mapping(kind: str, given: object) -> dict[str, Any]:
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping):
        return dict(given)
    raise ConfigError(
        f"codec: {kind} = {given!r} is neither a name nor a mapping of a name and parameters."
    )


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"codec: {key} = {value!r} is not a name.")
    return value


def parsed(spec: CodecSpec) -> Mapping[str, Any]:
    """A mapping of what a person wrote, such as "topk:ratio=0.05,carrier=dense".

    A key is a part's kind, a parameter of one of the preset's parts, or both with a dot between
    them. Whatever is no such text stays as it is.

    Raises:
        UnknownNameError: no such preset.
        ConfigError: text of another form, or a key that no part or several parts know.
    """
    if isinstance(spec, str):
        spec = {"preset": spec}
    preset = spec.get("preset") if isinstance(spec, Mapping) else None
    if not isinstance(preset, str) or ":" not in preset:
        return spec
    name, changes = split_name(preset)
    names = {kind: _mapping(kind, each)["name"] for kind, each in _preset(name).items()}
    names |= {kind: str(changes[kind]) for kind in PARTS if kind in changes}
    found: dict[str, Any] = {kind: {"name": names[kind]} for kind in PARTS if kind in changes}
    for key in changes.keys() - found.keys():
        kind, _, parameter = key.rpartition(".")
        fields = {each: _class(each, names[each]).settings.model_fields for each in PARTS}
        kinds = [kind] if kind in PARTS else [each for each in PARTS if parameter in fields[each]]
        if len(kinds) > 1:
            choices = " or ".join(f"{each}.{parameter}" for each in kinds)
            raise ConfigError(f"codec {preset[:60]!r}: {parameter} is ambiguous; write {choices}.")
        if not kinds or (kind and kind not in PARTS):
            known = sorted({*PARTS, *(field for each in fields.values() for field in each)})
            close = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"codec {preset[:60]!r}: unknown parameter {key[:60]!r}.{hint} "
                f"Known: {', '.join(known)}."
            )
        found.setdefault(kinds[0], {})[parameter] = changes[key]
    for kind, given in spec.items():
        found[kind] = {**found[kind], **_mapping(kind, given)} if kind in found else given
    return {**found, "preset": name}
