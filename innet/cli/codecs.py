"""``innet codecs``: presets, what they can do, parts and their parameters."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from innet.cli.options import JsonOption
from innet.cli.output import out, say_json


def codecs(as_json: JsonOption = False) -> None:
    """List the codecs, and the parts of which others can be made."""
    if as_json:
        say_json(catalogue())
    else:
        for table in tables():
            out.print(table)


def catalogue() -> dict[str, Any]:
    """Presets and parts, for programs."""
    from innet.codecs import PARTS, PRESETS

    return {
        "codecs": {name: _preset(name) for name in PRESETS},
        "parts": {
            kind: {name: _parameters(registry.get(name)) for name in registry}
            for kind, registry in PARTS.items()
        },
    }


def tables() -> list[Table]:
    """The same, for people."""
    from innet.codecs import PARTS, PRESETS, build_codec

    presets = Table(title="codecs (--codec NAME)", box=None, title_justify="left")
    for column in ("codec", "parts", "rounds", "index", "overflow bound", "lossless carriage"):
        presets.add_column(column)
    for name in PRESETS:
        codec = build_codec(name)
        able = codec.capabilities()
        fewest, most = able["rounds"]
        presets.add_row(
            name,
            codec.describe(),
            str(fewest) if fewest == most else f"{fewest} to {most}",
            able["index"] or "none",
            able["overflow_bound"] or "",
            "yes" if able["lossless"] else "no",
        )
    parts = Table(
        title="\nparts (--set PART.name=NAME, --set PART.PARAMETER=VALUE)",
        caption="None: the part decides; docs/codecs.md says how.",
        box=None,
        title_justify="left",
        caption_justify="left",
    )
    for column in ("part", "name", "parameter", "default"):
        parts.add_column(column)
    for kind, registry in PARTS.items():
        for name in registry:
            parameters = _parameters(registry.get(name)) or {"": ""}
            for parameter, default in parameters.items():
                parts.add_row(kind, name, parameter, str(default))
                kind, name = "", ""  # noqa: PLW2901 - said once for all parameters of a part
    return [presets, parts]


def _preset(name: str) -> dict[str, Any]:
    from innet.codecs import build_codec

    codec = build_codec(name)
    return {"description": codec.describe(), "spec": codec.spec, **codec.capabilities()}


def _parameters(part: Any) -> dict[str, Any]:
    fields = part.settings.model_fields
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
