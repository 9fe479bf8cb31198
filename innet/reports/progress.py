"""Live progress of training runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from innet.records import Metric, Step, units
from innet.records import Progress as Event
from innet.records.simulation import SimulationProgress
from innet.records.sweep import SweepProgress, label

_SECONDS_PER_LINE = 20.0  # of a simulation, where there is no terminal
_LINES_PER_SWEEP = 40  # where there is no terminal
_LINES_PER_RUN = 10  # where there is no terminal


class _Totals:
    """What has been sent so far in one run."""

    def __init__(self) -> None:
        self.steps = 0
        self.sums = 0
        self.exact = 0
        self.bytes_sent = 0
        self.packets = 0
        self.seconds = 0.0
        self.score = ""

    def add(self, step: Step, metric: Metric) -> None:
        self.steps += 1
        self.sums += step.scope != "none"
        self.exact += step.exact is True
        self.bytes_sent += step.bytes_sent
        self.packets += step.switch_packets
        if step.seconds is not None:
            switch = step.seconds.switch
            self.seconds += step.seconds.network if switch is None else switch
        if step.score is not None:
            self.score = f"{metric.name} {units.score(step.score, metric)}"

    def describe(self, loss: float) -> str:
        """One line: the loss of the latest step, and what came together until then."""
        parts = [f"loss {loss:.4f}"]
        if self.score:
            parts.append(self.score)
        if self.packets:
            parts.append(f"exact {self.exact}/{self.sums}")
            parts.append(units.size(self.bytes_sent))
        if self.packets and self.seconds:
            parts.append(f"{units.rate(self.packets / self.seconds).removesuffix('/s')} packets/s")
        return "  ".join(parts)


class ProgressDisplay:
    """Shows events of runs; pass it as the ``watch`` of an experiment.

        with ProgressDisplay() as display:
            demo.run(settings, folder, created=now, watch=display)

    Args:
        console: where to; by default standard error, which leaves standard output to results.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, emoji=False)
        self._live = self._console.is_terminal
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, _Totals] = {}
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True, compact=True),
            TextColumn("{task.fields[outcome]}", markup=False),
            console=self._console,
        )
        # The run's state has a separate line: beside the bar it would not fit 80 columns.
        self._state = Text(no_wrap=True, overflow="ellipsis")
        self._screen = Live(Group(self._bars, self._state), console=self._console)

    def __enter__(self) -> Self:
        if self._live:
            self._screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._screen.stop()

    def __call__(self, event: Event) -> None:
        totals = self._totals.setdefault(event.run, _Totals())
        if event.step is not None:
            totals.add(event.step, event.metric)
            state = totals.describe(event.step.loss)
        else:
            state = event.note
        if self._live:
            self._update_bar(event, totals)
            self._state.plain = f"  {state}"
        elif event.step is None or self._is_due(event.step.iteration, event.iterations):
            self._print_line(event, state)

    def _update_bar(self, event: Event, totals: _Totals) -> None:
        if event.run not in self._tasks:
            self._tasks[event.run] = self._bars.add_task(
                event.title, total=event.iterations, outcome=""
            )
        self._bars.update(self._tasks[event.run], completed=totals.steps, outcome=totals.score)

    def _print_line(self, event: Event, state: str) -> None:
        where = f" {event.step.iteration}/{event.iterations}" if event.step is not None else ""
        # As it is: a title in brackets is no markup, and a log keeps its long lines.
        self._console.print(
            f"{event.title}:{where} {state}", markup=False, highlight=False, soft_wrap=True
        )

    @staticmethod
    def _is_due(iteration: int, iterations: int) -> bool:
        """The first of each tenth of the run, and the last."""
        every = max(1, iterations // _LINES_PER_RUN)
        return iteration == iterations or iteration % every == 0


class SimulationDisplay:
    """Shows how far a simulation is, and its simulated time; pass it as ``watch``.

    Args:
        console: where to: a bar on a terminal, a line now and then elsewhere.
        every: seconds between two lines.
    """

    def __init__(self, console: Console, every: float = _SECONDS_PER_LINE) -> None:
        self._console = console
        self._every = every
        self._event: SimulationProgress | None = None
        self._ended = threading.Event()
        self._lines = threading.Thread(target=self._print_lines, daemon=True)
        self._bars = Progress(
            TextColumn("all-reduces"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True, compact=True),
            TextColumn("{task.fields[simulated]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=None, simulated="")

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._console.is_terminal:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        self._ended.set()
        if self._lines.is_alive():
            self._lines.join()

    def __call__(self, event: SimulationProgress) -> None:
        self._event = event
        self._bars.update(
            self._task,
            completed=event.all_reduces,
            total=event.of,
            simulated=f"{units.duration(event.seconds)} simulated",
        )

    def _print_lines(self) -> None:
        while not self._ended.wait(self._every):
            event = self._event
            if event is None:
                said = "simulating; the first all-reduce compiles what this machine has not yet ..."
            else:
                said = f"simulated {event.all_reduces} of {event.of} all-reduces, "
                said += f"{units.duration(event.seconds)} ..."
            self._console.print(said, markup=False, highlight=False, soft_wrap=True)


class SweepDisplay:
    """Shows the progress of a sweep and the time left; pass it as ``watch`` of a sweep.

    Args:
        console: where to; by default standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, emoji=False)
        self._live = self._console.is_terminal
        self._bar = Progress(
            TextColumn("sweep"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True, compact=True),
            TextColumn("{task.fields[point]}", markup=False),
            console=self._console,
        )
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._kept = 0

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._bar.stop()

    def __call__(self, event: SweepProgress) -> None:
        point = label(event.point)
        self._kept += event.what == "kept"
        if event.what in ("again", "failed"):
            outcome = "failed" if event.what == "failed" else "failed, and is tried again"
            self._print(f"{point}: {outcome}: {event.error}")
        if self._live:
            if self._task is None:
                self._task = self._bar.add_task("", total=event.total, point="")
            self._bar.update(self._task, completed=event.number, point=point)
        elif event.what == "done" and self._is_due(event):
            self._print(f"{event.number} of {event.total} points: {point}{self._left(event)}")

    def _is_due(self, event: SweepProgress) -> bool:
        every = max(1, event.total // _LINES_PER_SWEEP)
        return event.number % every == 0 or event.number == event.total

    def _left(self, event: SweepProgress) -> str:
        """How long it takes if the other points take as long."""
        left = event.total - event.number
        made = event.number - self._kept
        if not left or not made:
            return ""
        seconds = (time.monotonic() - self._began) * left / made
        return f"; about {units.duration(seconds)} left"

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
