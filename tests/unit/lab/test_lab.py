"""The course lab: a right solution passes, and a wrong one gets the hint that names its mistake."""

from __future__ import annotations

import gzip
import json
import os
import runpy
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet import programs
from innet.cli.app import app
from innet.core.errors import InputError, MissingToolError
from innet.lab import check, new_folder, worker_part
from innet.lab.check import check_level
from innet.lab.exercises import run_exercises
from innet.lab.folder import sum_vector_of
from innet.lab.packets import LabChunk, contribution, fields_of, ipv4_checksum, udp_checksum
from innet.lab.worker_part import WorkerRun
from innet.switch import load_program

SOLUTIONS = Path(__file__).parents[2] / "programs" / "lab"
STUDENT = programs.p4_directory() / "lab" / "student"
WORKER = (SOLUTIONS / "worker.py").read_text()


def document(name):
    return json.loads(gzip.decompress((SOLUTIONS / f"{name}.json.gz").read_bytes()))


def program(name):
    return load_program(document(name))


@pytest.fixture
def folder(tmp_path):
    """A student's folder with the solution, compiled."""
    made = tmp_path / "mine"
    new_folder(made)
    (made / "worker.py").write_text(WORKER)
    (made / "aggregate.json").write_text(json.dumps(document("solution")))
    return made


def worker_with(tmp_path, before, after):
    """The solution's worker with another text somewhere."""
    assert before in WORKER
    path = tmp_path / "worker.py"
    path.write_text(WORKER.replace(before, after))
    return sum_vector_of(path)


def of_workers(tmp_path, before, after, level):
    return WorkerRun(worker_with(tmp_path, before, after), None, level, 0).run()


# ------------------------------------------------------------------ right and wrong solutions


@pytest.mark.repeats("the same at another level and with another seed", but=["1-0", "3-0"])
@pytest.mark.parametrize(("level", "seed"), [(1, 0), (2, 0), (3, 0), (3, 1)])
def test_the_solution_is_right(level, seed):
    checked = check_level(program("solution"), sum_vector_of(SOLUTIONS / "worker.py"), level, seed)
    assert checked.findings == [], str(checked.findings[0])
    assert checked.packets[0] > 40
    assert (checked.packets[1] == 96) == (level < 3), "sent again at level 3 only"


@pytest.mark.parametrize(
    ("name", "level", "at", "packet", "mistake", "hint", "wrong"),
    [
        ("skeleton", 1, 3, (2, 0, 0), "no-result", "mcast_grp", []),
        ("early", 1, 2, (1, 0, 0), "early-result", "before all workers", []),
        ("kept", 1, 12, (2, 0, 64), "sum-not-reset", "not reset", ["v0", "v1", "v2", "v3"]),
        ("unicast", 1, 3, (2, 0, 0), "unicast", "multicast", []),
        ("offset", 1, 9, (2, 0, 32), "offset-lost", "offset", ["offset"]),
        ("ipv4_checksum", 2, 3, (2, 0, 0), "ipv4-checksum", "update_checksum", ["checksum"]),
        ("length", 2, 3, (2, 0, 0), "wrong-length", "UDP counts its own header", ["length"]),
        ("udp_checksum", 2, 3, (2, 0, 0), "udp-checksum", "covers addresses", ["checksum"]),
        ("bitmap", 3, 3, (1, 1, 4), "counted-twice", "bitmap", []),
        ("twice", 3, 5, (2, 1, 4), "added-twice", "duplicate", ["v0", "v1", "v2", "v3"]),
        ("version", 3, 9, (1, 0, 0), "wrong-version", "version", ["v0", "v1", "v2", "v3"]),
        ("stale", 3, 30, (2, 2, 72), "late-duplicate", "lower", []),
    ],
)  # fmt: skip
def test_a_wrong_switch_is_shown_its_first_wrong_packet(
    name, level, at, packet, mistake, hint, wrong
):
    for right in range(1, level):
        assert run_exercises(program(name), right, 0)[1] is None
    sent, finding = run_exercises(program(name), level, 0)
    assert finding is not None
    assert (sent, finding.mistake) == (at, mistake)
    assert tuple(finding.sent[f"chunk.{each}"] for each in ("worker", "slot", "offset")) == packet
    assert hint in finding.hint
    assert [each.name.partition(".")[2] for each in finding.wrong] == wrong
    assert finding.trace[0].startswith("ingress: normal packet of ")
    assert (finding.came == "nothing") == (mistake in ("no-result", "late-duplicate"))


def test_the_way_shown_is_that_of_the_packet_that_was_taken_wrongly():
    """A late duplicate does harm which only the result shows, two packets later."""
    _, finding = run_exercises(program("stale"), 3, 0)
    assert "worker 1, at port 2: slot 2, version 0, offset 8" in finding.culprit
    assert any("offset 0x8" in line for line in finding.trace if "extract chunk" in line)
    assert any("offsets[4]: 0x48 → 0x8" in line for line in finding.trace)
    text = str(finding)
    assert text.index("should have come: ") < text.index("took wrongly") < text.index("hint: ")


@pytest.mark.parametrize(
    ("kind", "level", "packet", "mistake", "hint", "wrong"),
    [
        ("order", 1, (1, 0, 0), "byte-order", "big endian", {"v0", "v1", "v2", "v3"}),
        ("window", 1, (1, 0, 32), "slot-in-use", "slot 0 is in use", set()),
        ("version", 3, (1, 0, 0), "version-changed", "again, with version 1", {"version"}),
        ("offset", 3, (2, 5, 84), "result-of-another", "offset 52", set()),
        ("deaf", 3, (), "never-again", "was lost at 3.2 us", set()),
    ],
)
def test_a_wrong_worker_is_shown_its_first_wrong_packet(
    tmp_path, kind, level, packet, mistake, hint, wrong
):
    finding = of_workers(tmp_path, 'MISTAKE = ""', f'MISTAKE = "{kind}"', level)
    assert finding is not None
    assert finding.mistake == mistake
    names = ("worker", "slot", "offset") if packet else ()
    assert tuple(finding.sent[f"chunk.{each}"] for each in names) == packet
    assert hint in finding.hint
    assert {each.name.partition(".")[2] for each in finding.wrong} == wrong
    assert finding.should.startswith("slot ")


def test_a_packet_that_a_worker_does_not_send_is_named(tmp_path):
    finding = of_workers(tmp_path, 'MISTAKE = ""', 'MISTAKE = "deaf"', 3)
    assert finding.packet == "one that worker 0 does not send"
    assert finding.should.startswith("slot 1, version 0, offset 4, values ")


@pytest.mark.parametrize(
    ("before", "after", "mistake", "hint"),
    [
        ("pack(number, version", "pack(number + 1, version", "wrong-worker", "number of the"),
        ("pack(number, version", "pack(number, 1 - version", "wrong-version", "SLOTS) % 2"),
        ("    if chunk + SLOTS < chunks", "    if False", "never-sent", "offset 32"),
        ("    while waiting:", "    for _ in range(25):", "result-misread", "has all results"),
        ("    return total", "    return total[1:]", "wrong-return", "list of 128 integers"),
        ("    return total", "    await host.receive()", "no-return", "does not return"),
        ("= values\n", "= values[::-1]\n", "result-misread", "Element 0 of the sum"),
        ("    while waiting:", "    while True:\n        1 / 0", "error", "ZeroDivisionError"),
        ("return struct.pack(\">", "return b'' + struct.pack(\">B", "error", "pack expected 9"),
        ("(number, version, slot, ", "(number, version, slot + 1, ", "wrong-slot", "% SLOTS"),
        ("*values)\n\n\ndef unpack", "*values) + b'.'\n\n\ndef unpack", "wrong-length", "8 bytes"),
    ],
)  # fmt: skip
def test_other_mistakes_of_workers(tmp_path, before, after, mistake, hint):
    finding = of_workers(tmp_path, before, after, 1)
    assert finding is not None
    assert finding.mistake == mistake
    assert hint in finding.hint or hint in str(finding)


def test_an_endless_loop_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_part, "_LONGEST_STEP", 0.2)
    finding = of_workers(tmp_path, "    while waiting:", "    while True: pass\n    while 1:", 1)
    assert finding.mistake == "endless-loop"
    assert "worker.py:" in finding.hint


def test_workers_have_the_labs_switch_if_the_students_is_wrong():
    checked = check_level(program("early"), sum_vector_of(SOLUTIONS / "worker.py"), 1)
    assert checked.switch.mistake == "early-result"
    assert checked.workers is None


# ------------------------------------------------------------------ packets


def test_packets_are_those_of_other_software():
    scapy = pytest.importorskip("scapy.all")
    frame = contribution(LabChunk(2, 9, (1, -2, 3, -4)), 2)
    layers = scapy.Ether(frame)
    right = bytes(layers)
    del layers[scapy.IP].chksum, layers[scapy.UDP].chksum, layers[scapy.UDP].len
    assert bytes(layers) == right
    fields = fields_of(frame)
    assert fields["ipv4.checksum"] == ipv4_checksum(frame)
    assert fields["udp.checksum"] == udp_checksum(frame)
    assert (fields["chunk.slot"], fields["chunk.version"], fields["chunk.offset"]) == (1, 1, 36)
    assert fields["values.v3"] == -4


# ------------------------------------------------------------------ folders and the command


def test_new_writes_the_students_files_and_no_solution(tmp_path):
    made = new_folder(tmp_path / "mine")
    assert [path.name for path in made] == ["README.md", "aggregate.p4", "test_lab.py", "worker.py"]
    everything = {path.name for path in (programs.p4_directory() / "lab").rglob("*.*")}
    assert everything == {path.name for path in made} | {"wires.p4", "wires.json"}
    with pytest.raises(InputError, match="exists and is not empty"):
        new_folder(tmp_path / "mine")


def test_a_run_is_the_same_again(tmp_path):
    worker = worker_with(tmp_path, 'MISTAKE = ""', 'MISTAKE = "deaf"')
    first, again, other = (WorkerRun(worker, None, 3, seed).run() for seed in (4, 4, 5))
    assert first.document() == again.document()
    assert first.document() != other.document()


def test_the_command(folder):
    run = CliRunner().invoke(app, ["lab", "check", str(folder), "--level", "1"])
    assert (run.exit_code, run.output.count(": right (")) == (0, 2)
    (folder / "aggregate.json").write_text(json.dumps(document("unicast")))
    run = CliRunner().invoke(app, ["lab", "check", str(folder), "--level", "1"])
    assert run.exit_code == 1
    assert "hint: The result went to port 3 only (unicast)" in run.output
    run = CliRunner().invoke(app, ["lab", "check", str(folder), "--level", "2", "--json"])
    found = json.loads(run.stdout)
    assert (run.exit_code, found["passed"], found["levels"][0]["level"]) == (1, False, 2)
    (finding,) = found["levels"][0]["findings"]
    assert finding["mistake"] == "unicast"
    assert finding["sent"]["ipv4.destination"] == 0x0A0000FE


def test_the_students_tests_say_the_same(folder):
    test_level = runpy.run_path(str(folder / "test_lab.py"))["test_level"]
    test_level(1, "switch")
    (folder / "aggregate.json").write_text(json.dumps(document("early")))
    with pytest.raises(AssertionError, match="before all workers came"):
        test_level(1, "switch")


def test_p4c_is_needed_and_named(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")
    os.utime(folder / "aggregate.json", (1, 1))  # older than the source
    with pytest.raises(MissingToolError):
        check(folder)
    run = CliRunner().invoke(app, ["lab", "check", str(folder)])
    assert run.exit_code == 2
    assert "https://github.com/p4lang/p4c#installation" in run.output
    assert "aggregate.json that is newer" in run.output


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("worker.py", "def f(:", "worker.py:1: SyntaxError"),
        ("worker.py", "x = 1\ny = z\n", "worker.py:2: NameError"),
        ("worker.py", "x = 1\n", "has no sum_vector"),
        ("aggregate.json", "{}", "aggregate.json"),
    ],
)
def test_what_cannot_be_checked_is_said(folder, name, text, said):
    (folder / name).write_text(text)
    report = check(folder)
    assert not report.passed
    assert said in report.error


def test_a_program_without_the_labs_tables_is_refused(folder):
    shutil.copy(programs.p4_directory() / "lab" / "wires.json", folder / "aggregate.json")
    assert "Keep the tables job and addresses" in check(folder).error


def test_no_folder_and_no_level():
    with pytest.raises(InputError, match="is no folder"):
        check("nowhere")
    with pytest.raises(InputError, match="no level 4"):
        check(STUDENT, [4])


# ------------------------------------------------------------------ with p4c

DEFINITIONS = {
    path.name.removesuffix(".json.gz"): path for path in sorted(SOLUTIONS.glob("*.json.gz"))
}


@pytest.mark.repeats("the same with each wrong solution", but=["solution", "wires"])
@pytest.mark.p4c
@pytest.mark.parametrize("name", [*DEFINITIONS, "wires"])
def test_compiled_from_the_sources(name):
    if not (shutil.which("p4c-bm2-ss") or shutil.which("p4c")):
        pytest.skip("p4c is not installed")
    sources = {"skeleton": STUDENT / "aggregate.p4", "wires": STUDENT.parent / "wires.p4"}
    source = sources.get(name, SOLUTIONS / "solution.p4")
    made = programs.compile_p4(source, {} if name in (*sources, "solution") else {name.upper(): 1})
    wires = STUDENT.parent / "wires.json"
    committed = json.loads(wires.read_text()) if name == "wires" else document(name)
    if made["__meta__"] != committed["__meta__"]:
        pytest.skip("compiled by another version of p4c")
    remedy = f"write {name}.json.gz again: json.dumps of compile_p4's answer, by gzip"
    assert made == committed, remedy
