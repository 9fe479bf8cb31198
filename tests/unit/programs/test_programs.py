"""The catalogue of compiled programs: sources, parameters and JSON belong together."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.tiers import tiered

from innet import programs, wire
from innet.core.errors import InputError, MissingToolError, ProgramError, UnknownNameError
from innet.switch import Switch

NAMES = sorted(programs.catalogue())
# Parameters for the first tier: to read a program with 1,024 values takes seconds.
ALL_BUT_THE_LARGEST = tiered(
    NAMES, [name for name in NAMES if name != "collectives-1024"], "slots-1024"
)
needs_p4c = pytest.mark.skipif(
    not (shutil.which("p4c-bm2-ss") or shutil.which("p4c")), reason="p4c is not installed"
)


@pytest.fixture
def checkout(tmp_path):
    """A copy of p4/ that a test may change."""
    shutil.copytree(programs.p4_directory(), tmp_path / "p4")
    return tmp_path / "p4"


@pytest.mark.parametrize("name", NAMES)
def test_compiled_from_the_sources_beside_it(name):
    program = programs.catalogue()[name]
    now = programs.source_hashes(programs.p4_directory(), program.source)
    assert now == program.sources, "sources have changed: run `innet p4 compile`"


def test_sources_are_followed_through_includes():
    hashes = programs.source_hashes(programs.p4_directory(), "slots.p4")
    assert {"slots.p4", "include/headers.p4", "include/repeat.p4"} <= set(hashes)


@pytest.mark.repeats("the same sources with more values", but=["*-thin"])
@needs_p4c
@pytest.mark.parametrize("name", NAMES)
def test_compiles_to_what_is_committed(name):
    program = programs.catalogue()[name]
    p4c = programs.find_p4c()
    source = programs.p4_directory() / program.source
    document = programs.compile_p4(source, program.parameters, p4c)
    if programs.p4c_version(p4c) != program.p4c:
        pytest.skip(
            f"p4c is {programs.p4c_version(p4c)}, the program was compiled by {program.p4c}"
        )
    assert document == program.json()


@pytest.mark.repeats("each program, and folders with a compiler that is a script")
@needs_p4c
def test_compile_folder_rewrites_manifest_and_files(checkout):
    before = {path.name: path.read_bytes() for path in (checkout / "compiled").iterdir()}
    manifest = json.loads((checkout / "manifest.json").read_text())
    p4c = programs.find_p4c()
    same = manifest["programs"]["tree-32"]["p4c"] == programs.p4c_version(p4c)
    (checkout / "manifest.json").unlink()
    done = [program.name for program in programs.compile_folder(checkout, only="tree")]
    assert sorted(done) == ["tree-32", "tree-64", "tree-thin"]
    if same:
        entries = manifest["programs"].items()
        manifest["programs"] = {name: each for name, each in entries if each["program"] == "tree"}
        assert json.loads((checkout / "manifest.json").read_text()) == manifest
        assert {p.name: p.read_bytes() for p in (checkout / "compiled").iterdir()} == before


@needs_p4c
def test_p4c_refusal_is_passed_on(tmp_path):
    source = tmp_path / "wrong.p4"
    source.write_text("control C() { apply { nonsense(); } }\n")
    with pytest.raises(ProgramError, match="nonsense"):
        programs.compile_p4(source)


class TestTheCompilerItself:
    """Shell scripts in p4c's place; the last argument is the source, the one before it its JSON."""

    WRITES = 'while [ "$1" != "-o" ]; do shift; done; echo "{}" > "$2"'

    @pytest.fixture
    def compiler(self, tmp_path, monkeypatch):
        """Makes a compiler of a script, at a path that holds in the current folder alone."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sources").mkdir()
        (tmp_path / "sources" / "one.p4").touch()

        def make(script):
            Path("p4c-bm2-ss").write_text(script)
            Path("p4c-bm2-ss").chmod(0o755)
            return programs.find_p4c("./p4c-bm2-ss")

        return make

    def test_at_a_relative_path_compiles_sources_elsewhere(self, compiler):
        p4c = compiler(f"#!/bin/sh\n{self.WRITES}\n")
        assert programs.compile_p4(Path("sources/one.p4"), p4c=p4c) == {}

    def test_warnings_are_handed_over(self, compiler):
        said = []
        p4c = compiler(f"#!/bin/sh\necho 'warning: reject is accept' >&2\n{self.WRITES}\n")
        programs.compile_p4(Path("sources/one.p4"), p4c=p4c, warn=said.append)
        assert said == ["warning: reject is accept"]

    def test_warnings_about_innets_includes_are_left_out(self, compiler):
        said = []
        place = f"{programs.p4_directory()}/include/headers.p4(34)"
        unused = f"{place}: [--Wwarn=unused] warning: 'A' is unused\nconst bit<8> A = 2;\n      ^"
        own = "one.p4(3): [--Wwarn=unused] warning: 'B' is unused\nconst bit<8> B = 2;\n      ^"
        Path("said").write_text(f"{unused}\n{own}\n{unused}\n")
        p4c = compiler(f"#!/bin/sh\ncat {Path('said').resolve()} >&2\n{self.WRITES}\n")
        programs.compile_p4(Path("sources/one.p4"), p4c=p4c, warn=said.append)
        assert said == [own]

    def test_bytes_of_the_source_that_are_no_text_are_quoted(self, compiler):
        p4c = compiler("#!/bin/sh\nprintf 'unexpected \\211PNG' >&2; exit 1\n")
        with pytest.raises(ProgramError, match="unexpected \ufffdPNG"):
            programs.compile_p4(Path("sources/one.p4"), p4c=p4c)

    def test_that_dies_silently(self, compiler):
        p4c = compiler("#!/bin/sh\nkill -SEGV $$\n")
        with pytest.raises(ProgramError, match="no message; it ended with status -11"):
            programs.compile_p4(Path("sources/one.p4"), p4c=p4c)

    def test_that_is_no_program(self, compiler):
        with pytest.raises(InputError, match="p4c-bm2-ss cannot be run: Exec format error"):
            programs.compile_p4(Path("sources/one.p4"), p4c=compiler("no program"))

    def test_a_folder_is_no_source(self, compiler):
        with pytest.raises(InputError, match="sources: not a file"):
            programs.compile_p4(Path("sources"), p4c=compiler("#!/bin/sh\n"))


def test_missing_p4c_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match=r"p4c-bm2-ss or p4c is not installed.*Install it"):
        programs.find_p4c()


@pytest.mark.parametrize("name", ALL_BUT_THE_LARGEST)
def test_layout_on_the_wire_is_that_of_the_program(name):
    """Offsets and widths of every header, as the program parses them and as workers write them."""
    program = programs.catalogue()[name]
    types = {item["name"]: item["fields"] for item in program.json()["header_types"]}
    layout = wire.PacketLayout(program.dimensions().values, "udp")
    for header, dtype in [
        ("ethernet_t", wire.ETHERNET_HEADER),
        ("ipv4_t", wire.IPV4_HEADER),
        ("udp_t", wire.UDP_HEADER),
        ("innet_t", wire.HEADER),
    ]:
        offset = 0
        starts = {}
        for field, width, *_ in types[header]:
            starts[field] = offset
            offset += width
        assert offset == 8 * dtype.itemsize, header
        if header == "innet_t":
            mine = {field: 8 * dtype.fields[field][1] for field in dtype.names}
            assert mine == starts
    values = types["values_t"]
    passes = 4 if name == "harvest-256" else 1  # in which a packet brings its values
    assert passes * len(values) == layout.values == program.parameters["VALUES"]
    assert all(field[1] == 32 for field in values)
    headers = sum(
        dtype.itemsize
        for dtype in (wire.ETHERNET_HEADER, wire.IPV4_HEADER, wire.UDP_HEADER, wire.HEADER)
    )
    assert layout.frame_size == headers + 4 * layout.values


def test_dimensions_are_read_from_the_program():
    assert programs.find("slots", 64).dimensions() == programs.Dimensions(64, 1024, 32)
    assert programs.find("harvest", 256).dimensions() == programs.Dimensions(256, 1024, 32)


@pytest.mark.parametrize(
    ("program", "values", "beside_values"),
    [
        ("slots", 32, 5),
        ("collectives", 64, 6),
        ("tree", 32, 9),
        ("collectives-tree", 64, 10),
        ("hashed", 32, 6),
    ],
)
def test_every_register_is_accessed_once_per_packet(program, values, beside_values):
    """On each path: at most one action that reads or writes a register array, at one index."""
    document = programs.find(program, values).json()
    touching: dict[str, set[str]] = {}
    for action in document["actions"]:
        order: dict[str, list[str]] = {}
        for primitive in action["primitives"]:
            if primitive["op"] in ("register_read", "register_write"):
                parameters = primitive["parameters"]
                array = next(p["value"] for p in parameters if p["type"] == "register_array")
                index = parameters[2 if primitive["op"] == "register_read" else 1]
                if array.endswith(".fence"):  # one word of a job, which programs only read
                    assert primitive["op"] == "register_read"
                else:
                    assert index["value"] == ["scalars", "metadata_t.index"]
                touching.setdefault(array, set()).add(action["name"])
                order.setdefault(array, []).append(primitive["op"])
        for array, operations in order.items():
            # Read at most once, then written at most once: one access of a stateful ALU.
            assert operations in (
                ["register_read"],
                ["register_write"],
                ["register_read", "register_write"],
            ), (action["name"], array)
    tables = [set(t["actions"]) for p in document["pipelines"] for t in p["tables"]]
    assert len(touching) == beside_values + values
    for array, actions in touching.items():
        # One table alone runs these actions, one of them, once: a pipeline has no loops.
        assert sum(bool(actions & table) for table in tables) == 1, array
        assert any(actions <= table for table in tables), array


def test_unknown_program_and_size():
    with pytest.raises(UnknownNameError, match="Did you mean 'slots'"):
        programs.find("slot", 64)
    with pytest.raises(
        InputError, match="compiled for 32, 64, 256, 1024 values per packet, not for 100"
    ):
        programs.find("slots", 100)


def test_out_of_an_archive_it_says_so(tmp_path, monkeypatch):
    archive = tmp_path / "innet.zip"
    archive.touch()
    monkeypatch.setattr(programs.catalog, "__file__", str(archive / "innet/programs/catalog.py"))
    with pytest.raises(ProgramError, match=r"innet\.zip/innet\. Out of an archive .* unpack it"):
        programs.find("slots", 32)


def test_a_damaged_file_is_refused(checkout):
    program = programs.catalogue(checkout)["slots-32"]
    program.path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(ProgramError, match="not the file that its manifest describes"):
        program.json()
    program.path.write_bytes(b"no gzip")
    with pytest.raises(ProgramError, match="cannot read"):
        program.json()


def test_a_program_that_is_none_of_ours_has_no_dimensions():
    with pytest.raises(ProgramError, match="no aggregation program"):
        programs.Dimensions.of({"header_types": [], "register_arrays": []})


@pytest.mark.repeats("the same sources with more values", but=["*-thin", "*-32", "harvest-64"])
@pytest.mark.parametrize("name", NAMES)
def test_packets_of_another_version_are_dropped_and_counted(name):
    """Reason 1, where an admitted packet would be taken and this one is not admitted: reason 5."""
    program = programs.catalogue()[name]
    layout = wire.PacketLayout(program.dimensions().values)
    frame = wire.pack(
        layout,
        wire.Endpoint.of_worker(0),
        wire.Endpoint.of_switch(),
        np.zeros((1, layout.values), np.int32),
        operation=1,
        job=1,
        epoch=0,
        sequence=1,
        slot=0,
        slot_version=0,
        worker=0,
    )
    older = frame.copy()
    header = layout.view(older)["innet"]
    header["version"] = 2
    header["count"] = 32  # where the width was
    wire.seal(layout, older)
    switch = Switch.load(program.json(), engine="interpret")
    assert switch.process([(1, frame[0].tobytes()), (1, older[0].tobytes())]) == []
    dropped = switch.counters["dropped"].packets
    assert {int(i): int(dropped[i]) for i in np.flatnonzero(dropped)} == {1: 1, 5: 1}


def test_thin_builds_are_found_by_the_values_they_stand_for():
    assert programs.find_header_only("slots", 64) == programs.find_header_only("slots", 2229)
    found = programs.find_header_only("tree", 100)
    assert found.is_header_only
    assert found.name == "tree-thin"
    assert found.dimensions() == programs.Dimensions(1, 1024, 32)
    assert programs.find_header_only("harvest", 64).dimensions() == programs.Dimensions(2, 1024, 32)
    assert not programs.find("slots", 64).is_header_only


def test_what_has_no_thin_build_says_so(checkout, monkeypatch):
    with pytest.raises(InputError, match=r"thin packet of slots stands for 1 to 65535.* not for 0"):
        programs.find_header_only("slots", 0)
    with pytest.raises(InputError, match="of harvest stands for 64 values, not for 256"):
        programs.find_header_only("harvest", 256)
    with pytest.raises(InputError, match="compiled for 32, 64, 256, 1024 values per packet, not"):
        programs.find("slots", 1)
    manifest = json.loads((checkout / "manifest.json").read_text())
    del manifest["programs"]["slots-thin"]
    (checkout / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr(programs.catalog, "p4_directory", lambda: checkout)
    with pytest.raises(InputError, match=r"slots has no thin build\. .*programs\.toml"):
        programs.find_header_only("slots", 64)


@pytest.mark.parametrize(
    "program",
    ["slots", "collectives", "tree", "collectives-tree", "adaptive-tree", "hashed", "harvest"],
)
def test_a_thin_build_differs_in_its_values_alone(program):
    full, thin = programs.find(program, 64).json(), programs.find_header_only(program, 64).json()

    def registers(document):
        return [
            (each["name"], each["size"], each["bitwidth"])
            for each in document["register_arrays"]
            if not re.search(r"\.(value|pair)\d+$", each["name"])
        ]

    def graphs(document):
        return [
            (
                [
                    (each["name"], each["actions"], each["key"], each["next_tables"])
                    for each in pipeline["tables"]
                ],
                [
                    (each["name"], each["true_next"], each["false_next"])
                    for each in pipeline["conditionals"]
                ],
            )
            for pipeline in document["pipelines"]
        ]

    def actions(document):
        return [
            (each["name"], [primitive["op"] for primitive in each["primitives"]])
            for each in document["actions"]
            if not re.search(r"\.values\.|\.clear$", each["name"])
        ]

    assert registers(thin) == registers(full)
    assert graphs(thin) == graphs(full)
    assert actions(thin) == actions(full)
    assert len(thin["register_arrays"]) < len(full["register_arrays"])


def test_p4info_comes_beside_the_json_where_p4c_makes_it(tmp_path):
    """A shell script in p4c's place: with P4Info it refuses what P4Runtime does not have."""
    source, p4c, p4info = tmp_path / "one.p4", tmp_path / "p4c-bm2-ss", tmp_path / "one.txtpb"
    source.touch()
    writes = 'echo "{}" > "$4"'  # behind --p4v 16 -o
    p4c.write_text(f'#!/bin/sh\n[ "$5" = --p4runtime-files ] && echo made > "$6"\n{writes}\n')
    p4c.chmod(0o755)
    assert programs.compile_p4(source, p4c=p4c, p4info=p4info) == {}
    assert p4info.read_text() == "made\n"
    p4info.unlink()
    refuses = "echo 'no tuples' >&2; exit 1"
    p4c.write_text(f'#!/bin/sh\n[ "$5" = --p4runtime-files ] && {{ {refuses}; }}\n{writes}\n')
    said = []
    assert programs.compile_p4(source, p4c=p4c, warn=said.append, p4info=p4info) == {}
    assert "no tuples" in said[0]
    assert not p4info.exists()
