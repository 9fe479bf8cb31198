"""Starts ``innet.simple_switch.process``, with its TCP port and its interfaces open at once.

    python -m innet.simple_switch.start -i 1@veth1 -i 2@veth2 --thrift-port 9090 program.json

Scripts send packets and calls a second after they have started a switch. Python needs longer for
the imports of the program, so the sockets are opened before them, and what comes waits there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from innet.simple_switch.open_sockets import open_sockets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the switch; its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    opened = open_sockets(words)
    from innet.simple_switch import process  # noqa: PLC0415 - see above

    return process.main(words, opened)


if __name__ == "__main__":
    sys.exit(main())
