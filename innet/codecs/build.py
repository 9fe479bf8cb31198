"""From a description to a codec: presets, overrides, checked parameters, checked compositions."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from innet import kernels as kernel_sets
from innet.codecs.by_layer import (
    CodecByLayer,
    LayerGroup,
    assigned,
    first_matches,
    scope_of,
    spans_of,
)
from innet.codecs.checks import check_seed
from innet.codecs.codec import Codec
from innet.codecs.decode_once import Decoding
from innet.codecs.layers import ModelLayers, as_shapes, names_of
from innet.codecs.parts import (
    Carrier,
    Clock,
    ErrorFeedback,
    Part,
    PartContext,
    Quantizer,
    Selector,
    check_composition,
)
from innet.codecs.presets import BUILT_IN, PARTS, PRESETS
from innet.codecs.scheduled import LAYERS, ScheduledSettings
from innet.core.errors import ConfigError
from innet.core.registry import split_name
from innet.core.schedules import Schedule
from innet.core.settings import RENAMED_KEYS

CodecSpec = str | Mapping[str, Any]
"""A codec's description: a preset's name, or a mapping of parts and their parameters."""
Normal = dict[str, dict[str, Any]]  # by kind: {"name": ..., parameter: value, ...}

_SEED_STEP = 0x9E3779B97F4A7C15  # odd: 2**64 divided by the golden ratio, as hashes use it
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
    gain: bool = False,
    decoding: Decoding | None = None,
) -> Codec:
    """One worker's codec.

    Args:
        spec: a preset's name, with or without parameters, such as "topk:ratio=0.05"; or a mapping
            with any of the keys "preset", "selector", "quantizer", "carrier" and "error_feedback".
            A part is a registered name or a mapping of "name" and the part's parameters; without
            "name" the parameters are those of the preset's part. A parameter may also stand beside
            the parts, if only one of them has it. The key "layers" has codecs by pattern; see
            ``innet.codecs.by_layer``.
        seed: of the hashes, 0 .. 2**63 - 1; the same on all workers.
        worker: whose codec it is: for messages, and so that workers round by chance independently
            of each other.
        layers: the shapes of the model's layers, or their numbers of elements, in the order of the
            gradient, by name or without names: for parts that treat each by itself and are not
            given their own layers, and for codecs by pattern.
        kernels: a name that ``innet.kernels.get`` knows.
        clock: seconds, for the times in the outcome.
        gain: send the squares of what is sent, too, for AdaScale's gain; see
            ``innet.codecs.adascale``. The same on all workers.
        decoding: shared by workers in this process, which then decode equal words once.

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
    if LAYERS in spec:
        context = PartContext(kernel_sets.get(kernels), seed, worker, decoding=decoding)
        return _by_layer(spec, layers, context, clock, gain=gain)
    shapes = None if layers is None else as_shapes(layers)
    context = PartContext(kernel_sets.get(kernels), seed, worker, shapes, decoding)
    return _composed(spec, normalize(spec), context, clock, gain=gain)


def _composed(
    spec: Mapping[str, Any],
    normal: Normal,
    context: PartContext,
    clock: Clock,
    *,
    gain: bool,
    scope: str = "",
) -> Codec:
    """The codec of a description without patterns."""
    settings = scheduled_settings(normal)
    parts = {
        kind: _class(kind, chosen["name"])(settings[kind].at(0), context)
        for kind, chosen in normal.items()
    }
    check_composition(
        {kind: (normal[kind]["name"], part.capabilities) for kind, part in parts.items()}
    )
    given = {kind: _given(part, settings[kind].schedules) for kind, part in parts.items()}
    return Codec(
        **parts,
        spec=normal,
        context=context,
        clock=clock,
        settings=settings,
        description=_preset_description(spec.get("preset"), normal, parts, given),
        scope=scope,
        gain=gain,
    )


def _by_layer(
    spec: Mapping[str, Any],
    layers: ModelLayers | None,
    context: PartContext,
    clock: Clock,
    *,
    gain: bool,
) -> CodecByLayer:
    """The codec of a description with patterns."""
    patterns, rest = _patterns(spec)
    if layers is None:
        raise ConfigError(
            "codec: its patterns are for the names of a model's layers, which are not known here; "
            "give layers={name: shape, ...}, or one codec for all."
        )
    names, shapes = names_of(layers), as_shapes(layers)
    chosen = assigned(list(patterns), names, has_rest=rest is not None)
    given = [*patterns.values(), rest]
    labels = [*patterns, "others"]
    found: list[tuple[Normal, list[int], dict[str, None], Mapping[str, Any]]] = []
    for layer, index in enumerate(chosen):
        choice = given[-1 if index is None else index]
        assert choice is not None
        normal, label = normalize(choice), labels[-1 if index is None else index]
        for other, members, its_labels, _ in found:
            if other == normal:
                members.append(layer)
                its_labels[label] = None
                break
        else:
            found.append((normal, [layer], {label: None}, choice))
    groups = []
    for number, (normal, members, _, choice) in enumerate(found):
        group_layers = tuple(shapes[layer] for layer in members)
        # Groups draw other numbers than each other, the first as a codec for all layers does.
        group_seed = (context.seed + number * _SEED_STEP) % 2**63
        of_group = replace(context, seed=group_seed, layers=group_layers)
        scope = scope_of([names[layer] for layer in members], shapes, number)
        described = normal if 0 in members else without_first_layer(normal)
        codec = _composed(parsed(choice), described, of_group, clock, gain=gain, scope=scope)
        layer_names = tuple(names[layer] for layer in members)
        groups.append(LayerGroup(codec, layer_names, spans_of(members, shapes)))
    return CodecByLayer(
        groups=groups,
        names=names,
        layers=shapes,
        spec=complete(spec),
        labels=[list(label) for _, _, label, _ in found],
        seed=context.seed,
        worker=context.worker,
    )


def _patterns(
    spec: Mapping[str, Any],
) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any] | None]:
    """The descriptions by pattern, and that of other layers, if there is one."""
    given = spec[LAYERS]
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(
            f"codec: layers = {given!r} is no mapping of patterns to codecs, such as "
            '{"*.bias": "dense"}.'
        )
    patterns = {_text("a pattern of layers", name): parsed(each) for name, each in given.items()}
    if inside := [name for name, each in patterns.items() if LAYERS in each]:
        raise ConfigError(f"codec: the codec of {inside[0]!r} has patterns itself; leave them out.")
    rest = {key: each for key, each in spec.items() if key != LAYERS}
    return patterns, rest or None


def complete(spec: CodecSpec) -> dict[str, Any]:
    """The complete description: ``normalize`` of it, and of those by pattern.

    Raises:
        UnknownNameError, ConfigError: as ``build_codec``, but for what depends on the layers.
    """
    spec = parsed(spec)
    if LAYERS not in spec:
        return dict(normalize(spec))
    patterns, rest = _patterns(spec)
    by_pattern = {name: normalize(each) for name, each in patterns.items()}
    return {**(normalize(rest) if rest else {}), LAYERS: by_pattern}


def descriptions(spec: CodecSpec) -> list[Mapping[str, Any]]:
    """The descriptions of single codecs in one: itself, or that of each pattern and of the rest."""
    spec = parsed(spec)
    if LAYERS not in spec:
        return [spec]
    patterns, rest = _patterns(spec)
    return [*patterns.values(), *([rest] if rest else [])]


def check_patterns(spec: CodecSpec, names: Sequence[str]) -> None:
    """Refuse patterns that do not fit a model.

    Raises:
        ConfigError: a layer without a codec, or a pattern without a layer; names it.
    """
    spec = parsed(spec)
    if LAYERS in spec:
        patterns, rest = _patterns(spec)
        assigned(list(patterns), names, has_rest=rest is not None)


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

    None if neither the preset that was named nor one of innet's own has them. Presets of other
    distributions are not compared, because that would import the distributions.
    """
    names = {kind: chosen["name"] for kind, chosen in normal.items()}
    found: list[tuple[int, str]] = []  # by how many parameters differ
    for name in dict.fromkeys([*([named] if named else []), *BUILT_IN]):
        preset = _built_in(name) if name in BUILT_IN else _parts_of_preset(name)
        if all(preset[kind]["name"] == part for kind, part in names.items()):
            changed = _changes(preset, parts, given)
            found.append((len(changed), f"{name}({', '.join(changed)})" if changed else name))
            if name == named:
                break
    return min(found, key=lambda each: each[0])[1] if found else None


def _changes(
    preset: Normal, parts: Mapping[str, Part[Any]], given: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The parameters that differ from a preset of the same parts, as text."""
    changed = []
    for kind, part in parts.items():
        others = [each.settings.model_fields for other, each in parts.items() if other != kind]
        for key, value in given[kind].items():
            if key not in preset[kind] or preset[kind][key] != value:
                shared = any(key in fields for fields in others)
                changed.append(f"{kind}.{key}={value}" if shared else f"{key}={value}")
        # What the preset sets, and this codec has by default.
        for key in sorted(preset[kind].keys() - given[kind].keys() - {"name"}):
            value = getattr(part.parameters, key)
            if value != preset[kind][key]:
                changed.append(f"{key}={value}")
    return changed


def _parts_of_preset(name: str) -> Normal:
    """The four parts of a preset, each as a mapping."""
    return {kind: _mapping(kind, each) for kind, each in _preset(name).items()}


#: Of a preset of innet's own; a new codec is compared with all of them.
_built_in = cache(_parts_of_preset)


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
    known = ["preset", *PARTS, LAYERS]
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


def spec_of_unit(spec: CodecSpec, *, first: bool, names: Sequence[str] = ()) -> CodecSpec:
    """The codec's description for one of several units into which a model's gradient is divided.

    Args:
        spec: the user's description, for the whole model.
        first: whether the unit begins with the model's first parameter. Selectors with a rule for a
            model's first layer (``first_dense``) must apply it to this unit only.
        names: of the unit's layers, for a description by layer. Patterns for others are left out.
    """

    def of_unit(each: CodecSpec) -> Normal:
        described = normalize(each)
        return described if first else without_first_layer(described)

    spec = parsed(spec)
    if LAYERS not in spec:
        return of_unit(spec)
    patterns, rest = _patterns(spec)
    chosen = first_matches(list(patterns), names)
    kept = {
        pattern: of_unit(each)
        for index, (pattern, each) in enumerate(patterns.items())
        if index in chosen
    }
    left = of_unit(rest) if rest is not None and None in chosen else {}
    return {**left, LAYERS: kept} if kept else left


def without_first_layer(normal: Normal) -> Normal:
    """The same without the selector's rule for a model's first layer."""
    selector = normal["selector"]
    if "first_dense" in PARTS["selector"].get(selector["name"]).settings.model_fields:
        selector = {**selector, "first_dense": False}
    return {**normal, "selector": selector}


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
        # What a selector leaves out is lost without error feedback, which topk has.
        codec = "topk" if kind == "selector" else _DEFAULT_PRESET
        raise ConfigError(
            f"{name!r} is no codec but a {kind}, one part of it; write it behind a codec's name, "
            f"such as {codec}:{kind}={name}."
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
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"a codec is described by a name or a mapping, not by a {type(spec).__name__}."
        )
    preset = spec.get("preset", _DEFAULT_PRESET)
    if not isinstance(preset, str):
        return spec
    name, changes = split_name(preset)
    beside = {
        key: each
        for key, each in spec.items()
        if isinstance(key, str) and key not in ("preset", LAYERS, *PARTS, *RENAMED_KEYS)
    }
    if not changes and not beside:
        return spec
    names = {kind: _mapping(kind, each)["name"] for kind, each in _preset(name).items()}
    names |= {kind: str(changes[kind]) for kind in PARTS if kind in changes}
    for kind in PARTS:
        if kind in spec:
            names[kind] = _mapping(kind, spec[kind]).get("name", names[kind])
    found: dict[str, Any] = {kind: {"name": names[kind]} for kind in PARTS if kind in changes}
    fields = {each: _class(each, names[each]).settings.model_fields for each in PARTS}
    for key, value in {**changes, **beside}.items():
        if key not in PARTS:
            kind, parameter = _kind_and_parameter(preset, key, fields)
            if not kind and key in beside:
                return spec  # ``normalize`` says that the key is unknown
            found.setdefault(kind, {})[parameter] = value
    for key, given in spec.items():
        if key not in beside:
            found[key] = {**found[key], **_mapping(key, given)} if key in found else given
    return {**found, "preset": name} if "preset" in spec else found


def _kind_and_parameter(
    preset: str, key: str, fields: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Which part has a parameter; "" if none, for a key that is not in the preset's text.

    Raises:
        ConfigError: several parts have it; or none, and it is in the text.
    """
    kind, _, parameter = key.rpartition(".")
    kinds = [kind] if kind in PARTS else [each for each in PARTS if parameter in fields[each]]
    if len(kinds) > 1:
        choices = " or ".join(f"{each}.{parameter}" for each in kinds)
        raise ConfigError(f"codec {preset[:60]!r}: {parameter} is ambiguous; write {choices}.")
    if kinds and (not kind or kind in PARTS):
        return kinds[0], parameter
    if f"{key}=" not in preset.replace(" ", ""):
        return "", parameter
    known = sorted({*PARTS, *(field for each in fields.values() for field in each)})
    close = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ConfigError(
        f"codec {preset[:60]!r}: unknown parameter {key[:60]!r}.{hint} Known: {', '.join(known)}."
    )
