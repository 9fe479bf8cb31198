"""The switch service, as ``innet switch serve``: ``python workers/service.py --help``."""

import sys
from collections.abc import Sequence

from innet.cli.app import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.argv[1:] = ["switch", "serve", *given]
    return run()


if __name__ == "__main__":
    sys.exit(main())
