"""Files that an editor begins with a byte order mark, and ends lines of with two characters."""

from __future__ import annotations

import json

import pytest
from support.records import a_record

from innet import programs
from innet.core.errors import MissingToolError
from innet.core.settings import AllReduceSettings, load_toml
from innet.mininet.files import commands
from innet.processes.settings import mapping_in
from innet.programs.catalog import LIST
from innet.records import DEMO, TrainingRecord
from innet.service.connections import key_of
from innet.tools import stf_syntax
from innet.tools.files import read_commands

SETTINGS = "workers = 2\nsize = 100\n"
COMMANDS = "mc_mgrp_create 1\nmc_node_create 0 1\n"


@pytest.fixture
def saved(tmp_path):
    """Writes a text as such an editor does; the file."""

    def save(name, text):
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        return path

    return save


def test_settings(saved):
    assert load_toml(saved("a.toml", SETTINGS), AllReduceSettings).workers == 2
    assert mapping_in(saved("b.toml", SETTINGS)) == {"workers": 2, "size": 100}
    assert mapping_in(saved("c.json", '{"workers": 2}\n')) == {"workers": 2}


def test_a_key_is_the_same_wherever_it_was_written(saved):
    assert key_of(None, saved("key", "ä secret\n")) == "ä secret"


def test_the_key_that_a_rank_of_pytorch_is_given(saved):
    pytest.importorskip("torch")
    from innet.torch.rendezvous import RendezvousSettings  # noqa: PLC0415 - optional

    environment = {"INNET_KEY_FILE": str(saved("key", "ä secret\n"))}
    assert RendezvousSettings.of(deadline=1.0, environment=environment).key == "ä secret"


def test_commands_and_packet_tests(saved):
    assert read_commands(saved("commands.txt", COMMANDS)).lines == tuple(COMMANDS.splitlines())
    (packet,) = stf_syntax.read(saved("a.stf", "packet 1 00 11\n")).statements
    assert packet.port == 1


def test_a_record(saved, tmp_path):
    record = a_record()
    record.save(tmp_path / "demo.json")
    text = (tmp_path / "demo.json").read_text()
    assert TrainingRecord.load(saved("edited.json", text), DEMO) == record


def test_a_list_of_programs(saved, tmp_path):
    saved(LIST, "# none yet\n")
    assert list(programs.compile_folder(tmp_path, tmp_path / "p4c")) == []


def test_entries_of_tables(saved):
    program = {"actions": [], "pipelines": []}
    groups = [{"multicast_group_id": 1, "replicas": []}]
    text = json.dumps({"multicast_group_entries": groups})
    assert commands(saved("s1-runtime.json", text), program) == ["mc_mgrp_create 1"]


def test_a_topology(saved):
    try:
        from innet.mininet.files import load  # noqa: PLC0415 - needs Mininet
    except MissingToolError as error:
        pytest.skip(str(error))
    text = json.dumps({"hosts": {"h1": {}}, "switches": {"s1": {}}, "links": [["h1", "s1-p1"]]})
    assert list(load(saved("topology.json", text)).hosts) == ["h1"]
