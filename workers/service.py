"""The built-in switch as a UDP service: ``python workers/service.py --help``."""

import sys

from innet.processes.service import main

if __name__ == "__main__":
    sys.exit(main())
