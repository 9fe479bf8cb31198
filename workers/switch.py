"""The built-in switch in simple_switch's place: ``python workers/switch.py --help``."""

import sys

from innet.simple_switch.start import main

if __name__ == "__main__":
    sys.exit(main())
