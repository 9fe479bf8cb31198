"""Trainers of others with innet's hook, in two processes, through a switch process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.service import service_process

from innet.core.errors import CompositionError, MissingToolError

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "trainer_checks.py"
CHECKS = re.findall(r"^@check\ndef (\w+)\(", SCRIPT.read_text(), re.MULTILINE)
GUIDE = (ROOT / "docs" / "trainers.md").read_text()
COMMANDS = re.findall(r"^\$ torchrun --standalone --nproc-per-node 4 (\S+)$", GUIDE, re.MULTILINE)
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes


def python(*arguments):
    # Without the script's folder on the path: Transformers looks for a package kernels.
    environment = {"PYTHONWARNINGS": "ignore", "PYTHONSAFEPATH": "1", "INNET_JOBS": "8"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,  # of a busy machine on which nothing is compiled yet
        check=False,
    )


def installed(name):
    return importlib.util.find_spec(name.partition("_")[0]) is not None


@pytest.mark.timeout(620)
def test_trainers_train_as_a_loop_does(tmp_path):
    """Losses, resumed checkpoints and errors, of those that are installed.

    All in one run: it takes longer to start two processes than to make the checks.
    """
    hold_checks(tmp_path, [name for name in CHECKS if name.endswith("_as_a_loop_does")])


@pytest.mark.repeats("the trainings of trainers, with more of their options")
@pytest.mark.timeout(620)
def test_trainers_with_the_hook_train_as_without_it(tmp_path):
    """Steps that accumulate, clip and evaluate, in bfloat16: exact sums of two are gloo's."""
    hold_checks(tmp_path, [name for name in CHECKS if name.endswith("_as_without_the_hook")])


def hold_checks(tmp_path, names):
    names = [name for name in names if installed(name)]
    if not names:
        pytest.skip("neither accelerate, transformers nor lightning is installed")
    done = python(SCRIPT, tmp_path, *names)
    found = {path.stem: json.loads(path.read_text()) for path in sorted(tmp_path.glob("?.json"))}
    said = "\n".join(outcome for each in found.values() for outcome in each.values())
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert found == {str(rank): dict.fromkeys(names, "passed") for rank in range(2)}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    """Runs replicas that torchft manages; fails with what they wrote if one ends badly."""
    said = tmp_path_factory.mktemp("torchft") / "stderr.txt"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, ROOT / "tests" / "support" / "torchft_checks.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # to be killed with its replicas
        )

    def run(expected, **task):
        process.stdin.write(json.dumps({"environment": {}, "seconds": 300, **task}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, said.read_text()
        assert json.loads(answer) == expected, said.read_text()

    try:
        yield run
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.timeout(620)
@pytest.mark.skipif(not installed("torchft"), reason="torchft is not installed")
def test_torchft_trains_as_a_loop_does(replicas, tmp_path):
    """LocalSGD and DiLoCo over the switch beside loops over the same group, bit for bit."""
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - where it is installed

    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [str(each.getsockname()[1]) for each in taken]
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60_000)
    words = [lighthouse.address(), *ports, str(tmp_path)]
    try:
        replicas({"0": 0, "1": 0}, replicas=[["0", *words], ["1", *words]])
    finally:
        lighthouse.shutdown()
    for mode in ("localsgd", "diloco"):
        found = [json.loads((tmp_path / f"{mode}-{each}.json").read_text()) for each in range(2)]
        for each in found:
            ours, loop = each["torchft"], each["by hand"]
            assert (ours["losses"], ours["weights"]) == (loop["losses"], loop["weights"])
            assert ours["sums"] == 3 * 4  # three syncs of four parameters
            assert ours["exact"]
            assert ours["codecs"] == ["lhc"]
        assert found[0]["torchft"]["weights"] == found[1]["torchft"]["weights"]
        assert found[0]["torchft"]["losses"] != found[1]["torchft"]["losses"]


@pytest.mark.timeout(920)
@pytest.mark.skipif(not installed("torchft"), reason="torchft is not installed")
@pytest.mark.repeats("trainings by torchft, and workers of the service that die")
@pytest.mark.parametrize("mode", ["localsgd", "diloco"])
def test_torchft_goes_on_when_a_replica_dies_and_comes_back(replicas, tmp_path, mode):
    """It dies in the middle of a sync: that one counts for nobody, and the next ones are of the
    others. Its successor takes over their weights.
    """
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - where it is installed

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60_000, heartbeat_timeout_ms=2000
    )
    words = [lighthouse.address(), mode, str(tmp_path)]
    try:
        with service_process() as (_, switch):
            replicas(
                {"0": 0, "1": 0, "2": -signal.SIGKILL, "3": 0},
                replicas=[[str(each), *words] for each in range(3)],
                successor=["3", *words],
                environment={"INNET_SWITCH": switch},
            )
    finally:
        lighthouse.shutdown()
    found = [json.loads((tmp_path / f"{mode}-{each}.json").read_text()) for each in (0, 1, 3)]
    assert found[0] == found[1]
    steps, participants = zip(*found[0]["syncs"], strict=True)
    assert steps[:4] == (1, 1, 2, 3)  # the second sync did not count
    assert participants[0] == 3
    assert participants[2:4] == (2, 2)
    assert participants[-2:] == (3, 3)
    assert found[2]["weights"] == found[0]["weights"]
    assert found[2]["syncs"] == found[0]["syncs"][-2:]


def test_torchft_takes_no_codec_that_remembers():
    if not installed("torchft"):
        with pytest.raises(MissingToolError, match=r"innet\[torchft\]"):
            importlib.import_module("innet.torch.torchft")
        return
    module = importlib.import_module("innet.torch.torchft")
    with pytest.raises(CompositionError, match="the codec is 'topk', which remembers"):
        module.SwitchProcessGroup("topk")


def test_there_is_an_example_of_each():
    assert [Path(each).stem for each in COMMANDS] == [
        "accelerate_ddp", "transformers_ddp", "lightning_ddp", "torchft_diloco"
    ]  # fmt: skip
    for each in COMMANDS:
        assert len((ROOT / each).read_text().splitlines()) <= 60


@pytest.mark.repeats("the checks of each trainer, in the examples")
@pytest.mark.timeout(620)
@pytest.mark.parametrize("example", COMMANDS)
def test_command(example):
    if not installed(Path(example).stem):
        pytest.skip(f"{Path(example).stem.partition('_')[0]} is not installed")
    done = python(*TORCHRUN, ROOT / example)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"(\d\d\.\d)% (?:were right|of the training images are right)$",
                         done.stdout.strip().splitlines()[-1])  # fmt: skip
    assert float(said) > 50  # of ten classes; the checks say more
