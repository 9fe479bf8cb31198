"""Runs PyTorch's own tests of process groups and of DistributedDataParallel, with any back end.

    python tests/support/pytorch_own.py gloo|innet FILE.json [TEST ... | PART/PARTS]

The tests are those of ``torch.testing._internal.distributed.distributed_test``, which PyTorch's
wheel contains; without names all of them, or every PARTSth. FILE.json becomes
{test: [outcome, message, seconds]}, where an outcome is passed, failed or skipped. ``WORLD_SIZE``
ranks, by default 3 as in PyTorch's checks without a GPU, are processes of each test.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import unittest
from pathlib import Path

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "30")  # seconds of one test
os.environ["BACKEND"] = "gloo"  # what decides which tests are skipped, when they are imported

import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
from torch.distributed import distributed_c10d
from torch.testing._internal.common_distributed import DistTestCases
from torch.testing._internal.distributed import distributed_test as tests

import innet.torch.group
from innet.torch.comm_thread import compile_codec

FEATURES = ("gpu", "cuda", "ddp", "subgroup", "plugin")


class LikeGloo(str):
    """A back end's name that the tests take for gloo's where they ask what it can do."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other in ("gloo", str(self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class TestOfPyTorch(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """As PyTorch's own, whose ranks import everything anew, which takes most of the time."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Outcomes(unittest.TestResult):
    """Writes each outcome at once; the methods' names are unittest's."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._found: dict[str, tuple[str, str, float]] = {}
        self._begun = 0.0

    def startTest(self, test) -> None:  # noqa: N802
        super().startTest(test)
        self._begun = time.monotonic()

    def note(self, test, outcome: str, message: str = "") -> None:
        seconds = round(time.monotonic() - self._begun, 2)
        self._found[test.id().rpartition(".")[2]] = outcome, message, seconds
        self._file.write_text(json.dumps(self._found, indent=1))

    def addSuccess(self, test) -> None:  # noqa: N802
        self.note(test, "passed")

    def addSkip(self, test, reason: str) -> None:  # noqa: N802
        self.note(test, "skipped", reason)

    def addError(self, test, error) -> None:  # noqa: N802
        self.note(test, "failed", self._exc_info_to_string(error, test))

    addFailure = addError  # noqa: N815


def main(backend: str, file: Path, names: list[str]) -> None:
    for feature in FEATURES:
        DistTestCases.backend_feature[feature].add(backend)
    tests.BACKEND = LikeGloo(backend)
    # PyTorch's monitored_barrier asks for gloo by name; without that the group's own is called.
    distributed_c10d.get_backend = lambda group=None: LikeGloo(torch.distributed.get_backend(group))
    os.environ["BACKEND"] = backend
    torch.set_num_threads(1)
    compile_codec(innet.torch.group.DEFAULT_CODEC)  # once, for all ranks
    gc.collect()
    gc.freeze()  # what ranks would look through, and so copy
    chosen = list(names)
    if not names or "/" in names[0]:
        part, parts = map(int, (names or ["0/1"])[0].split("/"))
        chosen = unittest.TestLoader().getTestCaseNames(TestOfPyTorch)[part::parts]
    unittest.TestSuite(map(TestOfPyTorch, chosen)).run(Outcomes(file))


if __name__ == "__main__":
    logging.disable(logging.INFO)
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
