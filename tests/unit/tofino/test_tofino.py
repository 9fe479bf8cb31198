"""Estimates for a pipe: small programs with known amounts, one for each thing that is wrong."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.switch_cases import program
from support.tiers import tiered
from typer.testing import CliRunner

from innet import programs
from innet.cli.app import app
from innet.switch import ir, load_program
from innet.switch.frontend.loader import read_document
from innet.tofino import Severity, estimate
from innet.tofino.accesses import effects
from innet.tofino.report import PIPE
from innet.tofino.stages import Piece, place

PROGRAMS = Path(__file__).parents[2] / "programs" / "budget"


def of(name):
    return estimate(read_document(PROGRAMS / f"budget_{name}.json"))


def errors(found):
    return [each for each in found.findings if each.severity is Severity.ERROR]


def line_of(text, source):
    """The first line of a source that says ``text``."""
    lines = (PROGRAMS / source).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.repeats("the same with other sources", but=["limits_7-*"])
@pytest.mark.p4c
@pytest.mark.parametrize(
    ("name", "source", "parameters"),
    [
        ("pool_4", "pool", {"VALUES": 4}),
        ("pairs_both", "pairs", {"BOTH": 1}),
        ("limits_7", "limits", {"WRONG": 7}),
    ],
)
def test_compiled_from_the_source_beside_it(name, source, parameters):
    if not (shutil.which("p4c-bm2-ss") or shutil.which("p4c")):
        pytest.skip("p4c is not installed")
    committed = read_document(PROGRAMS / f"budget_{name}.json")
    now = programs.compile_p4(PROGRAMS / f"budget_{source}.p4", parameters)
    if now["__meta__"] != committed["__meta__"]:
        pytest.skip("compiled by another version of p4c")
    assert now["actions"] == committed["actions"]
    assert now["pipelines"] == committed["pipelines"]


# ── Amounts ──


@pytest.mark.parametrize(("values", "stages"), [(4, 3), (32, 10)])
def test_a_small_pool_fits_with_one_alu_for_each_array(values, stages):
    found = of(f"pool_{values}")
    assert found.fits
    assert not found.findings
    assert found.used("stateful ALUs") == values + 2
    assert found.used("register accesses per packet") == 1
    assert found.used("output words per stateful ALU") == 1
    assert found.used("SRAM blocks") == values + 2 + 1  # the last for the entries of one table
    assert found.used("parser depth, ingress, bytes") == 8 + 4 * values
    metadata = 32 + 32 + 16  # index, bitmap, egress_spec; the rest is inside of stateful ALUs
    assert found.used("header vector bits") == 8 * (8 + 4 * values) + metadata
    assert found.used("stages by dependencies alone") == 3  # index; who is in; what then is done
    assert found.used("stages") == stages  # four arrays to a stage, the first beside the bitmap


def test_no_stage_has_more_than_four_arrays():
    for stage in of("pool_32").layout:
        assert len([name for name in stage if "value" in name or "bitmap" in name]) <= 4


def test_tables_take_blocks_by_their_keys_entries_and_data():
    found = of("limits_0")
    assert found.fits
    # 2,048 entries of 64 + 9 + 16 bits, one to a word of 128: two blocks of 1,024 words. And the
    # ternary table's 1,024 actions of 9 + 16 bits, five to a word: one.
    assert found.used("SRAM blocks") == 2 + 1
    assert found.used("TCAM blocks") == 2 * 2  # 64 bits in columns of 44, 1,024 rows of 512


def test_counters_take_a_word_each():
    document = programs.find("slots", 32).json()
    (counter,) = document["counter_arrays"]
    blocks = []
    for size in (1024, 1025, 10_000):
        counter["size"] = size
        blocks.append(estimate(document).used("SRAM blocks"))
    assert [each - blocks[0] for each in blocks] == [0, 1, 9]


def test_a_table_that_is_spread_over_stages_counts_in_each():
    document = read_document(PROGRAMS / "budget_limits_0.json")
    exact, ternary = document["pipelines"][0]["tables"][:2]
    # As many rows of 512 as three stages and a bit have TCAM for, in two columns.
    exact["max_size"], ternary["max_size"] = 8, 3 * (24 // 2) * 512 + 1
    found = estimate(document)
    assert found.used("TCAM blocks") == 2 * (3 * 12 + 1)
    assert found.used("stages") == 4
    assert [ternary["name"] in stage for stage in found.layout] == [True] * 4
    assert [exact["name"] in stage for stage in found.layout].count(True) == 1
    assert found.used("logical tables") == 4 + 1


# ── Verdicts ──


def test_64_values_are_told_to_become_pairs_and_to_be_harvested():
    found = of("pool_64")
    assert not found.fits
    assert found.used("stateful ALUs") == 66
    (reason,) = [each for each in errors(found) if each.resource == "stateful ALUs"]
    assert "32 register pairs" in reason.remedy
    assert "34 ALUs altogether" in reason.remedy
    assert "one output word" in reason.remedy
    assert "second (harvest) pass" in reason.remedy
    assert re.fullmatch(r"budget_pool\.p4:\d+", reason.where)


def test_pairs_that_give_both_words_at_once_do_not_fit():
    found = of("pairs_both")
    assert found.used("stateful ALUs") == 32
    assert found.used("output words per stateful ALU") == 2
    (reason,) = errors(found)
    assert "takes 2 words" in reason.text
    assert "harvest" in reason.remedy


def test_pairs_that_are_harvested_by_a_second_pass_fit():
    found = of("pairs_harvest")
    assert found.fits
    assert found.used("stateful ALUs") == 32
    assert found.used("output words per stateful ALU") == 1
    assert found.used("recirculations and resubmissions") == 1
    (note,) = found.findings
    where = line_of("recirculate_preserving", "budget_pairs.p4")
    assert note.where == f"budget_pairs.p4:{where}"


@pytest.mark.parametrize(
    ("wrong", "resource", "says", "line"),
    [
        (1, "register accesses per packet", "one is accessed 2 times", "action twice"),
        (2, "arithmetic", "no stage computes *", "hdr.data.a * hdr.data.b"),
        (3, "arithmetic", "<< by something that is not constant", "hdr.data.a << hdr.data.b"),
        (4, "stateful ALUs", "3 words of the packet", "action words"),
        (5, "stateful ALUs", "3 comparisons", "action comparisons"),
        (6, "stages", "takes 14 stages", None),
        (7, "recirculations and resubmissions", "keeps 80 bits", "resubmit_preserving"),
        (8, "stages", "wait for each other", None),
        (9, "stateful ALUs", "has 96 bits", None),
        (10, "parser depth, egress, bytes", "176 bytes deep", None),
        (11, "header vector bits", "4224 bits", None),
        (12, "stateful ALUs", "17 actions do something with LimitsIngress.one", None),
    ],
)
def test_one_thing_that_is_wrong_is_the_one_that_is_told(wrong, resource, says, line):
    found = of(f"limits_{wrong}")
    assert not found.fits
    (reason,) = errors(found)
    assert reason.resource == resource
    assert says in reason.text
    assert reason.remedy
    if line is not None:
        source = "budget_limits.p4"
        number = line_of(line, source) + line.startswith("action")  # the statement after its head
        assert f"{source}:{number}" in reason.where


def test_a_resubmitted_packet_may_keep_eight_bytes():
    document = read_document(PROGRAMS / "budget_limits_7.json")
    (kept,) = (
        field
        for header in document["header_types"]
        for field in header["fields"]
        if field[0] == "metadata_t.kept"
    )
    assert kept[1] == 80
    kept[1] = 64
    assert not errors(estimate(document))


def test_what_statements_on_whole_headers_read_and_write():
    """Stages follow from it: what is written waits for what reads it."""
    loaded = load_program(program("jit_headers"))
    statements = [each for action in loaded.actions for each in action.primitives]
    found = {type(each): (each, effects(loaded, each)) for each in statements}
    assign, (read, written) = found[ir.AssignHeader]
    every = (ir.VALID, *range(len(loaded.type_of(assign.source.header).fields)))
    assert read == {(assign.source.header, field) for field in every}
    assert written == {(assign.target.header, field) for field in every}
    for kind in (ir.AddHeader, ir.RemoveHeader):
        each, (read, written) = found[kind]
        assert (read, written) == (frozenset(), {(each.header.header, ir.VALID)})


# ── Shipped programs ──


@pytest.mark.repeats("the same programs with more values", but=["*-32", "*-thin", "harvest-64"])
@pytest.mark.parametrize(
    "name",
    tiered(
        sorted(programs.catalogue()),
        [name for name in sorted(programs.catalogue()) if not name.endswith(("512", "1024"))],
        "the same programs with more values",
    ),
)
def test_shipped_programs_touch_an_array_once(name):
    found = estimate(programs.catalogue()[name].json(), name)
    if name.startswith("adaptive-tree"):  # it looks at a slot's way and may change it
        assert "ways.way is accessed 4 times by one packet" in str(found.findings)
        return
    assert found.used("register accesses per packet") == 1
    assert found.used("output words per stateful ALU") == 1


def test_slots_32_fits():
    found = estimate(programs.find("slots", 32).json())
    assert found.fits
    assert found.used("stateful ALUs") == 32 + 5
    assert found.used("stages") == found.used("stages by dependencies alone") == 12
    # What the values wait for is in three stages, then there are four of them in each of eight.
    first = next(i for i, stage in enumerate(found.layout) if any(".value" in n for n in stage))
    assert first == 3
    beside = next(each for each in found.findings if "a word and flags" in each.text)
    assert beside.severity is Severity.WARNING
    assert "SlotsIngress.pool.chunk (and 33 other arrays)" in beside.text


def test_overflow_in_a_single_chain_takes_a_stage_for_each_value():
    document = programs.find("slots", 32).json()
    (adding,) = [each for each in document["actions"] if each["name"].endswith("values.sum")]
    for statement in adding["primitives"]:
        target = statement["parameters"][0].get("value")
        if statement["op"] == "assign" and target[-1].startswith("metadata_t.overflow"):
            chain = ["scalars", "metadata_t.overflow0"]
            statement["parameters"][0]["value"] = chain
            statement["parameters"][1]["value"]["value"]["left"]["value"] = chain
    found = estimate(document)
    assert {each.resource for each in errors(found)} == {"stages"}
    assert found.used("stages by dependencies alone") == 3 + 32 + 1
    carried = next(each for each in errors(found) if "carries" in each.text)
    assert "metadata_t.overflow0 through 32 statements" in carried.text
    assert carried.where.startswith("include/values.p4:")


def test_five_instructions_are_too_many():
    document = programs.find("slots", 32).json()
    (reading,) = [each for each in document["actions"] if each["name"].endswith("values.read")]
    (table,) = [
        each
        for pipeline in document["pipelines"]
        for each in pipeline["tables"]
        if each["name"].endswith("combine")
    ]
    again = {**reading, "id": max(each["id"] for each in document["actions"]) + 1}
    again["name"] += "_again"
    document["actions"].append(again)
    table["action_ids"].append(again["id"])
    table["actions"].append(again["name"])
    table["next_tables"][again["name"]] = table["next_tables"][reading["name"]]
    (reason,) = errors(estimate(document))
    assert "5 actions do something with SlotsIngress.values.value0" in reason.text
    assert "has 4 instructions" in reason.text


def test_externs_of_a_program_are_said_not_to_be_counted():
    document = read_document(PROGRAMS / "budget_limits_2.json")
    (product,) = (each for each in document["actions"] if each["primitives"])
    product["primitives"][0] |= {"op": "_Own_update", "parameters": []}
    found = estimate(document)
    assert found.fits
    (warning,) = found.findings
    assert warning.severity is Severity.WARNING
    assert "_Own_update is no extern of v1model" in warning.text
    assert warning.where.startswith("budget_limits.p4:")


def test_slots_64_is_told_what_switchml_does():
    found = estimate(programs.find("slots", 64).json())
    assert found.used("stateful ALUs") == 64 + 5
    (reason,) = [each for each in errors(found) if each.resource == "stateful ALUs"]
    assert "32 register pairs" in reason.remedy
    assert "37 ALUs altogether" in reason.remedy
    assert "second (harvest) pass" in reason.remedy


def test_harvest_fits_with_64_values_and_a_second_pass():
    found = estimate(programs.find("harvest", 64).json())
    assert found.fits
    assert found.used("stateful ALUs") == 32 + 5
    assert found.used("stages") == 12
    assert found.used("recirculations and resubmissions") == 1


def test_harvest_fits_with_256_values_a_quarter_in_each_pass():
    found = estimate(programs.find("harvest", 256).json())
    assert found.fits
    assert found.used("stateful ALUs") == 32 + 5
    assert found.used("stages") == 12
    assert found.used("recirculations and resubmissions") == 1
    assert found.used("SRAM blocks") > 32 * 4  # four quarters of 2,048 pairs of words
    (told,) = [each for each in found.findings if "covers the payload" in each.text]
    assert told.severity is Severity.WARNING
    assert "innet.checksum" in told.text


def test_positions_may_be_missing():
    document = read_document(PROGRAMS / "budget_pool_64.json")

    def bare(item):
        if isinstance(item, dict):
            return {key: bare(each) for key, each in item.items() if key != "source_info"}
        return [bare(each) for each in item] if isinstance(item, list) else item

    with_places, without = estimate(document), estimate(bare(document))
    assert with_places.usages == without.usages
    assert {each.where for each in without.findings} == {""}


# ── The command ──


def check(*arguments):
    return CliRunner().invoke(app, ["p4", "check", *map(str, arguments)])


def test_command_says_yes_with_code_0_and_no_with_code_1():
    fits = check(PROGRAMS / "budget_pool_4.json", "--stages")
    assert fits.exit_code == 0
    assert "stage 2: " in fits.stdout
    assert "budget_pool_4.json fits, by this estimate" in fits.stdout
    does_not = check("slots-64")
    assert does_not.exit_code == 1
    assert "32 register pairs" in does_not.stdout
    assert "slots-64 does not fit" in does_not.stdout


def test_command_prints_json():
    result = check("slots-64", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["fits"] is False
    used = {each["resource"]: each["used"] for each in document["usages"]}
    assert used["stateful ALUs"] == 69
    assert all(each["severity"] in {"error", "warning", "note"} for each in document["findings"])


def test_command_names_what_there_is_for_a_name_that_is_not():
    result = check("slots-33")
    assert result.exit_code != 0
    assert "slots-32" in str(result.exception)


@pytest.mark.parametrize(("kind", "most"), [("sram", PIPE.sram_blocks), ("tcam", PIPE.tcam_blocks)])
def test_a_stage_has_no_more_blocks_than_it_has(kind, most):
    """What does not fit beside the others goes into the next stage; what fits none is spread."""
    sizes = [most - 2, 2, 3, 2 * most]
    pieces = [
        Piece(str(i), steps={i}, **{kind: blocks}, after={i - 1: 0} if i else {})
        for i, blocks in enumerate(sizes)
    ]
    found = place([SimpleNamespace(list=pieces, flow=SimpleNamespace(name="ingress"))]).stages
    assert [getattr(stage, kind) for stage in found] == [most, 3, most, most]
    assert [sorted(stage.tables.values()) for stage in found] == [["0", "1"], ["2"], ["3"], ["3"]]


def test_a_loop_in_an_action_does_not_fit():
    found = estimate(read_document(PROGRAMS.parent / "fuzz_for.json"))
    reasons = [each for each in found.findings if "has a loop" in each.text]
    assert {each.severity for each in reasons} == {Severity.ERROR}
    assert "I.search has a loop; each statement" in reasons[2].text
    assert not found.fits


class TestTranslation:
    """What p4c's Tofino compiler refuses of a program for v1model, whether there is room or not."""

    def test_each_rule_that_a_program_breaks(self):
        found = of("written_broken")
        assert found.fits
        assert not found.accepted
        texts = [each.text for each in found.translation]
        for text, said in zip(
            (
                "166 bytes deep",
                "data.sum is verified under a condition",
                "WrittenIngress.unused has cells of 24 bits",
                "a hash has an offset",
                "a hash has a range that is no power of 2",
                "the actions of WrittenIngress.counted use several counter arrays",
                "the default action of WrittenIngress.counted uses an array",
                "an action has a condition in it",
                "WrittenIngress.read_first accesses 2 registers",
            ),
            texts,
            strict=True,
        ):
            assert text in said
        [where] = [each.where for each in found.translation if "of 24 bits" in each.text]
        line = line_of("register<bit<WIDTH>>", "budget_written.p4")
        assert where == f"budget_written.p4:{line}"

    def test_the_same_in_forms_that_are_taken(self):
        found = of("written_whole")
        assert found.translation == ()
        assert found.accepted

    def test_a_recirculation(self):
        assert "recirculate_preserving_field_list" in str(of("pairs_harvest").translation)

    def test_a_program_with_no_room_is_not_accepted(self):
        assert not of("pool_64").accepted

    def test_the_command_says_it(self):
        path = PROGRAMS / "budget_written_broken.json"
        result = CliRunner().invoke(app, ["p4", "check", str(path)])
        assert result.exit_code == 0
        assert "As written, for v1model, p4c's Tofino compiler would refuse it" in result.stdout
        document = json.loads(CliRunner().invoke(app, ["p4", "check", str(path), "--json"]).stdout)
        assert "several counter arrays" in str(document["translation"])
