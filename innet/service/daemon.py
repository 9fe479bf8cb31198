"""A service as a process: it says where it listens, and ends when it is asked to."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from innet.errors import InputError
from innet.service.server import ServiceSettings, SwitchService


def run(settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InnetError: it cannot be served.
    """
    service = SwitchService(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    places = service.places
    print(f"listening at {service.address.ip}:{service.address.udp_port}", flush=True)
    print(
        f"{places.program.name}: {places.jobs} jobs of up to {places.workers} workers, "
        f"{places.slots} slots each; {'a key is needed' if settings.key else 'no key'}.",
        file=sys.stderr,
        flush=True,
    )
    service.run()


def key_of(key: str | None, file: Path | None) -> str | None:
    """The key, as it is or from a file without the line end.

    Raises:
        InputError: both were given, or the file cannot be read or is empty.
    """
    if file is None:
        return key
    if key is not None:
        raise InputError("give --key or --key-file, not both.")
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot read {file}: {error}.") from None
    if not text:
        raise InputError(f"{file} is empty; write the key into it.")
    return text
