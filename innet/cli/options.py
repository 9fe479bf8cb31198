"""Command-line options derived from settings models, and options of several commands.

    @with_settings(AllReduceSettings)
    def allreduce(settings: AllReduceSettings, *, output: OutputOption = None) -> None: ...

is a command with an option for each setting, the function's own options, and ``--config`` for a
TOML file. Options that are not given are not passed on, as the model has the defaults.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from innet.core.errors import ConfigError, InputError
from innet.core.registry import literal
from innet.core.settings import (
    Model,
    PacketsPerCall,
    PriorityQueues,
    Settings,
    SwitchEngine,
    load_toml,
    shortened,
    validate,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigOption = Annotated[Path | None, typer.Option(help="Settings in TOML. Options override them.")]
OutDirOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for record and plot.")]
OUT_DIR = Path("innet-out")
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the sum to this .npy file.")
]
RecordingOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Record what happens to each packet in this JSON file, for innet view.",
    ),
]
WatchOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SWITCH:REGISTER[INDEX]",
        help="With --record: record the values of this cell, or of a whole register. Repeatable.",
    ),
]

# Options with another name than their setting, or with a short form.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "workers": ("--workers", "-w"),
    "codec": ("--codec", "-c"),
    "codecs": ("--codec", "-c"),
    "engine": ("--engine", "-e"),
    "model": ("--model", "-m"),
    "networks": ("--network",),
    "baselines": ("--baseline",),
    "input": ("--input", "-i"),
    "windows": ("--window",),
    "topologies": ("--topology",),
    "switches": ("--switch",),
    "restarts": ("--restart",),
    "pauses": ("--pause",),
    "link_delay": ("--delay",),
    "repeats": ("--seeds", "--repeats"),
    "fast_forward": (" /--no-fast-forward",),
}
_METAVARS: Mapping[str, str] = {
    "pauses": "WORKER:ITERATION:SECONDS",
    "input": "FILE",
    "key_file": "FILE",
    "listen": "ADDRESS:PORT",
    "metrics": "ADDRESS:PORT",
    "pcap": "FOLDER",
    "restarts": "SECONDS",
    "simple_switch": "FILE",
    "windows": "NUMBER",
    "workers": "NUMBER",
}
_ANNOTATED: Any = Annotated  # for types known only at run time
_OPTIONAL: Any = Optional
_LARGEST_SHOWN = 10_000  # ranges with a larger end are not shown


# ----------------------------------------------------------------------------
# Values of options, for the shell's completion.


def codec_names() -> list[str]:
    """Names of codecs."""
    from innet.codecs.presets import PRESETS

    return PRESETS.names()


def _topologies() -> list[str]:
    from innet.topology import TOPOLOGIES

    return TOPOLOGIES.names()


def _service_transports() -> list[str]:
    from innet.transport.transports import service_transports

    return list(service_transports())


def models() -> list[str]:
    """Names of models."""
    from innet.experiments.models.model import MODELS

    return MODELS.names()


def _simulated_models() -> list[str]:
    from innet.scenarios.workload import names

    return names()


def _frameworks() -> list[str]:
    from innet.experiments.models.digits_cnn import FRAMEWORKS

    return FRAMEWORKS.names()


def programs() -> list[str]:
    """Names of P4 programs, as ``--program`` takes them."""
    from innet.programs import available

    return sorted({entry.program for entry in available().values()})


def compiled_programs() -> list[str]:
    """Names of compiled programs, such as slots-64."""
    from innet.programs import available

    return sorted(available())


_COMPLETIONS: Mapping[str, Callable[[], list[str]]] = {
    "codec": codec_names,
    "codecs": codec_names,
    "framework": _frameworks,
    "model": models,
    "Simulation.model": _simulated_models,  # a panel and a name, where the name alone is another's
    "program": programs,
    "Service.transport": _service_transports,
    "topology": _topologies,
    "topologies": _topologies,
}


def completing(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """A completion for Typer: those of ``names`` that begin with the typed text."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


# ----------------------------------------------------------------------------
# From a field of a model to an option.


class Setting(NamedTuple):
    """A setting from which an option is made.

    Attributes:
        key: its name, with dots for nested models.
        field: pydantic's field.
        panel: heading in ``--help``.
    """

    key: str
    field: FieldInfo
    panel: str

    @property
    def name(self) -> str:
        """The name of the parameter and, with hyphens, of the option."""
        return self.key.rpartition(".")[2]


def settings_in(model: type[Settings], prefix: str = "") -> Iterator[Setting]:
    """All settings of a model and its nested models."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            yield from settings_in(field.annotation, f"{prefix}{name}.")
            continue
        classes = [
            each
            for each in model.__mro__
            if issubclass(each, Settings) and name in inspect.get_annotations(each)
        ]
        yield Setting(prefix + name, field, classes[-1].panel)


class _Kind(NamedTuple):
    """The allowed values of an annotation."""

    type: Any
    choices: tuple[Any, ...]
    multiple: bool
    low: Any
    high: Any
    description: str


def _kind(annotation: Any, metadata: Collection[Any] = (), description: str = "") -> _Kind:
    """Unpack Annotated, optional, Literal and tuple annotations."""
    metadata = list(metadata)
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation, *more = arguments
            for each in more:
                if isinstance(each, FieldInfo):
                    metadata += each.metadata
                    description = description or each.description or ""
                else:
                    metadata.append(each)
        elif origin in (Union, UnionType):
            annotation = next(each for each in arguments if each is not type(None))
        elif origin is tuple:
            inner = _kind(arguments[0])
            return inner._replace(multiple=True, description=description or inner.description)
        else:
            break
    choices: tuple[Any, ...] = ()
    if origin is Literal:
        choices = arguments
        annotation = type(choices[0])
    low = next((each.ge for each in metadata if hasattr(each, "ge")), None)
    high = next((each.le for each in metadata if hasattr(each, "le")), None)
    return _Kind(annotation, choices, False, low, high, description)


def _parameter(setting: Setting) -> inspect.Parameter:
    """The option of a setting, as a parameter of the function that Typer is given."""
    name, field = setting.name, setting.field
    kind = _kind(field.annotation, field.metadata, field.description or "")
    metavar = _METAVARS.get(name)
    if kind.choices:
        metavar = "|".join(map(str, kind.choices))
    elif kind.low is not None and kind.high is not None and kind.high <= _LARGEST_SHOWN:
        metavar = f"{kind.low}..{kind.high}"
    elif name in _COMPLETIONS or f"{setting.panel}.{name}" in _COMPLETIONS:
        metavar = "NAME"
    text = kind.description
    if kind.multiple:
        text = f"{text} Repeatable."
    if default := _default(field):
        text = f"{text} [default: {default}]"
    complete = _COMPLETIONS.get(f"{setting.panel}.{name}", _COMPLETIONS.get(name))
    if kind.choices:
        complete = lambda: list(map(str, kind.choices))  # noqa: E731 - a name says no more
    # A second --codec is an error instead of replacing the first.
    listed = kind.multiple or name == "codec"
    option = typer.Option(
        *_NAMES.get(name, (f"--{name.replace('_', '-')}",)),
        help=text,
        metavar=metavar,
        rich_help_panel=setting.panel,
        autocompletion=completing(complete) if complete else None,
        parser=_PARSERS.get(kind.type),
    )
    value = GenericAlias(list, (kind.type,)) if listed else kind.type
    return _optional(name, value, option)


def _number(text: str) -> Any:
    """The number that a text is; else the text itself, which settings refuse in their own words."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


_number.__name__ = "number"  # what --help calls it
_PARSERS: Mapping[Any, Callable[[str], Any]] = {int: _number, float: _number}


def _optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = _ANNOTATED[_OPTIONAL[kind], option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _default(field: FieldInfo) -> str:
    """The default as the user would type it; "" if the description has it."""
    if field.is_required() or field.default_factory is not None or field.default is None:
        return ""
    values = field.default if isinstance(field.default, tuple) else (field.default,)
    return ", ".join(f"{it:g}" if isinstance(it, float) else str(it) for it in values)


# Settings with several options.
_COMPOSED: Mapping[str, Mapping[str, Any]] = {
    "outages": {
        "crash": typer.Option(
            metavar="WORKER:BEGIN[:END]",
            help="A worker, or a switch by its name, is cut off from BEGIN to END s, or forever. "
            "Repeatable.",
        ),
        "partition": typer.Option(metavar="BEGIN:END", help="All workers are cut off. Repeatable."),
    },
}
_SET = typer.Option(
    "--set",
    metavar="PART.KEY=VALUE",
    help="Change a parameter of a codec's part, such as selector.ratio=0.05. Repeatable.",
    rich_help_panel="Codec",
)

_LAYER = typer.Option(
    "--layer",
    metavar="PATTERN=CODEC",
    help="The codec of layers by their names, such as '*.bias=dense'; --codec for the others. "
    "The first match decides. Repeatable.",
    rich_help_panel="Codec",
)


def parameters_of(settings: Collection[Setting]) -> list[inspect.Parameter]:
    """The options of settings, in the order of the models."""
    found = []
    for each in settings:
        if each.name in _COMPOSED:
            for name, option in _COMPOSED[each.name].items():
                option.rich_help_panel = each.panel
                found.append(_optional(name, list[str], option))
            continue
        found.append(_parameter(each))
        if each.name in ("codec", "codecs"):
            found.append(_optional("codec_parameters", list[str], _SET))
            found.append(_optional("codec_layers", list[str], _LAYER))
    return found


def declared(name: str, declaration: Any) -> Any:
    """The option of one setting as ``innet.core.settings`` declares it, for any command.

    Args:
        name: of the setting.
        declaration: an annotation, or the field of a model.
    """
    is_field = isinstance(declaration, FieldInfo)
    field = declaration if is_field else FieldInfo.from_annotation(declaration)
    option = get_args(_parameter(Setting(name, field, "")).annotation)[1]
    option.rich_help_panel = option.parser = None  # no settings check it afterwards
    return option


EngineOption = Annotated[str, declared("engine", SwitchEngine)]
PriorityQueuesOption = Annotated[int, declared("priority_queues", PriorityQueues)]
BatchOption = Annotated[int, declared("batch", PacketsPerCall)]

# ----------------------------------------------------------------------------
# From options to settings.


def watches_of(given: Sequence[str], recording: Path | None) -> dict[str, list[str]]:
    """Cells to watch, by switch.

    Raises:
        InputError: one that is written otherwise, or nothing is recorded.
    """
    if given and recording is None:
        raise InputError("--watch says what --record records; add --record, or leave it out.")
    found: dict[str, list[str]] = {}
    for each in given:
        switch, _, cell = each.partition(":")
        if not (switch and cell):
            raise InputError(f"{each!r} is no cell to watch; write it as s1:counts[3].")
        found.setdefault(switch, []).append(cell)
    return found


def with_settings(
    model: type[Settings], without: Collection[str] = (), only: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that makes a function a command with options for all settings of ``model``.

    Args:
        model: type of the function's first parameter, filled from ``--config`` and options.
        without: settings without an option.
        only: those that the command goes by, if these are few.

    The command raises ConfigError for an invalid file, key or value, and for a setting that is not
    among ``only``.
    """
    settings = [
        each
        for each in settings_in(model)
        if each.key not in without and (not only or each.key.partition(".")[0] in only)
    ]
    derived = parameters_of(settings)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own_parameters = inspect.signature(function, eval_str=True).parameters.values()
        config = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption
        )

        def command(**given: Any) -> None:
            rest = {each.name: given.pop(each.name) for each in own_parameters}
            file = given.pop("config")
            changes = given.pop("codec_parameters", None) or []
            patterns = given.pop("codec_layers", None) or []
            read = read_settings(model, file, _values(settings, given))
            if only and (others := sorted(read.model_fields_set - set(only))):
                raise ConfigError(f"{file}: {', '.join(others)}: no effect here; leave it out.")
            function(_with_codec_layers(_with_codec_parameters(read, changes), patterns), **rest)

        command.__name__ = function.__name__
        command.__doc__ = function.__doc__
        command.__signature__ = inspect.Signature([*own_parameters, config, *derived])  # type: ignore[attr-defined]
        return command

    return decorate


def _values(settings: Collection[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values by the keys of settings; nested models are mappings."""
    found: dict[str, Any] = {}
    for setting in settings:
        value = given.get(setting.name)
        if setting.name == "outages":
            value = outages(given.get("crash") or (), given.get("partition") or ()) or None
        elif setting.name == "codec" and value:
            if len(value) > 1:
                raise ConfigError(
                    f"--codec is given {len(value)} times; this runs one codec. `innet train` and "
                    "`innet experiment throughput` compare several, and `innet simulate sweep "
                    "codec=dense,lhc` simulates several."
                )
            (value,) = value
        if value is None or value == []:
            continue
        *parents, name = setting.key.split(".")
        here = found
        for parent in parents:
            here = here.setdefault(parent, {})
        here[name] = tuple(value) if isinstance(value, list) else value
    return found


def read_settings(model_class: type[Model], file: Path | None, options: Mapping[str, Any]) -> Model:
    """``model_class`` from ``file``, if given, and the ``options`` that are not None.

    Raises:
        ConfigError: an unknown key or a value that is not allowed; names it.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if file is None:
        return validate(model_class, given)
    loaded = load_toml(file, model_class).model_dump(exclude_unset=True)
    for key, value in given.items():
        # Options change only the keys that they name in a table of the file.
        inside = isinstance(value, dict) and isinstance(loaded.get(key), dict)
        loaded[key] = {**loaded[key], **value} if inside else value
    return validate(model_class, loaded)


def _with_codec_parameters(settings: Any, changes: list[str]) -> Any:
    """``settings`` with the changes of ``--set`` to its codec, or to all its codecs."""
    if not changes:
        return settings
    return _with_codecs(settings, lambda codec: with_parameters(codec, changes))


def _with_codec_layers(settings: Any, patterns: list[str]) -> Any:
    """``settings`` with the patterns of ``--layer`` in its codec, or in all its codecs."""
    if not patterns:
        return settings
    return _with_codecs(settings, lambda codec: with_layers(codec, patterns))


def _with_codecs(settings: Any, changed: Callable[[Any], Any]) -> Any:
    if "codec" in type(settings).model_fields:
        update: dict[str, Any] = {"codec": changed(settings.codec)}
    else:
        update = {"codecs": tuple(map(changed, settings.codecs))}
    return settings.model_copy(update=update)


def with_layers(codec: str | dict[str, Any], patterns: list[str]) -> dict[str, Any]:
    """``codec`` with patterns such as "*.bias=dense" in front of those that it has.

    Raises:
        ConfigError: a text of another form, or a pattern that is given twice.
    """
    found: dict[str, str] = {}
    for each in patterns:
        pattern, equals, named = each.partition("=")
        if not (pattern and equals and named):
            raise ConfigError(
                f"--layer {shortened(each)}: write it as PATTERN=CODEC, such as '*.bias=dense'."
            )
        if pattern in found:
            raise ConfigError(
                f"--layer {shortened(pattern)} is given twice; the first one decides."
            )
        found[pattern] = named
    changed: dict[str, Any] = {"preset": codec} if isinstance(codec, str) else dict(codec)
    later = {name: each for name, each in changed.get("layers", {}).items() if name not in found}
    return {**changed, "layers": {**found, **later}}


def with_parameters(codec: str | dict[str, Any], changes: list[str]) -> str | dict[str, Any]:
    """``codec`` with changes such as "selector.ratio=0.05".

    Raises:
        ConfigError: a change of another form.
    """
    if not changes:
        return codec
    changed: dict[str, Any] = {"preset": codec} if isinstance(codec, str) else dict(codec)
    for change in changes:
        name, equals, text = change.partition("=")
        part, dot, key = name.partition(".")
        if not (equals and dot and part and key):
            raise ConfigError(
                f"--set {shortened(change)}: write it as PART.KEY=VALUE, such as "
                "selector.ratio=0.05, or carrier.name=dense for another part."
            )
        earlier = changed.get(part, {})
        if isinstance(earlier, str):
            earlier = {"name": earlier}
        changed[part] = {**earlier, key: literal(text)}
    return changed


def command_line(command: str, model: type[Settings], given: Mapping[str, Any]) -> str | None:
    """The shell command with these settings; None if options cannot express them.

    Args:
        command: such as "innet train".
        model: of the command's settings.
        given: settings by name. What is not in the model or has its default is left out.
    """
    words = [command]
    for each in settings_in(model):
        here: Any = given
        for parent in each.key.split(".")[:-1]:
            here = here.get(parent) or {}
        if each.name not in here:
            continue
        value = here[each.name]
        if each.name == "outages":
            words += _words_of_outages(value)
            continue
        default = each.field.get_default(call_default_factory=True, validated_data=dict(given))
        if value == default or value is None or (default == () and value == []):
            continue
        option = _NAMES.get(each.name, (f"--{each.name.replace('_', '-')}",))[0]
        if value is False and "/" in option:
            words.append(option.rpartition("/")[2])
            continue
        for one in value if isinstance(value, (list, tuple)) else (value,):
            said = _words_of(option, one)
            if said is None:
                return None
            words += said
    return " ".join(words)


def _words_of(option: str, value: Any) -> list[str] | None:
    """An option with a value; one whose value has parts needs ``--set``, or settings behind it."""
    if not isinstance(value, dict):
        return [option] if value is True else [option, shlex.quote(str(value))]
    if option == "--network" and not any(isinstance(each, (dict, list)) for each in value.values()):
        from innet.sim.network import PRESETS

        usual = PRESETS["100g"]
        changed = {name: each for name, each in value.items() if each != getattr(usual, name, None)}
        settings = ",".join(f"{name}={each}" for name, each in changed.items())
        return [option, shlex.quote(f"100g:{settings}" if settings else "100g")]
    if option != "--codec" or "preset" not in value:
        return None
    words = [option, shlex.quote(str(value["preset"]))]
    for part, parameters in value.items():
        if part == "preset":
            continue
        if part == "layers":
            if not all(isinstance(each, str) for each in parameters.values()):
                return None
            for pattern, each in parameters.items():
                words += ["--layer", shlex.quote(f"{pattern}={each}")]
            continue
        named = {"name": parameters} if isinstance(parameters, str) else parameters
        if not isinstance(named, dict):
            return None
        for key, each in named.items():
            words += ["--set", shlex.quote(f"{part}.{key}={each}")]
    return words


def _words_of_outages(found: Collection[Mapping[str, Any]]) -> list[str]:
    """``--crash`` and ``--partition`` of what ``outages`` gives, and of what files say."""
    words = []
    for each in found:
        end = "" if each.get("end") is None else f":{each['end']}"
        interval = f"{each.get('begin', 0.0)}{end}"
        cut_off = [*(each.get("workers") or ()), *(each.get("switches") or ())]
        for name in cut_off:
            words += ["--crash", f"{name}:{interval}"]
        if not cut_off:
            words += ["--partition", interval]
    return words


def outages(crashes: Collection[str], partitions: Collection[str]) -> list[dict[str, Any]]:
    """The settings for ``--crash`` and ``--partition``.

    Args:
        crashes: such as "2:0.5" (worker 2 is cut off from 0.5 s on) and "spine2:0.5:0.9", of a
            switch.
        partitions: such as "0.5:0.9", of all workers.

    Raises:
        ConfigError: a text of another form.
    """
    found = []
    for text in crashes:
        if not re.fullmatch(r"(\d+|[A-Za-z][^:]*)(:[^:]*){1,2}", text, re.ASCII):
            raise ConfigError(
                f"--crash {shortened(text)}: write it as WORKER:BEGIN or WORKER:BEGIN:END, such as "
                "2:0.5:0.9, or with the name of a switch."
            )
        name, *interval = text.split(":")
        who = {"workers": [int(name)]} if name.isdigit() else {"switches": [name]}
        found.append(_interval("--crash", text, interval) | who)
    for text in partitions:
        if text.count(":") != 1:
            raise ConfigError(
                f"--partition {shortened(text)}: write it as BEGIN:END, such as 0.5:0.9."
            )
        found.append(_interval("--partition", text, text.split(":")))
    return found


def _interval(option: str, text: str, words: list[str]) -> dict[str, Any]:
    try:
        return dict(zip(("begin", "end"), map(float, words), strict=False))
    except ValueError:
        raise ConfigError(f"{option} {shortened(text)}: give times in seconds.") from None
