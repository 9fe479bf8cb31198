"""For Mininet's own command: sudo mn --custom topo/custom.py --topo innet_star,4 --controller none

The other names are innet_tree,WORKERS,RACKS,DEPTH; innet_leafspine,WORKERS,RACKS,SPINES;
innet_fattree,PORTS,WORKERS; innet_dumbbell,WORKERS,JOBS; and those of other distributions.

``mn`` runs with the system's Python. What innet needs is in its environment, .venv by default or
$INNET_ENVIRONMENT, whose packages are appended to the path; both must be the same Python.
"""

import os
import sys
from pathlib import Path

_HERE = Path(sys._getframe().f_code.co_filename).resolve()
_ROOT = _HERE.parent.parent
_ENVIRONMENT = Path(os.environ.get("INNET_ENVIRONMENT", _ROOT / ".venv"))
_PACKAGES = (
    _ENVIRONMENT / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
)
if not _PACKAGES.is_dir():
    sys.exit(
        f"There is no {_PACKAGES}: run `make setup PYTHON={sys.executable}` in {_ROOT} first, or "
        "say in INNET_ENVIRONMENT where the environment is."
    )
sys.path.insert(0, str(_ROOT))
sys.path.append(str(_PACKAGES))

from innet.core import child_process  # noqa: E402 - found by the lines above
from innet.mininet.cli import extend  # noqa: E402
from innet.mininet.debian import CLI  # noqa: E402
from innet.mininet.topologies import TOPOS  # noqa: E402

child_process.PYTHON = str(_ENVIRONMENT / "bin" / "python")

extend(CLI)

topos = dict(TOPOS)
