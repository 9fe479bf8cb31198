"""The built-in switch in simple_switch's place: ``python workers/switch.py --help``."""

import sys

from innet.processes.start_switch import main

if __name__ == "__main__":
    sys.exit(main())
