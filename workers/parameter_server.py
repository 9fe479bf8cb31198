"""The parameter server of a job: ``python workers/parameter_server.py --help``."""

import sys

from innet.processes.parameter_server import main

if __name__ == "__main__":
    sys.exit(main())
