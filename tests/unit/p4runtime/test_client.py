"""The client by names, and the example that controls innet's aggregation program with it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")
pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.p4runtime import Process

from innet import programs
from innet.core.errors import InputError, NetworkError, UnknownNameError
from innet.p4runtime.client import P4RuntimeClient, WriteError
from innet.p4runtime.messages import p4, p4info_from_text
from innet.p4runtime.p4info import P4Index
from innet.switch import load_program

ROOT = Path(__file__).parents[3]
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "p4runtime_job.py"))
STF = (ROOT / "p4" / "examples" / "two-workers.stf").read_text().splitlines()
LARGEST = "slots-1024"


@pytest.fixture(scope="module")
def process():
    made = Process()
    yield made
    made.close()


@pytest.fixture
def switch(process):
    program = programs.find("slots", 32)
    with P4RuntimeClient(f"127.0.0.1:{process.port}", p4info_from_text(program.p4info())) as made:
        made.set_program(json.dumps(program.json()).encode())
        yield made


def packets(word):
    """(port, bytes) of the first lines of two-workers.stf that begin with a word."""
    lines = [line.rstrip("$").split() for line in STF if line.startswith(word)]
    return [(int(line[1]), bytes.fromhex("".join(line[2:]))) for line in lines[:2]]


def test_a_job_is_admitted_read_and_ended(process, switch):
    job = list(EXAMPLE["entities"](switch, 1, 2, 4))
    switch.write(*[("INSERT", each) for each in job], atomicity="DATAPLANE_ATOMIC")
    left = process.switch.switch.process(packets("packet"))
    assert left == packets("expect")
    used = [index for index, word in enumerate(EXAMPLE["slots_of"](switch, 4)) if word]
    assert used == [0]
    switch.write(*[("DELETE", each) for each in reversed(job)], atomicity="DATAPLANE_ATOMIC")
    everything = p4.Entity()
    everything.table_entry.SetInParent()
    kept = [e for e in switch.read(everything) if not e.table_entry.is_const]
    assert kept == []
    assert process.switch.switch.process(packets("packet")) == []


def test_refusals_name_what_is_wrong(process, switch):
    entry = switch.entry("deliver", {"standard_metadata.egress_port": 1}, "address")
    with pytest.raises(WriteError, match="is missing") as error:
        switch.write(("INSERT", entry))
    assert error.value.codes == [3]
    with pytest.raises(UnknownNameError):
        switch.entry("nowhere", {})
    with pytest.raises(UnknownNameError):
        switch.entry("deliver", {"port": 1})
    with pytest.raises(InputError, match="one value"):
        switch.entry("deliver", {"standard_metadata.egress_port": (1, 2)})
    with pytest.raises(NetworkError, match="primary"):
        P4RuntimeClient(f"127.0.0.1:{process.port}", switch.p4info, election_id=0)


def test_every_shipped_program_has_a_p4info_that_fits():
    for program in programs.catalogue().values():
        if program.name == LARGEST:  # the next test
            continue
        text = program.p4info()
        assert text is not None, program.name
        info = p4info_from_text(text, program.name)
        loaded = load_program(program.json())
        index = P4Index(info, loaded)
        assert len(index.tables) == len(info.tables) > 0, program.name
        assert {each.name for each in index.registers.values()} == {
            each.name for each in loaded.registers
        }


def test_the_largest_program_is_set_and_its_registers_are_read(process):
    program = programs.catalogue()[LARGEST]
    p4info = p4info_from_text(program.p4info(), program.name)
    with P4RuntimeClient(f"127.0.0.1:{process.port}", p4info) as client:
        client.set_program(program.text())
        assert len(p4info.registers) > 1024
        (cell,) = client.read(client.register("value1023", 5))
        assert cell.register_entry.data.bitstring == b"\0"
