"""Numbers and tables as people read them."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from rich.table import Table
from support.records import a_record, a_report, a_run

from innet.records import ACCURACY, PERPLEXITY, Seconds, Simulated, Step, units
from innet.reports.tables import demo_table, report_table

TIMES = "\N{MULTIPLICATION SIGN}"


def lines_of(table: Table, width: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def row(lines: list[str], label: str) -> list[str]:
    """The cells of the row that begins with ``label``."""
    (found,) = [line for line in lines if line.strip().startswith(label)]
    return re.split(r" {2,}", found.strip().removeprefix(label).strip())


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (12345, "12.3 kB"),
            (99_960, "100 kB"),
            (999_400, "999 kB"),
            (999_500, "1.00 MB"),
            (72_600_000, "72.6 MB"),
            (1.5e12, "1,500 GB"),
        ],
    )
    def test_size(self, value: float, expected: str) -> None:
        assert units.size(value) == expected

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0.5, "0.5/s"),
            (45_678, "45,700/s"),
            (861_234, "861,000/s"),
            (1_234_567, "1.23 million/s"),
            (2.5e9, "2.50 billion/s"),
        ],
    )
    def test_rate(self, value: float, expected: str) -> None:
        assert units.rate(value) == expected

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0, "0 s"),
            (5e-8, "50 ns"),
            (7.89e-4, "789 µs"),
            (0.0456, "45.6 ms"),
            (0.9999, "1.00 s"),
            (75.3, "75.3 s"),
            (1234.5, "1,234 s"),
        ],
    )
    def test_duration(self, value: float, expected: str) -> None:
        assert units.duration(value) == expected

    def test_the_rest(self) -> None:
        assert units.count(1234567) == "1,234,567"
        assert units.percent(0.9777) == "97.8 %"
        said = [units.plural(each, "worker") for each in (1, 4, 1024, None)]
        assert said == ["1 worker", "4 workers", "1,024 workers", "? workers"]
        assert [units.times(x) for x in (0.987, 11.04, 1234.0)] == [
            f"0.99{TIMES}",
            f"11.0{TIMES}",
            f"1,234{TIMES}",
        ]

    def test_scores_that_are_no_shares_have_three_digits_whatever_their_size(self) -> None:
        scores = (4.2, 123.4, 0.994, 0.00123, 0.0, -0.5, -12.34)
        said = ["4.20", "123", "0.994", "0.00123", "0", "-0.5", "-12.3"]
        assert [units.score(score, PERPLEXITY) for score in scores] == said
        assert units.score(0.9777, ACCURACY) == "97.8 %"


class TestDemoTable:
    def test_one_column_per_run_and_totals_over_the_steps(self) -> None:
        lines = lines_of(demo_table(a_record()))
        assert row(lines, "Exact integer sums") == ["-", "22 of 22", "22 of 22"]
        assert row(lines, "Bytes sent, each worker") == ["-", "6.25 MB", "616 kB"]
        assert row(lines, "as dense float32") == ["-", "6.25 MB", "6.25 MB"]
        assert row(lines, "Compression") == ["-", f"1.00{TIMES}", f"10.1{TIMES}"]
        assert row(lines, "Packets sent, all workers") == ["-", "75,768", "7,480"]
        assert row(lines, "Encode, each worker") == ["-", "2.00 ms", "2.00 ms"]
        assert row(lines, "Test accuracy") == ["97.4 %"] * 3
        assert any("top-k 1 %, LHC" in line for line in lines)
        assert any("Example CPU, 2 cores" in line for line in lines)

    def test_a_sum_that_was_wrong_shows(self) -> None:
        good, bad = a_report(), a_report(exact=False)
        steps = [Step.of(1, 1.0, None, good), Step.of(2, 1.0, 0.5, bad)]
        lines = lines_of(demo_table(a_record(runs=[a_run("dense", steps)])))
        assert row(lines, "Exact integer sums") == ["1 of 2"]

    def test_speed_is_the_switch_programs_where_known(self) -> None:
        for switch, expected in ((0.001, "3.00 million/s"), (None, "1.50 million/s")):
            seconds = Seconds(encode=0, network=0.002, decode=0, total=0.002, switch=switch)
            report = a_report(switch_packets=3000, seconds=seconds)
            lines = lines_of(demo_table(a_record(runs=[a_run("dense", report=report)])))
            assert row(lines, "Packets through the switch") == [expected]

    def test_quantisation_error_is_the_largest_of_the_run(self) -> None:
        steps = [
            Step.of(iteration, 1.0, 0.5, a_report(max_abs_error_sent=error))
            for iteration, error in enumerate((0.0, 3e-8, None), 1)
        ]
        lines = lines_of(demo_table(a_record(runs=[a_run("dense", steps)])))
        assert row(lines, "Largest quantization error") == ["3.0e-08"]
        lines = lines_of(demo_table(a_record(runs=[a_run("x", steps[:1])])))
        assert row(lines, "Largest quantization error") == ["0"]
        lines = lines_of(demo_table(a_record(runs=[a_run("x", steps[2:], renumber=True)])))
        assert row(lines, "Largest quantization error") == ["not compared"]

    def test_vnmse_is_the_mean_of_the_run(self) -> None:
        steps = [
            Step.of(iteration, 1.0, 0.5, a_report(vnmse_sent=error))
            for iteration, error in enumerate((0.5, 0.25, None), 1)
        ]
        lines = lines_of(demo_table(a_record(runs=[a_run("dense", steps)])))
        assert row(lines, "Mean vNMSE of quantization") == ["3.8e-01"]

    def test_fits_a_terminal_of_80_columns_without_wrapping(self) -> None:
        seconds = Seconds(encode=1e-4, network=7e-3, decode=1e-4, total=8e-3, switch=3e-4)
        report = a_report(bytes_sent=28_400_000, seconds=seconds)  # wide cells
        runs = [a_run("plain"), a_run("dense", report=report), a_run("topk", report=report)]
        wide, narrow = (
            lines_of(demo_table(a_record(runs=runs)), width=width) for width in (200, 80)
        )
        assert row(narrow, "Packets through the switch") == ["-"] + ["11.5 million/s"] * 2
        assert max(map(len, narrow)) <= 80
        # Only the explanation below the table takes more lines.
        rows = slice(0, next(i for i, line in enumerate(wide) if "Whole run" in line))
        assert [line.split() for line in narrow[rows]] == [line.split() for line in wide[rows]]

    def test_runs_never_evaluated_and_without_time(self) -> None:
        seconds = Seconds(encode=0, network=0, decode=0, total=0)
        steps = [Step.of(1, 1.0, None, a_report(seconds=seconds))]
        lines = lines_of(demo_table(a_record(runs=[a_run("dense", steps)])))
        assert row(lines, "Test accuracy") == ["not evaluated"]
        assert row(lines, "Packets through the switch") == ["-"]


@pytest.mark.parametrize(
    ("exact", "words"),
    [
        (True, "equals the oracle's"),
        (False, "DIFFERS from the oracle's"),
        (None, "not compared"),
    ],
)
def test_report_table(exact: bool | None, words: str) -> None:
    lines = lines_of(report_table(a_report(exact=exact, bytes_sent=71000)))
    assert row(lines, "Decoded integer sum") == [words]
    assert row(lines, "Compression") == [f"4.00{TIMES}"]
    assert row(lines, "Packets sent, all workers") == ["3,444"]
    assert row(lines, "Packets through the switch") == ["861,000/s"]


def test_sums_beyond_float32_show_where_there_are_some() -> None:
    lines = lines_of(report_table(a_report(infinite=1234, max_abs_error=float("inf"))))
    assert row(lines, "Sums beyond float32") == ["1,234"]
    assert row(lines, "Largest error, against float64") == ["inf"]
    assert not any("beyond" in line for line in lines_of(report_table(a_report())))


def test_what_is_not_sent_and_what_is_simulated_is_said() -> None:
    errors = {"max_abs_error": 3.0, "max_abs_error_sent": 1e-7, "vnmse": 0.25, "vnmse_sent": 0.0}
    lines = lines_of(report_table(a_report(**errors)))
    assert row(lines, "vNMSE, against float64") == ["2.5e-01"]
    assert row(lines, "Largest error, against float64") == ["3.0e+00 (elements not sent yet)"]
    assert not [line for line in lines if "Simulated" in line]
    seconds = Seconds(encode=0.1, network=0.2, decode=0.3, total=0.7, simulated=0.004)
    lines = lines_of(report_table(a_report(seconds=seconds)))
    assert row(lines, "Simulated time") == ["4.00 ms"]
    assert row(lines, "Time on this machine") == ["700 ms"]


def test_pauses_have_a_row_where_there_were_some():
    simulated = dict.fromkeys(Simulated.model_fields, 0) | {"assumed": (), "fabric": None}
    simulated |= {"utilization": {}, "busiest": {}}
    for pauses, shown in ((0, []), (3, ["3; one for 2.00 ms in all"])):
        made = Simulated(**simulated | {"pauses": pauses, "paused": 2e-3})
        lines = lines_of(report_table(a_report(simulated=made)))
        found = [line for line in lines if "pauses of links" in line]
        assert [re.split(r" {2,}", line.strip())[1].strip() for line in found] == shown
