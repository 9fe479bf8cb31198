"""Reference pages, each generated from what it describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from innet.cli.app import app
from innet.core import settings
from innet.core.settings import Settings
from innet.programs import catalogue
from innet.records import schema
from innet.service.statistics import Collector

ROOT = Path(__file__).parents[2]
# Parts of others, or of no command.
OF_PYTHON = ("EmulationSettings", "FaultSettings", "OutageSettings")
# The commands whose settings a model declares; each takes such a file by --config.
COMMANDS = {
    "AllReduceSettings": "innet allreduce",
    "DemoSettings": "innet demo",
    "TrainSettings": "innet train",
    "SimulateSettings": "innet simulate",
    "MininetSettings": "innet net",
    "ServiceSettings": "innet switch serve",
    "ThroughputSettings": "innet experiment throughput",
}


def generate() -> dict[str, str]:
    """All pages: address in the site, and Markdown."""
    return {
        "reference/index.md": _index(),
        "reference/commands.md": "\n".join(_commands()),
        "reference/configuration.md": "\n".join(_configuration()),
        "reference/records.md": "\n".join(_records()),
        "reference/programs.md": "\n".join(_programs()),
        "reference/metrics.md": "\n".join(_metrics()),
    }


def _index() -> str:
    return """# Reference

| page | what it lists |
|---|---|
| [Commands](commands.md) | every command of `innet`, with its options |
| [Configuration](configuration.md) | every setting, with its type, range and default |
| [Codecs](../codecs.md) | the named codecs, their parts, and how they differ from the papers |
| [Records](records.md) | every field of the files that runs write |
| [Wire format](../wire-format.md) | the packets, field by field |
| [P4 programs](programs.md) | the programs that innet ships |
| [Metrics](metrics.md) | what a switch service exports to Prometheus |
| [Python](api/innet.md) | the public names of the Python packages |

All of these but the wire format and the codecs are generated from the program when the site is built.
"""


def cell(text: object) -> str:
    """Text as a cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").strip()


# ----------------------------------------------------------------------------
# Commands


def walk(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """All commands below one, by the words that call them."""
    if not hasattr(command, "commands"):
        return {path: command}
    found = {}
    for name, each in command.commands.items():
        found |= walk(each, (*path, name))
    return found


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "What `innet COMMAND --help` shows, for all commands. [Shell completion](../shell.md) knows"
    yield "the commands, the options and most of their values.\n"
    for path, command in walk(typer.main.get_command(app)).items():
        yield f"## innet {' '.join(path)}\n"
        yield f"{_paragraphs(command.help)}\n"
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        usage = ["innet", *path, *(["[OPTIONS]"]), *(_metavar(each) for each in arguments)]
        yield f"```text\n{' '.join(usage)}\n```\n"
        example, page = (command.epilog or "\n\n").split("\n\n")
        yield f"{example}\n"
        if page:
            name = page.removeprefix("More: docs/")
            yield f"More: [{name.removesuffix('.md')}](../{name})\n"
        rows = [(_names(each), _type(each), _default(each), _text(each)) for each in command.params]
        if rows:
            yield "| option | value | default | |\n|---|---|---|---|"
            for row in rows:
                yield f"| {' | '.join(cell(each) for each in row)} |"
            yield ""


def _paragraphs(text: str | None) -> str:
    return re.sub(r"\n(?!\n)[ \t]*", "\n", text or "").strip()


def _metavar(parameter: Any) -> str:
    name: str = (parameter.metavar or parameter.name).upper()
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])


def _type(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    annotation = parameter.type_descriptor.annotation
    named = {"str": "text"}.get(annotation.__name__, annotation.__name__.lower())
    text = (parameter.metavar or named).strip("<>")
    if parameter.min is not None or parameter.max is not None:
        low = "" if parameter.min is None else parameter.min
        high = "" if parameter.max is None else parameter.max
        text += f" {low}..{high}"
    return f"{text}, repeatable" if getattr(parameter, "multiple", False) else text


_DEFAULT = re.compile(r"\s*\[default: (.*?)\]")  # of an option whose setting's model has it


def _text(parameter: Any) -> str:
    return _DEFAULT.sub("", getattr(parameter, "help", None) or "")


def _default(parameter: Any) -> str:
    if found := _DEFAULT.search(getattr(parameter, "help", None) or ""):
        return f"`{found[1]}`"
    shown = getattr(parameter, "show_default", None)
    value = shown if isinstance(shown, str) else parameter.default
    if value is None or callable(value) or value in (False, (), [], "") or "UNSET" in repr(value):
        return "required" if parameter.required else ""
    return f"`{getattr(value, 'value', value)}`"


# ----------------------------------------------------------------------------
# Settings


def _configuration() -> Iterator[str]:
    yield "# Configuration\n"
    yield "Each setting is declared once, in `innet/core/settings.py`. It is an option of a command,"
    yield "a key of a TOML file (`--config FILE`), and an argument in Python. Options override the file."
    yield "Unknown keys are refused. A key that holds a table is written as `[faults]` or as"
    yield "`faults.loss = 0.01`. For example, for `innet allreduce --config settings.toml`:\n"
    yield '```toml\nworkers = 8\ncodec = "topk"\n\n[faults]\nloss = 0.01\n```\n'
    models = [
        each
        for each in vars(settings).values()
        if isinstance(each, type) and issubclass(each, Settings) and each is not Settings
    ]
    used = [each for each in models if each.__name__ in COMMANDS]
    parts = [each for each in models if each.__name__ in OF_PYTHON]
    for model in used:
        yield f"## {COMMANDS[model.__name__]}\n"
        yield from _model(model)
    for model in parts:
        yield f"## {model.__name__}\n"
        yield from _model(model)


def _model(model: type[BaseModel]) -> Iterator[str]:
    yield f"{_summary(model.__doc__)}\n"
    described = settings._json_schema(model)
    attributes = _attributes(model)
    yield "| key | allowed | default | |\n|---|---|---|---|"
    for name, part in described.get("properties", {}).items():
        field = model.model_fields[name]
        value = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, BaseModel):
            default = f"[{type(value).__name__}](#{type(value).__name__.lower()})"
        else:
            default = "" if field.is_required() or value in (None, ()) else f"`{value!r}`"
        text = part.get("description") or _own(part) or attributes.get(name, "")
        allowed = settings._describe(part, described)
        yield f"| `{name}` | {cell(allowed)} | {cell(default)} | {cell(text)} |"
    yield ""


def _own(part: dict[str, Any]) -> str:
    """The description of one of a union's branches or of a list's items."""
    for each in [*part.get("anyOf", ()), part.get("items", {})]:
        if text := each.get("description"):
            return str(text)
        if "items" in each and (text := each["items"].get("description")):
            return str(text)
    return ""


def _summary(text: str | None) -> str:
    return re.split(r"\n\s*(?:Attributes|Args):", text or "")[0].strip().replace("\n    ", "\n")


def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """What the docstring's section "Attributes" says of each."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, section = (base.__doc__ or "").partition("Attributes:")
        for line in re.findall(
            r"^\s{8}(\w[\w, ]*): ((?:.+)(?:\n\s{12}.+)*)", section, re.MULTILINE
        ):
            found |= {name.strip(): line[1] for name in line[0].split(",")}
    return found


# ----------------------------------------------------------------------------
# Records


def _records() -> Iterator[str]:
    described = schema()
    yield "# Records\n"
    yield "Runs write records: JSON with every field, default values included. `innet report FILE` shows"
    yield "one, `innet.records.Record.load` reads any of them, and `innet report --schema` prints what"
    yield "stands below as a JSON schema. Older versions are converted when they are read.\n"
    for name, part in described["$defs"].items():
        yield f"## {name}\n"
        text, _, _ = (part.get("description") or "").partition("Attributes:")
        yield f"{_plain(text)}\n"
        properties = part.get("properties", {})
        if not properties:
            continue
        yield "| field | type | |\n|---|---|---|"
        for field, each in properties.items():
            text = each.get("description", "")
            yield f"| `{field}` | {_shape(each)} | {cell(_plain(text))} |"
        yield ""


def _plain(text: str) -> str:
    return text.replace("``", "`").strip()


def _shape(part: dict[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for union in ("anyOf", "oneOf"):
        if union in part:
            return " or ".join(dict.fromkeys(_shape(each) for each in part[union]))
    if "const" in part:
        return f"`{part['const']!r}`"
    if "enum" in part:
        return ", ".join(f"`{each!r}`" for each in part["enum"])
    kind = part.get("type", "any")
    if kind == "array":
        inner = part.get("items") or {}
        return f"list of {_shape(inner)}" if inner else "list"
    if kind == "object" and isinstance(part.get("additionalProperties"), dict):
        return f"table of {_shape(part['additionalProperties'])}"
    return str(kind)


# ----------------------------------------------------------------------------
# Programs and metrics


def _programs() -> Iterator[str]:
    yield "# P4 programs\n"
    yield "What `innet p4 list` shows. The sources are in `p4/`; they are listed in `p4/programs.toml` and"
    yield "compiled by `innet p4 compile`. `innet p4 export NAME -o FILE.json` writes a program's JSON,"
    yield "`innet switch explain NAME` shows its tables and registers.\n"
    yield "How they work: [slots](../slots.md), [tree](../tree.md), [hashed](../hashed.md). Their packets:"
    yield "[wire format](../wire-format.md). Your own: [a tutorial](../tutorials/own-program.md).\n"
    yield "| name | source | values per packet | slots | compiled by p4c | |\n|---|---|--:|--:|---|---|"
    programs = catalogue()
    for program in programs.values():
        if program.is_header_only:
            continue
        given = program.parameters
        yield (
            f"| `{program.name}` | `p4/{program.source}` | {given.get('VALUES', '')} |"
            f" {given.get('SLOTS', '')} | {program.p4c} | {cell(program.description)} |"
        )
    thin = [program for program in programs.values() if program.is_header_only]
    yield "\n## Thin builds\n"
    yield "For [simulated time](../simulation.md#thin-payloads): a packet carries few values and stands for"
    yield "many.\n"
    yield "| name | source | definitions |\n|---|---|---|"
    for program in thin:
        given = ", ".join(f"`{key}={value}`" for key, value in program.parameters.items())
        yield f"| `{program.name}` | `p4/{program.source}` | {given} |"


def _metrics() -> Iterator[str]:
    nothing = {"in": 0, "out": 0, "bytes_in": 0, "bytes_out": 0}
    switch = {"refused_requests": 0, "clients": 0, "jobs_max": 0}
    document = {"packets": nothing, "drops": {}, "switch": switch, "jobs": []}
    yield "# Metrics\n"
    yield "`innet switch serve --metrics 127.0.0.1:9464` serves these to Prometheus at"
    yield "`http://127.0.0.1:9464/metrics`. It needs `pip install 'innet[metrics]'`. `innet switch top` shows"
    yield "the same numbers in a terminal ([service](../service.md)).\n"
    yield "| name | kind | labels | |\n|---|---|---|---|"
    for family in Collector(lambda: document).collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{each}`" for each in family._labelnames)
        yield f"| `{name}` | {family.type} | {labels} | {cell(family.documentation)} |"
