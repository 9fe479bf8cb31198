"""Programs that innet does not ship: folders that other distributions register."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import innet
from innet import programs
from innet.core.errors import ConfigError, InputError, ProgramError, UnknownNameError
from innet.core.registry import Registry
from innet.tools.files import open_document
from innet.topology import Aggregation
from innet.topology.slots import SlotsAggregation

LIST = """
[mine]
source = "mine.p4"
description = "a program of mine"
values = [32]
parameters = { SLOTS = 64 }
"""
SOURCE = '#include "parts/own.p4"\n#include "include/repeat.p4"\n'


@pytest.fixture
def registry(monkeypatch):
    """Of programs' folders, empty; networks run ``mine`` as ``slots``."""
    folders = Registry("program", "innet.nobody")
    monkeypatch.setattr("innet.programs.catalog.FOLDERS", folders)
    aggregations = Registry("aggregation", "innet.nobody")
    aggregations.register("slots", "innet.topology.slots:SlotsAggregation")
    aggregations.register("mine", "innet.topology.slots:SlotsAggregation")
    monkeypatch.setattr("innet.topology.aggregation.AGGREGATIONS", aggregations)
    return folders


@pytest.fixture
def folder(tmp_path):
    """What `innet p4 compile` leaves behind, of a program that is slots-32 under another name."""
    shipped = programs.find("slots", 32)
    (tmp_path / "compiled").mkdir()
    shutil.copy(shipped.path, tmp_path / "compiled" / "mine-32.json.gz")
    entry = {**asdict(shipped), "program": "mine", "file": "compiled/mine-32.json.gz"}
    del entry["name"], entry["path"]
    manifest = {"format": programs.catalog.MANIFEST_FORMAT, "programs": {"mine-32": entry}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def test_a_registered_program_sums_gradients(registry, folder):
    registry.register("mine", folder)
    gradients = [np.full(500, each, np.float32) for each in (1, -2, 4)]
    total, report = innet.all_reduce(gradients, program="mine", values_per_packet=32)
    np.testing.assert_allclose(total, 3, rtol=1e-6)
    assert report.exact
    assert report.program == "mine-32"


def test_a_registered_program_is_listed_and_opened_by_name(registry, folder):
    registry.register("mine", folder)
    assert list(programs.available())[-1] == "mine-32"
    assert set(programs.available()) == {*programs.catalogue(), "mine-32"}
    assert open_document("mine-32") == programs.find("slots", 32).json()
    with pytest.raises(InputError, match="mine is compiled for 32 values per packet, not for 64"):
        programs.find("mine", 64)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'mine'.*harvest, hashed, mine"):
        programs.find("mien", 32)


def test_a_program_that_no_network_knows_how_to_run(registry, folder, monkeypatch):
    registry.register("mine", folder)
    monkeypatch.setattr("innet.programs.FOLDERS", registry)
    none = Registry("aggregation", "innet.aggregations")
    monkeypatch.setattr("innet.topology.aggregation.AGGREGATIONS", none)
    match = "how a network runs program 'mine'.* entry point 'mine' in the group 'innet.aggregatio"
    with pytest.raises(ConfigError, match=match):
        innet.Collective(program="mine", values_per_packet=32)
    with pytest.raises(ConfigError, match=r"program 'tree'.*in AGGREGATIONS of innet/"):
        innet.Collective(program="tree", values_per_packet=32)


@pytest.mark.parametrize(
    ("target", "match"),
    [
        (
            SlotsAggregation(),
            r"aggregation 'mine' is registered as <.*SlotsAggregation obj.*from innet\.topology\.",
        ),
        (int, r"registered as <class 'int'>; it has to be a class derived"),
        (Aggregation, r"its class Aggregation lacks \['plan', 'slot_reader'\]"),
    ],
)
def test_a_network_that_is_no_class_of_its_kind(registry, folder, monkeypatch, target, match):
    registry.register("mine", folder)
    networks = Registry("aggregation", "innet.aggregations")
    networks.register("mine", target)
    monkeypatch.setattr("innet.topology.aggregation.AGGREGATIONS", networks)
    with pytest.raises(ConfigError, match=match):
        innet.Collective(program="mine", values_per_packet=32)


@pytest.mark.parametrize("name", ["p4/slots.p4", "mine.json", "compiled/mine-32.json.gz"])
def test_a_file_is_no_name(registry, name):
    assert not registry.names()
    with pytest.raises(InputError, match=rf"^{name}: .* not by files; an entry point"):
        innet.Collective(program=name)


def test_a_name_of_our_own_wins(registry, folder):
    registry.register("slots", folder)
    assert programs.find("slots", 32) == programs.catalogue()["slots-32"]
    assert programs.available() == programs.catalogue()


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        ("nowhere", ProgramError, r"nowhere.manifest\.json: .*No such file.*innet p4 compile .*re"),
        ("", ConfigError, r"'other' is registered in .*, which has mine; register it"),
        (7, ConfigError, "'other' is registered in 7, which is not a folder"),
    ],
)
def test_what_is_not_there_is_told_to_who_asks_for_it(registry, folder, target, error, match):
    registry.register("other", folder / target if isinstance(target, str) else target)
    with pytest.raises(error, match=match):
        programs.find("other", 32)
    with pytest.raises(error, match=match):
        programs.available()
    assert programs.find("slots", 32).name == "slots-32"
    assert open_document("slots-32")


class TestCompiling:
    @pytest.fixture
    def p4c(self, tmp_path):
        """Notes how it was called, and writes an empty program."""
        path = tmp_path / "p4c-bm2-ss"
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n'
            'while [ "$1" != "-o" ]; do shift; done; echo "{}" > "$2"\n'
        )
        path.chmod(0o755)
        return path

    @pytest.fixture
    def sources(self, tmp_path):
        folder = tmp_path / "programs"
        (folder / "parts").mkdir(parents=True)
        (folder / "programs.toml").write_text(LIST)
        (folder / "mine.p4").write_text(SOURCE)
        (folder / "parts" / "own.p4").touch()
        return folder

    def test_a_folder_is_compiled_and_its_includes_noted(self, sources, p4c):
        (made,) = programs.compile_folder(sources, p4c)
        assert made == programs.catalogue(sources)["mine-32"]
        assert made.json() == {}
        assert made.parameters == {"VALUES": 32, "SLOTS": 64}
        assert list(made.sources) == ["include/repeat.p4", "mine.p4", "parts/own.p4"]
        called = (p4c.parent / "called").read_text()
        assert f"-DVALUES=32 -DSLOTS=64 -I {programs.p4_directory()} mine.p4" in called

    @pytest.mark.parametrize("name", ["compiled", "compiled/mine-32.json.gz", "manifest.json"])
    def test_what_cannot_be_written_is_named(self, sources, p4c, name):
        if name == "compiled":
            (sources / name).touch()
        else:
            (sources / name / "folder").mkdir(parents=True)
        with pytest.raises(InputError, match=rf"cannot (write|make the folder) .*{name}: "):
            list(programs.compile_folder(sources, p4c))

    def test_sources_may_differ_by_the_number_of_values(self, sources, p4c):
        text = LIST.replace('"mine.p4"', '{ 32 = "mine.p4", 64 = "parts/own.p4" }')
        (sources / "programs.toml").write_text(text.replace("[32]", "[32, 64]"))
        made = list(programs.compile_folder(sources, p4c))
        assert [each.source for each in made] == ["mine.p4", "parts/own.p4"]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('source = "mine.p4"', ""),
            ('"mine.p4"', "3"),
            ('"mine.p4"', '{ 64 = "mine.p4" }'),
            ("values = [32]", ""),
            ("[32]", "32"),
            ("[32]", '["32"]'),
            ("[32]", "[true]"),
            ('"a program of mine"', "[]"),
            ("64 }", '"64" }'),
            ("{ SLOTS = 64 }", "7"),
            ("parameters", "parameter"),
            ("[mine]", "mine = 1\n[other]"),
        ],
    )
    def test_a_list_that_is_none_is_told_with_what_it_needs(self, sources, p4c, before, after):
        (sources / "programs.toml").write_text(LIST.replace(before, after))
        with pytest.raises(ConfigError, match=r"programs\.toml: \[mine\] needs a source"):
            list(programs.compile_folder(sources, p4c))
        assert not (sources / "manifest.json").exists()

    @pytest.mark.parametrize(
        "damaged", ["<<<<<<< HEAD\n{}", "{}", "[]", '{"format": 1, "programs": {"mine-32": {}}}']
    )
    def test_a_damaged_manifest_is_made_anew(self, sources, p4c, damaged):
        (sources / "manifest.json").write_text(damaged)
        with pytest.raises(ProgramError, match=r"manifest\.json is damaged .*the whole folder"):
            list(programs.compile_folder(sources, p4c, only="mine"))
        assert (sources / "manifest.json").read_text() == damaged
        (made,) = programs.compile_folder(sources, p4c)
        assert made == programs.catalogue(sources)["mine-32"]

    def test_a_manifest_of_another_kind_is_told_with_what_makes_it(self, sources):
        (sources / "manifest.json").write_text("[]")
        with pytest.raises(ProgramError, match=rf"format None.*innet p4 compile {sources}`"):
            programs.catalogue(sources)

    def test_what_has_not_changed_is_left(self, sources, p4c):
        def compiled():
            return [each.name for each in programs.compile_folder(sources, p4c, changed=True)]

        assert compiled() == ["mine-32"]
        assert compiled() == []
        (sources / "parts" / "own.p4").write_text("// changed\n")
        assert compiled() == ["mine-32"]
        (sources / "programs.toml").write_text(LIST.replace("SLOTS = 64", "SLOTS = 32"))
        assert compiled() == ["mine-32"]
        (sources / "compiled" / "mine-32.json.gz").write_bytes(b"no gzip")
        assert compiled() == ["mine-32"]
        text = LIST.replace("SLOTS = 64", "SLOTS = 32").replace("a program of mine", "still mine")
        (sources / "programs.toml").write_text(text + text.replace("[mine]", "[other]"))
        assert compiled() == ["other-32"]
        assert programs.catalogue(sources)["mine-32"].description == "still mine"
        (sources / "programs.toml").write_text(text)
        assert compiled() == []
        assert list(programs.catalogue(sources)) == ["mine-32"]
        assert len(list(programs.compile_folder(sources, p4c))) == 1

    def test_a_compiler_without_its_headers(self, sources, p4c):
        p4c.write_text("#!/bin/sh\necho 'core.p4: No such file or directory' >&2; exit 1\n")
        with pytest.raises(ProgramError, match="Set P4C_16_INCLUDE_PATH to its folder p4include"):
            list(programs.compile_folder(sources, p4c))

    def test_a_folder_without_a_list(self, sources, p4c):
        (sources / "programs.toml").write_text("[mine")
        with pytest.raises(ConfigError, match=r"programs\.toml is no valid TOML"):
            list(programs.compile_folder(sources, p4c))
        (sources / "programs.toml").unlink()
        with pytest.raises(ConfigError, match=r"cannot read .*programs\.toml: No such file"):
            list(programs.compile_folder(sources, p4c))


@pytest.mark.repeats("p4c with innet's includes, as in the programs it ships")
@pytest.mark.p4c
@pytest.mark.skipif(not shutil.which("p4c-bm2-ss"), reason="p4c is not installed")
def test_what_innet_ships_can_be_included(tmp_path):
    """slots.p4 with sums that stay at the ends of int32, from a folder of its own."""
    source = Path(tmp_path) / "saturating.p4"
    source.write_text('#define SATURATING\n#include "slots.p4"\n')
    document = programs.compile_p4(source, {"VALUES": 32, "SLOTS": 16})
    assert programs.Dimensions.of(document) == programs.Dimensions(32, 16, 32)


@pytest.mark.parametrize(
    "thin",
    [
        "1",
        "{ values = 1 }",
        '{ values = 1, stands_for = "any" }',
        "{ values = 1, stands_for = 64, more = 2 }",
        "{ values = 1, stands_for = 64, source = 3 }",
    ],
)
def test_a_thin_build_that_is_not_described_is_refused(tmp_path, thin):
    (tmp_path / "mine.p4").touch()
    (tmp_path / "programs.toml").write_text(
        f'[mine]\nsource = "mine.p4"\ndescription = "mine"\nvalues = [32]\nthin = {thin}\n'
    )
    compiler = tmp_path / "p4c-bm2-ss"
    compiler.touch()
    with pytest.raises(ConfigError, match=r"\[mine\] needs .* thin, with the numbers values"):
        list(programs.compile_folder(tmp_path, p4c=compiler))
