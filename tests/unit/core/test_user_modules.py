"""Files and modules of the user's that register parts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from innet.core import user_modules
from innet.core.errors import ConfigError, UnknownNameError
from innet.core.registry import Registry

SELECTOR = """
from innet.codecs import SELECTORS
from innet.codecs.selectors.topk import TopK

class Mine(TopK):
    name = "mine"

SELECTORS.register("mine", Mine)
"""


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    monkeypatch.setenv(user_modules.VARIABLE, "")


def test_each_is_imported_once_before_a_name_is_unknown(tmp_path, monkeypatch):
    registry = Registry("thing", "innet.no-such-group")
    (tmp_path / "first.py").write_text("import os\nos.environ['FIRST'] += '1'\n")
    (tmp_path / "second.py").write_text("import os\nos.environ['FIRST'] += '2'\n")
    monkeypatch.setenv("FIRST", "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(user_modules.VARIABLE, f"{tmp_path / 'first.py'}{os.pathsep}second")
    assert registry.names() == []
    assert "a" not in registry
    with pytest.raises(UnknownNameError, match="innet --import FILE"):
        registry.get("a")
    assert os.environ["FIRST"] == "12"


def test_a_file_imports_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour_of_mine.py").write_text("VALUE = 5\n")
    (tmp_path / "json.py").write_text("VALUE = 6\n")  # hides nothing of others afterwards
    (tmp_path / "later_neighbour.py").write_text("VALUE = 7\n")
    own = "import sys\nfrom neighbour_of_mine import VALUE\n"
    own += "def later():\n    import later_neighbour\n    return later_neighbour.VALUE\n"
    (tmp_path / "own_file.py").write_text(own)
    user_modules.add(str(tmp_path / "own_file.py"))
    (module,) = [each for name, each in sys.modules.items() if name.startswith("own_file_")]
    assert (module.VALUE, module.later()) == (5, 7)
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[-1] == str(tmp_path)
    (tmp_path / "broken.py").write_text("import no_such_neighbour\n")
    with pytest.raises(ConfigError, match="no_such_neighbour"):
        user_modules.add(str(tmp_path / "broken.py"))
    assert sys.path.count(str(tmp_path)) == 1


def test_files_are_named_so_that_other_processes_find_them(tmp_path, monkeypatch):
    (tmp_path / "here.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(user_modules.VARIABLE, "json")
    user_modules.add("here.py", "json")
    assert os.environ[user_modules.VARIABLE] == f"json{os.pathsep}{tmp_path / 'here.py'}"


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("gone.py", None, "gone.py', named by INNET_IMPORT or --import, cannot be imported: "
         "FileNotFoundError: there is no such file"),
        ("wrong.py", "a = 1\nb = a / 0\n", r"ZeroDivisionError: division by zero \(line 2\)"),
        ("no.such.module", None, "ModuleNotFoundError: No module named 'no'"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_named_each_time(tmp_path, name, text, match):
    named = str(tmp_path / name) if name.endswith(".py") else name
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=match):
        user_modules.add(named)
    with pytest.raises(ConfigError, match=match):
        user_modules.import_all()


def test_a_command_and_its_processes_know_a_part_of_a_file(tmp_path):
    (tmp_path / "parts.py").write_text(SELECTOR)
    command = [sys.executable, "-m", "innet", "--import", "parts.py", "allreduce", "--size", "500"]
    command += ["--workers", "2", "--codec", "topk:selector=mine", "--json"]
    told = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "mine" in told.stdout
