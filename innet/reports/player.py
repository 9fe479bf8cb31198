"""The player of recordings: one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path

from innet.core.files import atomic_write
from innet.records import RecordingRecord
from innet.records.recording import FATES


def write_player(record: RecordingRecord, path: str | Path) -> None:
    """Write the page that plays a recording.

    Raises:
        OutputError: the file cannot be written.
    """
    text = player_page(record)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def player_page(record: RecordingRecord) -> str:
    """The page: the record as it is, and a script that draws it."""
    folder = resources.files("innet.reports")
    page, style, script = (
        folder.joinpath(f"player.{ending}").read_text(encoding="utf-8")
        for ending in ("html", "css", "js")
    )
    document = record.model_dump(mode="json") | {"fates": FATES}
    # Nothing in the record may end the element that it stands in.
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "title": html.escape(str(record.settings.get("title", "A recorded network"))),
        "style": style,
        "script": script,
        "record": text,
    }
    # In one pass: a title may have braces itself.
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], page)
