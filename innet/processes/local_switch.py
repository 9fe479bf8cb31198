"""The built-in switch for the processes of one machine: it ends with the process that started it.

    python -m innet.processes.local_switch

The first line of standard input is the key; the first of standard output says where it listens, an
address of the loopback interface. Once standard input is closed, it ends as soon as no worker is
connected, after ten seconds at the latest. ``innet switch serve`` is the same for other purposes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from innet.core.errors import InnetError
from innet.service.server import ServiceSettings, SwitchService
from innet.transport.peers import Address

_LONGEST_REST = 10.0


def main() -> int:
    """Run it; the exit status."""
    key = sys.stdin.readline().strip()
    try:
        settings = ServiceSettings(
            listen=Address("127.0.0.1", 0),
            values=int(os.environ.get("INNET_VALUES", "256")),
            jobs=int(os.environ.get("INNET_JOBS", "4")),
            key=key,
        )
        service = SwitchService(settings)
    except (InnetError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    print(f"{service.address.ip}:{service.address.udp_port}", flush=True)
    threading.Thread(target=_end_with_input, args=(service,), daemon=True).start()
    service.run()
    return 0


def _end_with_input(service: SwitchService) -> None:
    while sys.stdin.readline():
        pass
    until = time.monotonic() + _LONGEST_REST
    while service.has_workers and time.monotonic() < until:
        time.sleep(0.05)
    service.stop()


if __name__ == "__main__":
    sys.exit(main())
