"""Code of the user's that registers parts: files and modules named in the environment.

``INNET_IMPORT`` lists Python files (``parts.py``) or modules (``my.parts``), separated as in PATH.
They are imported before a registry is asked for a name that it does not have yet. A file may import
others in its folder. Processes that a command starts inherit the variable, so that they know the
same names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType

from innet.core.errors import ConfigError, InnetError

VARIABLE = "INNET_IMPORT"

_imported: set[str] = set()


def add(*named: str) -> None:
    """Import these files or modules, here and in processes that are started from now on.

    Raises:
        ConfigError: one cannot be imported; says why.
    """
    known = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    # Other processes may have another working directory.
    known += [str(Path(each).resolve()) if _is_file(each) else each for each in named]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(known))
    import_all()


def import_all() -> None:
    """Import what the environment names, once.

    Raises:
        ConfigError: one cannot be imported; says why.
    """
    for each in os.environ.get(VARIABLE, "").split(os.pathsep):
        if not each or each in _imported:
            continue
        _imported.add(each)  # first, as it may ask for names itself
        try:
            _import(each)
        except BaseException as error:
            _imported.discard(each)
            if not isinstance(error, Exception) or isinstance(error, InnetError):
                raise
            raise ConfigError(
                f"{each!r}, named by {VARIABLE} or --import, cannot be imported: "
                f"{type(error).__name__}: {error}{_where(error, each)}."
            ) from error


def _is_file(named: str) -> bool:
    return named.endswith(".py") or os.sep in named


def _import(named: str) -> ModuleType:
    if not _is_file(named):
        return importlib.import_module(named)
    path = Path(named).resolve()
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    # Two files may have the same name; classes of each are found by their module's.
    name = f"{path.stem}_{zlib.crc32(os.fsencode(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    sys.path.insert(0, folder)  # as Python does for a file that it runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    if folder not in sys.path:  # what its functions import later; it hides nothing of others
        sys.path.append(folder)
    return module


def _where(error: Exception, named: str) -> str:
    """The last line of that file that led to the error."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(Path(named).resolve()):
            line = step.tb_lineno
        step = step.tb_next
    return "" if line is None else f" (line {line})"
