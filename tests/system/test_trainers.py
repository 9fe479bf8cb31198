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
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes


def torchrun(*arguments):
    safe = "1"  # without the script's folder on the path: Transformers looks for a package kernels
    return subprocess.run(
        [*TORCHRUN, "--standalone", "--nproc-per-node", "2", *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONWARNINGS": "ignore",
            "PYTHONSAFEPATH": safe,
            "INNET_JOBS": "8",
        },
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
    names = [name for name in CHECKS if installed(name)]
    if not names:
        pytest.skip("neither accelerate, transformers nor lightning is installed")
    done = torchrun(SCRIPT, tmp_path, *names)
    found = {path.stem: json.loads(path.read_text()) for path in sorted(tmp_path.glob("?.json"))}
    said = "\n".join(outcome for each in found.values() for outcome in each.values())
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert found == {str(rank): dict.fromkeys(names, "passed") for rank in range(2)}


@pytest.mark.timeout(620)
@pytest.mark.skipif(not installed("torchft"), reason="torchft is not installed")
def test_torchft_trains_as_a_loop_does(tmp_path):
    """LocalSGD and DiLoCo over the switch beside loops over the same group, bit for bit."""
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - where it is installed

    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [str(each.getsockname()[1]) for each in taken]
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60_000)
    script = ROOT / "tests" / "support" / "torchft_checks.py"
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(replica), lighthouse.address(), *ports, str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for replica in range(2)
    ]
    try:
        said = [each.communicate(timeout=600)[1] for each in processes]
    finally:
        for each in processes:
            each.kill()
        lighthouse.shutdown()
    assert [each.returncode for each in processes] == [0, 0], "\n".join(said)
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
@pytest.mark.parametrize("mode", ["localsgd", "diloco"])
def test_torchft_goes_on_when_a_replica_dies_and_comes_back(tmp_path, mode):
    """It dies in the middle of a sync: that one counts for nobody, and the next ones are of the
    others. Its successor takes over their weights.
    """
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - where it is installed

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60_000, heartbeat_timeout_ms=2000
    )
    script = ROOT / "tests" / "support" / "torchft_checks.py"
    with contextlib.ExitStack() as stack:
        stack.callback(lighthouse.shutdown)
        _, switch = stack.enter_context(service_process())

        def started(replica):
            process = subprocess.Popen(
                [sys.executable, script, str(replica), lighthouse.address(), mode, str(tmp_path)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "INNET_SWITCH": switch},
            )
            stack.callback(process.kill)
            return process

        processes = [started(replica) for replica in range(3)]
        dead = processes[2].communicate(timeout=300)[1]
        assert processes[2].returncode == -signal.SIGKILL, dead
        processes[2] = started(3)
        said = [each.communicate(timeout=300)[1] for each in processes]
    assert [each.returncode for each in processes] == [0, 0, 0], "\n".join(said)
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


@pytest.mark.skipif(
    not os.environ.get("INNET_LONG"), reason="takes minutes; set INNET_LONG=1 to run it"
)
@pytest.mark.timeout(620)
@pytest.mark.parametrize("example", COMMANDS)
def test_command(example):
    if not installed(Path(example).stem):
        pytest.skip(f"{Path(example).stem.partition('_')[0]} is not installed")
    done = torchrun(ROOT / example)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"(\d\d\.\d)% (?:were right|of the training images are right)$",
                         done.stdout.strip().splitlines()[-1])  # fmt: skip
    assert float(said) > 50  # of ten classes; the checks say more
