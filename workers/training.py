"""One worker of a training: ``python workers/training.py --help``."""

import sys

from innet.processes.training import main

if __name__ == "__main__":
    sys.exit(main())
