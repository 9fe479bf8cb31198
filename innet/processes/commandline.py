"""The command line of a worker's program: settings from a file and from options, and their help."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from innet.core.errors import ConfigError, OutputError
from innet.core.settings import Model, validate
from innet.processes.settings import mapping_in

_INDENT = " " * 24


def parser_of(
    program: str, description: str, model: type[BaseModel], wait: str
) -> argparse.ArgumentParser:
    """A parser with ``settings``, ``set`` and ``wait``, whose help ends with a list of all
    settings.

    Args:
        program: the program's name in this package.
        description: one sentence.
        model: the model of its settings; descriptions come from its docstrings.
        wait: the help of ``--wait``: what it waits for.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m innet.processes.{program}",
        description=description,
        epilog="settings:\n" + "\n".join(_explained(model)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", type=Path, nargs="?", help="a file of TOML or JSON")
    parser.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, instead of the file's; repeatable",
    )
    parser.add_argument("--wait", action="store_true", help=wait)
    return parser


def settings_from(options: argparse.Namespace, model: type[Model]) -> Model:
    """The settings from the options of ``parser_of``.

    Raises:
        ConfigError: the file cannot be read, or a setting is invalid.
    """
    mapping: dict[str, Any] = {}
    if options.settings is not None:
        mapping = mapping_in(options.settings)
    for word in options.set:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--set {word}: write it as NAME=VALUE.")
        mapping[name.strip()] = _value(value.strip())
    return validate(model, mapping, source="" if options.settings is None else options.settings)


def _value(text: str) -> Any:
    """A value as in TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _explained(model: type[BaseModel]) -> Iterator[str]:
    described = dict(_described(model))
    for name, field in model.model_fields.items():
        given = field.default
        required = given is PydanticUndefined
        title = f"{name} (required)" if required else f"{name} = {_shown(given)}"
        text = textwrap.fill(
            described.get(name, ""), 100, initial_indent=_INDENT, subsequent_indent=_INDENT
        )
        # On one line if it fits.
        joined = f"  {title}".ljust(len(_INDENT)) + text[len(_INDENT) :]
        yield joined if len(title) < len(_INDENT) - 3 else f"  {title}\n{text}"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _described(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """(name, text) from the sections "Attributes" of a model and those it is derived from."""
    for each in reversed(model.__mro__):
        _, _, section = (inspect.cleandoc(each.__doc__ or "")).partition("Attributes:\n")
        for names, text in re.findall(
            r"^    (\w+(?:, \w+)*): (.*(?:\n      .*)*)", section, re.MULTILINE
        ):
            for name in names.split(", "):
                yield name, " ".join(text.replace("``", "").split())


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The parsed options. Without any, print the help and exit."""
    options = parser.parse_args(arguments)
    if options.settings is None and not options.set:
        parser.error("name a file of settings, or give some with --set; --help lists them.")
    return options


def say(line: object) -> None:
    """Print one line of JSON to standard output, and flush it.

    Raises:
        EOFError: the reader has closed the pipe.
        OutputError: it cannot be written, for example because the disk is full.
    """
    try:
        print(json.dumps(line), flush=True)
    except OSError as error:
        # Discard the buffer, so that the interpreter's exit does not write it again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise EOFError from None
        raise OutputError.of("the output", error) from None
