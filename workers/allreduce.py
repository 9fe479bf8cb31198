"""One worker of an all-reduce: ``python workers/allreduce.py --help``."""

import sys

from innet.processes.allreduce import main

if __name__ == "__main__":
    sys.exit(main())
