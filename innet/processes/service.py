"""The built-in switch as a UDP service, as a process; the same as ``innet switch serve``.

    python -m innet.processes.service --program slots --values 256 --listen 127.0.0.1:48879

Prints ``listening at ADDRESS:PORT`` once it serves, and runs until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from innet.core.errors import InnetError
from innet.service.channel import resolve
from innet.service.daemon import key_of, run
from innet.service.server import ServiceSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    options = _options(arguments)
    try:
        run(
            ServiceSettings(
                listen=resolve(options.listen),
                program=options.program,
                values=options.values,
                key=key_of(options.key, options.key_file),
                jobs=options.jobs,
                workers=options.workers_max,
                engine=options.engine,
                window=options.window,
            ),
            None if options.metrics is None else resolve(options.metrics),
        )
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m innet.processes.service",
        description="The built-in switch as a UDP service.",
    )
    parser.add_argument(
        "--program", default="slots", help="a shipped program for one switch (%(default)s)"
    )
    parser.add_argument("--values", type=int, default=256, help="values in a packet (%(default)s)")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:48879",
        metavar="ADDRESS:PORT",
        help="for UDP and TCP; port 0 takes a free one (%(default)s)",
    )
    parser.add_argument("--key", help="what workers must know; other users see it in `ps`")
    parser.add_argument("--key-file", type=Path, help="a file that holds the key")
    parser.add_argument("--jobs", type=int, default=4, help="at the same time (%(default)s)")
    parser.add_argument(
        "--workers-max", type=int, default=32, help="that a job may have (%(default)s)"
    )
    parser.add_argument(
        "--window", type=int, help="packets of each worker under way at once, at most"
    )
    parser.add_argument(
        "--metrics", metavar="ADDRESS:PORT", help="serve metrics for Prometheus there, over HTTP"
    )
    parser.add_argument("--engine", default="jit", choices=("jit", "interpret"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
