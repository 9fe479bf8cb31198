"""The built-in switch on network interfaces: ``python workers/switch.py --help``."""

import sys

from innet.processes.switch import main

if __name__ == "__main__":
    sys.exit(main())
