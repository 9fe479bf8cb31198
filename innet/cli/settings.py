"""Settings from a TOML file and from options: options win, and both are checked alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from innet.core.settings import Settings, load_toml, validate

Model = TypeVar("Model", bound=Settings)


def read_settings(model_class: type[Model], file: Path | None, options: Mapping[str, Any]) -> Model:
    """``model_class`` from ``file``, if there is one, and the ``options`` that are not None.

    Raises:
        ConfigError: an unknown key or a value that is not allowed; names it.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if file is None:
        return validate(model_class, given)
    loaded = load_toml(file, model_class).model_dump(exclude_unset=True)
    for key, value in given.items():
        # Of a table in the file, options change what they name.
        inside = isinstance(value, dict) and isinstance(loaded.get(key), dict)
        loaded[key] = {**loaded[key], **value} if inside else value
    return validate(model_class, loaded)
