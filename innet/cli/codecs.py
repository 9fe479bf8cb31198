"""``innet codecs``: one line for each codec, or all that is known of one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from innet.cli.options import JsonOption, codec_names, completing
from innet.cli.output import out, say_json
from innet.core.errors import InputError, UnknownNameError

_ELEMENTS = 1_000_000
_VALUES = 64  # of a packet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from innet.codecs import Codec


def codecs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the parts, parameters, bounds and bytes of this codec, with parameters or "
            "without (mxfp4:sums=wide), or the parameters of this part.",
            autocompletion=completing(codec_names),
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the codecs: what each sends of a gradient, and the paper that it is from."""
    from innet.codecs import PARTS, PRESETS
    from innet.core.registry import split_name

    if name is not None and split_name(name)[0] not in PRESETS:
        found = {kind: each.get(name) for kind, each in PARTS.items() if name in each}
        if not found:
            known = {*PRESETS, *(part for registry in PARTS.values() for part in registry)}
            raise UnknownNameError("codec", name, known)
        if as_json:
            say_json({kind: _defaults(part) for kind, part in found.items()})
        else:
            for kind, part in found.items():
                _show_part(kind, part)
        return
    if as_json:
        say_json(catalogue() if name is None else _preset(name))
    elif name is None:
        _list()
    else:
        _show(name)


def catalogue() -> dict[str, Any]:
    """Presets and parts, for programs."""
    from innet.codecs import PARTS, PRESETS

    return {
        "codecs": {name: _preset(name) for name in PRESETS},
        "parts": {
            kind: {name: _defaults(registry.get(name)) for name in registry}
            for kind, registry in PARTS.items()
        },
    }


def _list() -> None:
    from innet.codecs import PARTS, PRESETS
    from innet.codecs.presets import DESCRIPTIONS

    table = Table(box=None)
    for column in ("codec", "what a worker sends", "paper"):
        table.add_column(column, no_wrap=column == "codec")
    for name in PRESETS:
        table.add_row(name, DESCRIPTIONS.get(name, _preset(name)["description"]), _paper(name))
    out.print(table)
    out.print("\nParts of which others can be made (--set PART.name=NAME):")
    for kind, registry in PARTS.items():
        out.print(f"  {kind}: {', '.join(registry)}", highlight=False, soft_wrap=True)
    out.print("Parameters and bounds: innet codecs NAME; formulas: docs/codecs.md", highlight=False)


def _show(name: str) -> None:
    from innet.codecs import PARTS
    from innet.codecs.presets import DESCRIPTIONS
    from innet.core.registry import split_name

    known = _preset(name)
    fewest, most = known["rounds"]
    preset, changed = split_name(name)
    facts = {
        "sends": "" if changed else DESCRIPTIONS.get(name, ""),
        "paper": _paper(preset),
        "rounds": str(fewest) if fewest == most else f"{fewest} to {most}",
        "index": known["index"] or "none",
        "largest integer of N workers": known["overflow_bound"] or "",
        "bits of it, with its sign": ", ".join(
            f"{'too many for it' if bits is None else bits} ({workers:,} workers)"
            for workers, bits in known["value_bits"].items()
        ),
        "lossless carriage": "yes, of these integers" if known["lossless"] else "no",
        "lossless sums": _lossless(known["spec"]),
    }
    table = Table(box=None, show_header=False, title=name, title_justify="left")
    for what, text in facts.items():
        if text:
            table.add_row(what, text)
    out.print(table)
    if sizes := known["sizes"]:
        out.print(_sizes_table(sizes))
    parts = Table(
        caption="None: the part decides; docs/codecs.md says how. Change one by --codec "
        f"{preset}:PARAMETER=VALUE or --set PART.PARAMETER=VALUE.",
        box=None,
        caption_justify="left",
    )
    for column in ("part", "name", "parameter", "default", "allowed"):
        parts.add_column(column)
    for kind, chosen in known["spec"].items():
        parameters = _parameters(PARTS[kind].get(chosen["name"])) or {"": ("", "")}
        first = (kind, chosen["name"])
        for parameter, (default, allowed) in parameters.items():
            parts.add_row(*first, parameter, str(chosen.get(parameter, default)), allowed)
            first = ("", "")  # said once for all parameters of a part
    out.print(parts)


def _sizes_table(sizes: Mapping[int, Mapping[str, int]]) -> Table:
    table = Table(title=f"Of {_ELEMENTS:,} elements, each way", title_justify="left", box=None)
    heads = ("workers", "bits of a sum", "sums in a word", "words of scales", "MB", "of float32")
    for head in heads:
        table.add_column(head, justify="right")
    for workers, size in sizes.items():
        share = size["bytes"] / _bytes(_ELEMENTS)
        numbers = (size["sum_bits"], size["sums_per_word"], size["scale_words"])
        cells = [f"{each:,}" for each in (workers, *numbers)]
        table.add_row(*cells, f"{size['bytes'] / 1e6:.2f}", f"{share:.0%}")
    table.caption = f"with headers, {_VALUES} values a packet"
    return table


def _lossless(spec: Mapping[str, Any]) -> str:
    """Whether the floats of the sum are exact, not only the integers that travel."""
    from innet.codecs import PARTS
    from innet.codecs.parts import FLOAT_WORDS, ROUNDED_ONCE

    quantizer = spec["quantizer"]["name"]
    provided = PARTS["quantizer"].get(quantizer).capabilities.provides
    if FLOAT_WORDS in provided:
        return "no: the switch cuts off what it aligns, in the order of arrival"
    if ROUNDED_ONCE in provided:
        return "yes: of what is selected, the float32 nearest to the true sum"
    return f"no: quantizer {quantizer} rounds each worker's values; exact and lhc-exact do not"


def _show_part(kind: str, part: Any) -> None:
    paragraph, _, _ = (part.__doc__ or "").replace("``", "").strip().partition("\n\n")
    out.print(f"{kind} {part.name}: {' '.join(paragraph.split())}", markup=False, highlight=False)
    table = Table("parameter", "default", "allowed", box=None)
    for parameter, (default, allowed) in _parameters(part).items():
        table.add_row(parameter, str(default), allowed)
    if table.row_count:
        out.print(table)
    # What a selector leaves out is lost without error feedback, which topk has.
    codec = "topk" if kind == "selector" else "dense"
    out.print(f"Try it behind a codec's name: --codec {codec}:{kind}={part.name}", highlight=False)


def _paper(name: str) -> str:
    """Authors, venue and year; "" where a codec is from no paper."""
    from innet.claims.citations import citations

    return re.sub(r", arXiv [\d.]+| \(.*\)", "", citations().get(name, ""))


def _preset(name: str) -> dict[str, Any]:
    from innet.codecs import build_codec

    codec = build_codec(name)
    return {
        "description": codec.describe(),
        "spec": codec.spec,
        "value_bits": _value_bits(codec),
        "sizes": _sizes(codec),
        **codec.capabilities(),
    }


def _sizes(codec: Codec) -> dict[int, dict[str, int]]:
    """What a worker sends of a gradient, and receives, by the number of workers; empty where that
    depends on the numbers of the gradient.
    """
    from innet.codecs.carriers.packed import bits_of_sum
    from innet.codecs.parts import FLOAT_WORDS

    known = codec.capabilities()["fixed_size"] and codec.selector.name == "all"
    known &= FLOAT_WORDS not in codec.quantizer.capabilities.provides
    if not known or codec.carrier.name not in {"dense", "packed"}:
        return {}
    found = {}
    for workers in (4, 16, 64):
        try:
            bits = bits_of_sum(codec.quantizer.largest_integer(workers), workers)
        except InputError:
            continue
        lanes = 32 // bits if codec.carrier.name == "packed" else 1
        block = codec.quantizer.scale_block
        scales = -(-_ELEMENTS // block) if block else 1
        size = _bytes(-(-_ELEMENTS // lanes)) + _bytes(scales + 2)  # with the handshake's digest
        found[workers] = {
            "sum_bits": bits,
            "sums_per_word": lanes,
            "scale_words": scales,
            "bytes": size,
        }
    return found


def _bytes(words: int) -> int:
    """Of a round, with headers."""
    from innet.wire.layout import PacketLayout

    return -(-words // _VALUES) * PacketLayout(_VALUES).wire_size


def _value_bits(codec: Codec) -> dict[int, int | None]:
    """By the number of workers; None where the codec has no room for that number."""
    found: dict[int, int | None] = {}
    for workers in (4, 32, 1024, 32768):
        try:
            found[workers] = codec.value_bits(workers)
        except InputError:
            found[workers] = None
    return found


def _defaults(part: Any) -> dict[str, Any]:
    fields = part.settings.model_fields
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}


def _parameters(part: Any) -> dict[str, tuple[Any, str]]:
    """The parameters of a part: default, and what is allowed."""
    from innet.core.settings import allowed_values

    allowed = allowed_values(part.settings)
    return {name: (default, allowed[name]) for name, default in _defaults(part).items()}
