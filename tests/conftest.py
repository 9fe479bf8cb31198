"""Set-up shared by all tests."""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# Test processes share the cores: threads of matrix kernels in each would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Numba colors each attempt to find a type, long before an error shows it.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

# Small arrays leave a GPU idle; numba-cuda warns of it, and here warnings are errors.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")

# Kernels compile on first use, so a deadline per example would time the compiler. Derandomised, so
# that a failure in the checks is a failure everywhere; --hypothesis-profile=explore looks further.
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.register_profile("first tier", settings.get_profile("ci"), max_examples=25)
settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="run the second tier too: what is marked repeats, as make test-all does",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """In the first tier properties are tried with fewer examples (``support.tiers.examples``)."""
    if not config.getoption("--all"):
        settings.load_profile("first tier")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What a test of the second tier finds, one of the first finds too: it runs with ``--all``."""
    first, second = [], []
    unknown = {}
    for item in items:
        repeats = False
        for mark in item.iter_markers("repeats"):
            (what,) = mark.args or ("",)
            but = mark.kwargs.get("but", [])
            if {*mark.kwargs} - {"but"} or not isinstance(what, str) or not what.strip():
                raise pytest.UsageError(f"{item.nodeid}: repeats() takes what the test repeats")
            case = item.callspec.id if but else ""
            fits = [pattern for pattern in but if fnmatch.fnmatchcase(case, pattern)]
            repeats |= not fits
            left = unknown.setdefault((item.path, item.originalname), {*but})
            left -= {*fits}
        (second if repeats else first).append(item)
    if not any("::" in each for each in config.args):  # all cases of each test are here
        for (path, name), patterns in unknown.items():
            if patterns:
                raise pytest.UsageError(f"{path}: {name} has no case {min(patterns)!r}")
    if second and not config.getoption("--all"):
        config.hook.pytest_deselected(items=second)
        items[:] = first
    if "workerinput" in vars(config):  # of pytest-xdist
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection(session):
    """Collecting makes millions of objects and hardly any garbage: do not search for it."""
    gc.disable()
    import_share(session)


def import_share(session):
    """Import some test files, in each process of pytest-xdist others, before all are collected.

    Rewriting the assertions of all takes five seconds of a processor, after which they are kept.
    Where none are, every process would do so at the same time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    folder = Path(__file__).parent
    asked = [Path(each).resolve() for each in session.config.args]
    paths = [
        path
        for path in sorted(folder.rglob("test_*.py"))
        if path.parent.name != "cuda" and {path, *path.parents} & {*asked}
    ]
    for path in paths[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting will tell it
            pytest.Module.from_parent(session, path=path).obj  # noqa: B018 - which imports it


def pytest_collection_finish():
    """What was collected and imported stays until the end: leave it out of every later search for
    garbage, each of which would look at millions of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 30)  # tests that are about garbage collect it themselves
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """That of ``--dist loadgroup``, but for three things.

    A file's tests that are in no group are run by the same process: what they load and set up, such
    as compiled code, each process would load and set up again. Groups, which take longest, are
    first, then files in the order of their names (``pytest_collection_modifyitems``); xdist's order
    begins with those of most tests. And what is done is forgotten: xdist goes through all that a
    process was ever given, each time that one of its tests ends, which is seconds with ten thousand
    tests.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415 - may not be installed

    config.option.loadscopereorder = False

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, name):
            group = super()._split_scope(name)
            return group.split("::")[0]  # a test's name where it is in no group

        def mark_test_complete(self, node, item_index, duration=0):
            name = self.registered_collections[node][item_index]
            scope = self._split_scope(name)
            self.assigned_work[node][scope][name] = True
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]
            self._reschedule(node)

    return Scheduling(config, log)
