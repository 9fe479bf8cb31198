"""A service as a process: it says where it listens, and ends when it is asked to."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from innet.core.errors import InputError
from innet.service.metrics import exporting
from innet.service.server import ServiceSettings, SwitchService
from innet.service.slot_partition import SlotPartitions
from innet.transport.peers import Address


def run(settings: ServiceSettings, metrics: Address | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: of the service.
        metrics: where to serve metrics over HTTP; None for nowhere.

    Raises:
        InnetError: it cannot be served.
    """
    service = SwitchService(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    with contextlib.ExitStack() as stack:
        stack.callback(service.close)
        if metrics is not None:
            where = stack.enter_context(exporting(metrics, _asked(service)))
            _note(f"metrics at http://{where.ip}:{where.udp_port}/metrics")
        _announce(service)
        advise(service.places)
        service.run()


def _asked(service: SwitchService) -> Callable[[], dict[str, Any]]:
    return lambda: service.ask(service.statistics)


def _announce(service: SwitchService) -> None:
    places = service.places
    print(f"listening at {service.address.ip}:{service.address.udp_port}", flush=True)
    _note(
        f"{places.program.name}: {places.jobs} jobs of up to {places.workers} workers, "
        f"{places.slots} slots each; {'a key is needed' if service.settings.key else 'no key'}."
    )


def advise(places: SlotPartitions) -> None:
    """Say so if the system gives the socket too little memory."""
    window, wanted = (each.window(places.workers) for each in (places, replace(places, room=None)))
    if window < wanted:
        _note(
            f"Only {places.room} packets may wait here, so {places.workers} workers of a job would "
            f"have {window} packets each under way instead of {wanted}, which is slower. For more: "
            "sysctl -w net.core.rmem_max=67108864, on the workers' machines too."
        )


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot read {file}: {error}.") from None
    if not text:
        raise InputError(f"{file} is empty; write the key into it.")
    return text
