"""Progress on a terminal and without one."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console
from support.records import a_report

from innet.records import Progress, Step
from innet.records.simulation import SimulationProgress
from innet.reports.progress import ProgressDisplay, SimulationDisplay


def feed(display: ProgressDisplay, iterations: int, exact: bool = True, sent: bool = True) -> None:
    with display:
        event = Progress(run="topk", title="top-k [1 %]", iterations=iterations, note="compiling")
        display(event)
        for iteration in range(1, iterations + 1):
            report = a_report(exact=exact, bytes_sent=1000) if sent else None
            accuracy = 0.9 if iteration % 5 == 0 else None
            step = Step.of(iteration, 1 / iteration, accuracy, report)
            display(event.model_copy(update={"step": step, "note": ""}))


def lines(iterations: int, exact: bool = True, sent: bool = True) -> list[str]:
    stream = io.StringIO()
    display = ProgressDisplay(Console(file=stream, force_terminal=False, width=40))
    feed(display, iterations, exact, sent)
    return stream.getvalue().splitlines()


def test_without_a_terminal_a_line_for_each_tenth() -> None:
    found = lines(200)
    assert found[0] == "top-k [1 %]: compiling"
    assert [line.split(": ")[1].split()[0] for line in found[1:]] == [
        f"{done}/200" for done in range(20, 201, 20)
    ]


def test_a_line_says_loss_accuracy_exactness_bytes_and_rate() -> None:
    assert lines(20)[-1] == (
        "top-k [1 %]: 20/20 loss 0.0500  accuracy 90.0 %  exact 20/20  20.0 kB  861,000 packets/s"
    )


def test_wrong_sums_are_not_counted_as_exact() -> None:
    assert "exact 0/20" in lines(20, exact=False)[-1]


def test_a_run_without_packets_says_nothing_of_them() -> None:
    assert lines(20, sent=False)[-1] == "top-k [1 %]: 20/20 loss 0.0500  accuracy 90.0 %"


@pytest.mark.parametrize("iterations", [1, 3, 10, 11])
def test_the_last_step_is_always_shown_once(iterations: int) -> None:
    assert sum(f" {iterations}/{iterations} " in line for line in lines(iterations)) == 1


def on_terminal(iterations: int, width: int) -> list[str]:
    """The last picture, line by line."""
    stream = io.StringIO()
    feed(ProgressDisplay(Console(file=stream, force_terminal=True, width=width)), iterations)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    return plain.splitlines()[-2:]


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_a_full_bar_and_the_state_below(width: int) -> None:
    bar, state = on_terminal(20, width)
    assert re.match(r"top-k \[1 %\] ━+ 20/20 \S+ accuracy 90\.0 %", bar)
    assert state.split("  ")[1:] == [
        "loss 0.0500",
        "accuracy 90.0 %",
        "exact 20/20",
        "20.0 kB",
        "861,000 packets/s",
    ]


def test_the_display_stops_when_the_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal has no cursor to hide
    stream = io.StringIO()
    display = ProgressDisplay(Console(file=stream, force_terminal=True))
    with pytest.raises(RuntimeError, match="broken"), display:
        raise RuntimeError("broken")
    assert stream.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_a_simulation_says_how_far_it_is_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with SimulationDisplay(console, every=0.01) as display:
        while "compiles" not in console.file.getvalue():
            time.sleep(0.01)  # pytest's timeout ends it
        display(SimulationProgress(all_reduces=3, of=12, seconds=0.25))
        while "of 12" not in console.file.getvalue():
            time.sleep(0.01)
    said = console.file.getvalue()
    assert said.splitlines()[-1] == "simulated 3 of 12 all-reduces, 250 ms ..."
    time.sleep(0.05)
    assert console.file.getvalue() == said
    with SimulationDisplay(console):
        pass
    assert console.file.getvalue() == said, "what is quick says nothing"
