"""The Tofino compiler's verdict: how it is called, and what its errors and reports are read as.

A script stands for the compiler here. ``test_tna.py`` runs the real one where it is installed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet import tofino
from innet.cli.app import app
from innet.core.errors import InputError, MissingToolError, ProgramError, UnfinishedError
from innet.programs import p4_directory

FORWARD = p4_directory() / "examples" / "forward.p4"
REPORTS = Path(__file__).parents[2] / "golden" / "tofino"
"""What p4c-barefoot 9.13.4 wrote of p4/tna/slots.p4 (8 values) and p4/tna/tree.p4 (32), cut down
to the parts that are read."""


def stage(number, tables=(), alus=0, sram=0, tcam=0):
    """A stage of resources.json: rows that nothing uses stand there as well."""

    def rows(used):
        return [{"usages": [{}]}] * used + [{"usages": []}]

    return {
        "stage_number": number,
        "logical_tables": {"ids": [{"id": i, "table_name": n} for i, n in enumerate(tables)]},
        "meter_alus": {"meters": rows(alus)},
        "rams": {"srams": rows(sram)},
        "tcams": {"tcams": rows(tcam)},
    }


STAGES = [stage(1, ["a", "b"], alus=4, sram=6), stage(0, ["admit"], tcam=2), stage(2), stage(3)]


def container(width, slices=1, kind="normal"):
    return {"bit_width": width, "container_type": kind, "slices": [{}] * slices}


PHV = {"containers": [container(32), container(16, 0), container(16, 1, "tagalong")] * 3}


def report(folder, stages=STAGES, phv=PHV, pipe="pipe"):
    logs = folder / pipe / "logs"
    logs.mkdir(parents=True)
    resources = {"resources": {"mau": {"nStages": 12, "mau_stages": stages}}}
    (logs / "resources.json").write_text(json.dumps(resources))
    (logs / "phv.json").write_text(json.dumps(phv))


@pytest.fixture
def compiler(tmp_path):
    """Makes a compiler of a shell script; its output folder is $OUT."""

    def make(script):
        path = tmp_path / "p4c-barefoot"
        path.write_text(
            '#!/bin/bash\n[ "$1" = --version ] && { echo Version 9.13.4 >&2; exit; }\n'
            'while [ $# -gt 1 ]; do [ "$1" = -o ] && OUT=$2; shift; done\n' + script
        )
        path.chmod(0o755)
        return path

    return make


def accepting(compiler, tmp_path):
    report(tmp_path / "reports")
    return compiler(f'cp -r {tmp_path}/reports/. "$OUT"')


def refusing(compiler):
    return compiler(
        "echo '[--Wwarn=unused] warning: x: unused' >&2\n"
        "echo 'forward.p4(12): [--Werror=unsupported] error: y: 4 comparisons' >&2\n"
        "echo '        y = 1;' >&2\n"
        "echo 'error: PHV allocation was not successful' >&2\n"
        "echo 'forward.p4(12): [--Werror=unsupported] error: y: 4 comparisons' >&2\nexit 1"
    )


def used(usages):
    return {each.resource: (each.used, each.available) for each in usages}


def test_what_a_source_is_written_for(tmp_path):
    assert tofino.architecture(p4_directory() / "tna" / "slots.p4") == "tna"
    assert tofino.architecture(p4_directory() / "slots.p4") == "v1model"
    (tmp_path / "a.p4").write_text('#include "b.p4"\n')
    (tmp_path / "b.p4").write_text('#include "a.p4"\n# include <tna.p4>\n')
    assert tofino.architecture(tmp_path / "a.p4") == "tna"
    with pytest.raises(InputError, match=r"none\.p4: no such file"):
        tofino.architecture(tmp_path / "none.p4")


def test_an_accepted_program(compiler, tmp_path):
    verdict = tofino.compile_for_tofino(FORWARD, compiler=accepting(compiler, tmp_path))
    assert verdict.fits
    assert verdict.compiler == "p4c-barefoot 9.13.4"
    assert verdict.layout == (("admit",), ("a", "b"))
    assert used(verdict.usages) == {
        "stages": (2, 12),
        "stateful ALUs": (4, 48),
        "logical tables": (3, 192),
        "SRAM blocks": (6, 960),
        "TCAM blocks": (2, 288),
        "header vector bits": (96, 4096),
        "header vector bits that no stage reaches": (48, 2048),
    }


def test_a_refused_program(compiler):
    verdict = tofino.compile_for_tofino(FORWARD, compiler=refusing(compiler))
    assert not verdict.fits
    assert verdict.refusals == (
        tofino.CompilerMessage("y: 4 comparisons", "forward.p4:12"),
        tofino.CompilerMessage("PHV allocation was not successful"),
    )


def test_real_reports():
    usages, layout = tofino.read_reports(REPORTS / "slots-8")
    assert used(usages) == {
        "stages": (6, 12),
        "stateful ALUs": (16, 48),
        "logical tables": (27, 192),
        "SRAM blocks": (62, 960),
        "TCAM blocks": (10, 288),
        "header vector bits": (1032, 4096),
        "header vector bits that no stage reaches": (416, 2048),
    }
    assert [len(tables) for tables in layout] == [4, 2, 5, 6, 5, 5]
    assert "SlotsIngress.values.combine7" in layout[4]


def test_a_program_in_more_stages_than_there_are(compiler):
    path = compiler(f'cp -r {REPORTS}/tree-32/. "$OUT"')
    verdict = tofino.compile_for_tofino(FORWARD, compiler=path)
    assert not verdict.fits
    assert verdict.refusals == (tofino.CompilerMessage("it takes 14 stages, a pipe has 12"),)
    assert used(verdict.usages)["stages"] == (14, 12)


def test_an_error_whose_text_begins_on_the_next_line(compiler):
    path = compiler(
        "echo 'forward.p4(50): [--Werror=target-error] error: ' >&2\n"
        "echo 'Conditions in an action must be simple' >&2\necho 'Try to move it' >&2\nexit 1"
    )
    verdict = tofino.compile_for_tofino(FORWARD, compiler=path)
    assert verdict.refusals == (
        tofino.CompilerMessage("Conditions in an action must be simple", "forward.p4:50"),
    )


def test_the_pipe_with_most_stages_counts(tmp_path):
    report(tmp_path, pipe="a", stages=STAGES[1:])
    report(tmp_path, pipe="b")
    assert used(tofino.read_reports(tmp_path)[0])["stages"] == (2, 12)


def test_the_compiler_is_called_with_the_source_and_its_definitions(compiler, tmp_path):
    path = compiler("exit 3")
    path.write_text('#!/bin/bash\necho "$PWD $*"; exit 3')
    with pytest.raises(ProgramError, match=r"ended with status 3 and no error") as caught:
        tofino.compile_for_tofino(p4_directory() / "tna" / "slots.p4", {"PER_PASS": 8}, path)
    folder, *arguments = str(caught.value).splitlines()[-1].split()
    assert folder == str(p4_directory() / "tna")
    assert " ".join(arguments).startswith("--target tofino --arch tna --std p4-16 -g -DPER_PASS=8")
    assert arguments[-1] == "slots.p4"


def test_compilers_that_cannot_be_used(compiler, tmp_path, monkeypatch):
    made = []
    folder = tempfile.TemporaryDirectory
    monkeypatch.setattr(
        tempfile, "TemporaryDirectory", lambda *a, **k: made.append(folder(*a, **k)) or made[-1]
    )
    with pytest.raises(UnfinishedError, match=r"did not finish .*forward.p4 in 0\.2 s"):
        tofino.compile_for_tofino(FORWARD, compiler=compiler("exec sleep 60"), timeout=0.2)
    with pytest.raises(ProgramError, match=r"status 4 and said nothing about .*; is it p4c's"):
        tofino.compile_for_tofino(FORWARD, compiler=compiler("exit 4"))
    with pytest.raises(ProgramError, match=r"9\.13\.4 accepted .*wrote no file\. Give") as caught:
        tofino.compile_for_tofino(FORWARD, compiler=compiler("exit 0"))
    assert made  # a folder that is gone helps nobody
    assert not any(each.name in str(caught.value) for each in made)
    other = compiler('mkdir "$OUT/pipe"; touch "$OUT/pipe/context.json"')
    with pytest.raises(ProgramError, match=r"It wrote pipe/context\.json\. Give"):
        tofino.compile_for_tofino(FORWARD, compiler=other)
    with pytest.raises(ProgramError, match=r"no report PIPE/logs/resources\.json"):
        tofino.read_reports(tmp_path / "nothing")
    (broken := tmp_path / "none").write_text("no program")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="cannot be run"):
        tofino.compile_for_tofino(FORWARD, compiler=broken)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingToolError, match=r"-DENABLE_TOFINO=ON"):
        tofino.find_compiler()


@pytest.mark.parametrize(
    "phv", [{}, {"containers": [{}]}, {"containers": 3}], ids=["empty", "keys", "types"]
)
def test_reports_of_another_form(phv, tmp_path):
    report(tmp_path, phv=phv)
    with pytest.raises(ProgramError, match=r"resources\.json: not a report of the Tofino compiler"):
        tofino.read_reports(tmp_path)


class TestCommand:
    def check(self, *arguments):
        return CliRunner().invoke(app, ["p4", "check", *map(str, arguments)])

    def test_estimate_and_verdict_side_by_side(self, compiler, tmp_path):
        path = accepting(compiler, tmp_path)
        result = self.check("slots-32", "--with", path, "--stages")
        assert result.exit_code == 0
        lines = [line.split() for line in result.stdout.splitlines()]
        assert ["stateful", "ALUs", "37", "4", "48"] in lines
        assert "stage 1: a, b" in result.stdout
        assert "slots-32 fits, by this estimate" in result.stdout
        assert "slots-32 is accepted by p4c-barefoot 9.13.4" in result.stdout
        document = json.loads(self.check("slots-32", "--with", path, "--json").stdout)
        assert document["estimate"]["fits"]
        assert document["compiler"]["usages"][0] == {
            "resource": "stages", "used": 2, "available": 12,
        }  # fmt: skip

    def test_the_compiler_decides(self, compiler):
        result = self.check("slots-32", "--with", refusing(compiler))
        assert result.exit_code == 1
        said = " ".join(result.stdout.split())
        assert "refused by p4c-barefoot 9.13.4: y: 4 comparisons At forward.p4:12" in said

    def test_a_program_for_tna(self, compiler, tmp_path):
        source = p4_directory() / "tna" / "slots.p4"
        result = self.check(source, "-D", "PER_PASS=8", "--with", accepting(compiler, tmp_path))
        assert result.exit_code == 0
        assert "estimate" not in result.stdout
        assert "written for TNA" in str(self.check(source).exception)

    def test_a_v1model_source_needs_p4c_for_its_estimate(self, compiler, tmp_path, monkeypatch):
        path = accepting(compiler, tmp_path)
        monkeypatch.setenv("PATH", "/bin:/usr/bin")
        result = self.check(FORWARD, "--p4c", tmp_path / "none", "--with", path)
        assert result.exit_code == 0
        assert "so there is no estimate" in result.stderr
        assert "by this estimate" not in result.stdout
        assert "compiling P4" in str(self.check(FORWARD, "--p4c", tmp_path / "none").exception)

    def test_what_has_no_source(self, compiler, tmp_path):
        path = refusing(compiler)
        forward = p4_directory() / "examples" / "forward.json"
        assert "--with needs a P4 source" in str(self.check(forward, "--with", path).exception)
        assert "--define needs a P4 source" in str(self.check("slots-32", "-D", "A=1").exception)
