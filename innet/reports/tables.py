"""Tables of records and reports for the terminal."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from innet.core.settings import CODEC_TIME, COMPUTE_TIME
from innet.records import (
    VERBATIM,
    Fabric,
    Finding,
    Iteration,
    JobRun,
    JobsRecord,
    LinkTraffic,
    Measurement,
    Metric,
    PredictionRecord,
    RecordingRecord,
    Report,
    ReproductionRecord,
    Run,
    Simulated,
    SimulatedTime,
    SimulationRecord,
    SweepPoint,
    SweepRecord,
    ThroughputRecord,
    TrafficRecord,
    TrainingRecord,
)
from innet.records.recording import FATES
from innet.records.report import fabric_text, limiting
from innet.records.simulation import BackgroundTraffic, BaselineRun, Sensitivity
from innet.records.sweep import baseline_metric
from innet.records.sweep import label as point_label
from innet.records.units import (
    count,
    duration,
    percent,
    plural,
    rate,
    score,
    score_like,
    setting,
    size,
    times,
)
from innet.reports.columns import Column, make_table, pairs_table, ready_table

Number = TypeVar("Number", int, float)
_Summed = tuple[str, SimulationRecord | BaselineRun]  # by what, and what it took

_NOT_SENT = "-"


def demo_table(record: TrainingRecord) -> Table:
    """The runs of a demonstration, one column for each."""
    return ready_table(
        ("", *(run.title for run in record.runs)),
        [(label, *map(cell, record.runs)) for label, cell in _ROWS],
        title=f"Training on handwritten digits, {plural(record.settings.get('workers'), 'worker')}",
        caption=_explanation(record),
    )


def report_table(report: Report) -> Table:
    """The report of one all-reduce, a row for each number."""
    return pairs_table(_report_rows(report))


def exactness(report: Report) -> str:
    """Whether the integer sum was exact, as text."""
    if report.exact is None:
        added = report.order_error is not None
        return "floats, as close as the switch's can be" if added else "not compared"
    if report.codec == VERBATIM:
        return "equals what was sent" if report.exact else "DIFFERS from what was sent"
    return "equals the oracle's" if report.exact else "DIFFERS from the oracle's"


def _report_rows(report: Report) -> list[tuple[str, str]]:
    seconds = report.seconds
    collective = report.details.get("collective")
    if report.codec == VERBATIM:
        found = [("What all received", exactness(report))] if report.elements else []
    else:
        found = [
            ("Decoded integer sum", exactness(report)),
            ("Largest error, against float64", _largest_difference(report)),
            ("  of what was sent, by quantization", _error(report.max_abs_error_sent)),
            ("vNMSE, against float64", _error(report.vnmse)),
            ("  of what was sent, by quantization", _error(report.vnmse_sent)),
            *_other_orders(report),
            *_infinite(report),
        ]
    return [
        *([("Collective", str(collective))] if collective else []),
        *found,
        ("Workers", count(report.workers)),
        ("Elements", count(report.elements)),
        ("Codec", report.codec),
        *([("  results", str(results))] if (results := report.details.get("results")) else []),
        *_hints(report),
        (
            "Program, engine, transport",
            f"{report.program}, {report.values_per_packet} values per packet; "
            f"{report.engine}; {report.transport}",
        ),
        ("Rounds", count(report.rounds)),
        ("Packets sent, all workers", count(report.packets_sent)),
        ("Packets received, all workers", count(report.packets_received)),
        ("Packets sent again", count(report.retransmissions)),
        ("Bytes sent, each worker", size(report.bytes_sent)),
        ("  as dense float32", size(report.bytes_dense)),
        ("Compression", times(report.compression)),
        *([("Simulated time", duration(seconds.simulated))] if seconds.simulated else []),
        *_simulated(report),
        ("Time on this machine", duration(seconds.total)),
        ("  encode, each worker", duration(seconds.encode)),
        ("  network", duration(seconds.network)),
        ("  decode, each worker", duration(seconds.decode)),
        *_switched(report),
    ]


def _hints(report: Report) -> list[tuple[str, str]]:
    """A row for each hint about the codec's parts."""
    return [("  hint", str(hint)) for hint in report.details.get("hints", ())]


def _simulated(report: Report) -> list[tuple[str, str]]:
    """What a network with simulated time adds."""
    if report.simulated is None:
        return []
    return [
        ("  goodput, each worker", f"{report.simulated.goodput_gbps:.3g} Gbit/s"),
        ("  packets lost on links", count(report.simulated.lost)),
        ("  packets dropped by full queues", count(report.simulated.dropped)),
        *_pause_rows(report.simulated),
        *_rests_on(report.simulated.fabric, report.simulated.limit),
    ]


def _rests_on(fabric: Fabric | None, limit: str) -> list[tuple[str, str]]:
    """Rows of what every number of a simulated network rests on, and of what limits it."""
    said = fabric_text([fabric])
    return [("Network", said)] * bool(said) + [("Limited by", limit)] * bool(limit)


ASSUMED = 0.1
"""Of an iteration: what is assumed and takes more of it is said before anything else."""


def _assumed_parts(record: SimulationRecord) -> list[tuple[str, str]]:
    """A row of the parts whose time is assumed, where they are much of an iteration."""
    if sum(record.assumed.values()) < ASSUMED:
        return []
    parts = ", ".join(f"{name} {percent(share)}" for name, share in record.assumed.items())
    return [("Assumed, of the time below", f"{parts}; {_how_to_give(record.assumed)}")]


def _how_to_give(names: Iterable[str]) -> str:
    """The options that replace assumed times by those that were measured."""
    options = {"computing": "compute", "encoding": "encode-time", "decoding": "decode-time"}
    return f"give {', '.join(f'--{options[name]}' for name in names)}"


def _star(name: str, part: str, record: SimulationRecord) -> str:
    """The head of a column, marked if its times are assumed."""
    return f"{name} *" if part in record.assumed else name


def _switched(report: Report) -> list[tuple[str, str]]:
    """The rate of the switch; it is not measured in simulated time."""
    if report.simulated is not None:
        return []
    return [("Packets through the switch", _rate(report.switch_packets, _switch_time(report)))]


def _largest_difference(report: Report) -> str:
    """The largest difference. Elements that a selector leaves out are not an error."""
    error, sent = report.max_abs_error, report.max_abs_error_sent
    left_out = error is not None and sent is not None and math.inf > error > sent
    return _error(error) + (" (elements not sent yet)" if left_out else "")


def _other_orders(report: Report) -> list[tuple[str, str]]:
    """A row for what the order of arrival does to sums of floats."""
    if report.order_error is None:
        return []
    return [("Change by other orders of arrival", f"up to {_error(report.order_error)}")]


def _infinite(report: Report) -> list[tuple[str, str]]:
    """A row for infinite elements, if there are any."""
    return [("Sums beyond float32", count(report.infinite))] if report.infinite else []


def _switch_time(report: Report) -> float:
    return report.seconds.network if report.seconds.switch is None else report.seconds.switch


def _explanation(record: TrainingRecord) -> str:
    per_packet = record.settings.get("values_per_packet", "?")
    machine = record.machine
    return (
        "Bytes are those each worker sent, headers included; compression is against float32 in "
        f"packets of the same {per_packet} values. Times are of one iteration on this machine "
        f"({machine.cpu}, {machine.cores} cores); those of encoding and decoding are one "
        "worker's."
    )


def _networked(cell: Callable[[Run], str]) -> Callable[[Run], str]:
    """A row's text, or a dash for runs without packets."""
    return lambda run: cell(run) if run.summed_by_network else _NOT_SENT


def _accuracy(run: Run) -> str:
    final = run.final_score
    return "not evaluated" if final is None else score(final, run.metric)


def _compression(run: Run) -> str:
    return times(run.compression)


def _exact(run: Run) -> str:
    return f"{count(run.exact_steps)} of {count(len(run.steps))}"


def _per_step(field: str) -> Callable[[Run], str]:
    return lambda run: duration(run.total_seconds(field) / len(run.steps))


def _switch_rate(run: Run) -> str:
    # If the switch is another process, only the time of the exchange is known.
    seconds = run.total_seconds("switch") or run.total_seconds("network")
    return _rate(run.total("switch_packets"), seconds)


def _rate(packets: int, seconds: float) -> str:
    return rate(packets / seconds) if seconds else _NOT_SENT


def _largest_error(run: Run) -> str:
    known = [step.max_abs_error_sent for step in run.steps if step.max_abs_error_sent is not None]
    return _error(max(known, default=None))


def _mean_vnmse(runs: Iterable[Run], field: str) -> str:
    """Over all steps of the runs."""
    found = [getattr(step, field) for run in runs for step in run.steps]
    known = [each for each in found if each is not None]
    return _error(statistics.fmean(known) if known else None)


def _error(error: float | None) -> str:
    if error is None:
        return "not compared"
    return f"{error:.1e}" if error else "0"


_ROWS: Sequence[tuple[str, Callable[[Run], str]]] = (
    ("Test accuracy", _accuracy),
    ("Exact integer sums", _networked(_exact)),
    ("Largest quantization error", _networked(_largest_error)),
    ("Mean vNMSE of quantization", _networked(lambda run: _mean_vnmse([run], "vnmse_sent"))),
    ("Bytes sent, each worker", _networked(lambda run: size(run.total("bytes_sent")))),
    ("  as dense float32", _networked(lambda run: size(run.total("bytes_dense")))),
    ("Compression", _networked(_compression)),
    ("Packets sent, all workers", _networked(lambda run: count(run.total("packets_sent")))),
    ("Packets through the switch", _networked(_switch_rate)),
    ("Encode, each worker", _networked(_per_step("encode"))),
    ("Network", _networked(_per_step("network"))),
    ("Decode, each worker", _networked(_per_step("decode"))),
    ("Whole run", lambda run: duration(run.wall_seconds)),
)


# ----------------------------------------------------------------------------
# The table of ``innet train``: all seeds of each method.


@dataclass(frozen=True, slots=True)
class MethodRuns:
    """All runs of one method: one for each seed, with one metric and of equal length."""

    title: str
    runs: tuple[Run, ...]

    @property
    def metric(self) -> Metric:
        return self.runs[0].metric

    @property
    def measured(self) -> bool:
        """Whether it sent packets."""
        return any(run.summed_by_network for run in self.runs)

    @property
    def is_plain(self) -> bool:
        """Whether these are plain float32 sums."""
        return not self.measured and "baseline" not in self.runs[0].settings

    def simulated(self, network: str) -> SimulatedTime:
        """Simulated time on a network, over all seeds; none where it has no time."""
        total = SimulatedTime()
        for run in self.runs:
            if network in run.simulated:
                more = run.simulated[network]
                total = SimulatedTime(
                    compute=total.compute + more.compute,
                    encode=total.encode + more.encode,
                    network=total.network + more.network,
                    decode=total.decode + more.decode,
                    lost=total.lost + more.lost,
                    dropped=total.dropped + more.dropped,
                    retransmissions=total.retransmissions + more.retransmissions,
                    fabric=more.fabric,
                )
        return total

    def scores_over_time(self, network: str) -> list[tuple[float, list[float]]]:
        """Simulated seconds and the scores of all seeds, where they were evaluated."""
        seeds = [
            [
                (step.simulated_seconds[network], step.score)
                for step in run.steps
                if step.score is not None and network in step.simulated_seconds
            ]
            for run in self.runs
        ]
        return [
            (statistics.fmean(seconds for seconds, _ in column), [score for _, score in column])
            for column in zip(*seeds, strict=True)
        ]

    def seconds_to(self, target: Target, network: str) -> float | None:
        """Simulated seconds until the mean score first reaches a target; None if it does not."""
        for seconds, scores in self.scores_over_time(network):
            if target.reached_by(statistics.fmean(scores)):
                return seconds
        return None

    @property
    def compression(self) -> float:
        """Bytes of float32 in packets over bytes sent, over all seeds."""
        sent = sum(run.total("bytes_sent") for run in self.runs)
        return sum(run.total("bytes_dense") for run in self.runs) / sent if sent else 1.0

    @property
    def preset(self) -> str:
        """The codec's name without parameters; "" for plain sums."""
        codec = self.runs[0].settings.get("codec")
        if isinstance(codec, dict):
            codec = codec.get("preset", self.title)
        if codec is None and self.measured:
            codec = self.runs[0].codec or self.title
        return "" if codec is None else str(codec)

    def failure(self, chance: float | None) -> str:
        """What went wrong, as text; "" if all seeds learned something.

        Args:
            chance: the score of guessing; None if unknown.
        """
        for run in self.runs:
            losses = [step.loss for step in run.steps]
            tenth = losses[-max(1, len(losses) // 10) :]
            if statistics.fmean(tenth) > 1.5 * losses[0]:
                return "diverged"
            score = run.final_score
            if score is None or chance is None:
                continue
            if score < 1.2 * chance if self.metric.higher_is_better else score > chance / 1.2:
                return "at chance"
        return ""

    def scores(self) -> list[float]:
        """The last score of each seed."""
        return [run.final_score for run in self.runs if run.final_score is not None]

    def losses(self, last: int) -> list[float]:
        """The mean loss of the ``last`` iterations, for each seed."""
        return [statistics.fmean(step.loss for step in run.steps[-last:]) for run in self.runs]


def methods_of(record: TrainingRecord) -> list[MethodRuns]:
    """The record's runs by their method, in order of appearance."""
    groups: dict[str, list[Run]] = {}
    for run in record.runs:
        groups.setdefault(str(run.settings.get("method", run.title)), []).append(run)
    return [MethodRuns(title, tuple(runs)) for title, runs in groups.items()]


CLOSE = {"share": 0.01, "number": 0.05}
"""Scores that make no difference: by so much, of a plain number by such a share of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The score that a training is to reach: within a point, or 5 %, of plain float32's last one.

    Attributes:
        score: a mean of the seeds.
        metric: of all runs.
    """

    score: float
    metric: Metric

    @classmethod
    def of(cls, methods: Sequence[MethodRuns]) -> Target | None:
        """From the runs of plain float32 sums; None if there are none with a score."""
        plain = next((each for each in methods if each.is_plain), None)
        if plain is None or not plain.scores():
            return None
        metric, last = plain.metric, statistics.fmean(plain.scores())
        margin = CLOSE[metric.unit] * (1.0 if metric.unit == "share" else abs(last))
        return cls(last - margin if metric.higher_is_better else last + margin, metric)

    @property
    def margin(self) -> str:
        """How far it is from plain float32's, as text."""
        return "1 point" if self.metric.unit == "share" else "5 %"

    def reached_by(self, score: float) -> bool:
        """Whether a score is as good."""
        return score >= self.score if self.metric.higher_is_better else score <= self.score


def fastest(
    methods: Sequence[MethodRuns], network: str, target: Target
) -> list[tuple[MethodRuns, float]]:
    """The methods that reach the target on a network and their simulated seconds, soonest first."""
    found = [(each, each.seconds_to(target, network)) for each in methods]
    reached = [(each, seconds) for each, seconds in found if seconds is not None]
    return sorted(reached, key=lambda pair: pair[1])


def simulated_table(record: TrainingRecord) -> Table:
    """What the record's trainings take in simulated time, on each network."""
    methods = methods_of(record)
    target = Target.of(methods)
    table = Table(
        title="Simulated time",
        caption=_assumptions(record, methods, target),
        box=SIMPLE_HEAD,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    names = ("Iteration", "Codec", "Network", "Whole run", "Limited by")
    for name in (*names, *([] if target is None else [f"To {score(target.score, target.metric)}"])):
        table.add_column(name, justify="right", no_wrap=True)
    for network in record.networks:
        table.add_row(network, style="bold")
        for method in methods:
            if any(network in run.simulated for run in method.runs):
                table.add_row(f"  {method.title}", *_simulated_cells(method, network, target))
        table.add_section()
    return table


_MOMENTS = 8  # rows of scores over simulated time


def scores_table(record: TrainingRecord) -> Table:
    """The scores over simulated time, on each network, at equally distant moments."""
    methods = methods_of(record)
    metric = methods[0].metric
    rows: list[tuple[str, ...]] = []
    for network in record.networks:
        points = [each.scores_over_time(network) for each in methods]
        end = max((found[-1][0] for found in points if found), default=0.0)
        rows.append((network, *[""] * len(methods)))
        for moment in (end * number / _MOMENTS for number in range(1, _MOMENTS + 1)):
            # What was evaluated last until then
            known = [[scores for seconds, scores in each if seconds <= moment] for each in points]
            cells = [spread_of_scores(each[-1], metric) if each else _NOT_SENT for each in known]
            rows.append((f"  {duration(moment)}", *cells))
    return ready_table(
        ("", *(each.title for each in methods)),
        rows,
        title=f"{metric.name.capitalize()} over simulated time",
        caption="As evaluated last until then. ±: standard deviation over the seeds.",
    )


def _simulated_cells(method: MethodRuns, network: str, target: Target | None) -> list[str]:
    parts = method.simulated(network)
    steps = sum(len(run.steps) for run in method.runs)
    found = [
        duration(seconds / steps)
        for seconds in (
            parts.seconds,
            parts.encode + parts.decode,
            parts.network,
        )
    ]
    found += [duration(parts.seconds / len(method.runs)), _most_of(parts)]
    if target is not None:
        seconds_to = method.seconds_to(target, network)
        found.append(_NOT_SENT if seconds_to is None else duration(seconds_to))
    return found


def _most_of(parts: SimulatedTime) -> str:
    """What an iteration is spent on most; several where one is hardly more than another."""
    if not parts.seconds:
        return _NOT_SENT
    shares = {
        "computing": parts.compute,
        "codec": parts.encode + parts.decode,
        "network": parts.network,
    }
    found = limiting({name: seconds / parts.seconds for name, seconds in shares.items()})
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in found)


def training_fabric(record: TrainingRecord) -> str:
    """The networks on which a training takes simulated time, in a line; "" without any."""
    return fabric_text(each.fabric for run in record.runs for each in run.simulated.values())


def _assumptions(
    record: TrainingRecord, methods: Sequence[MethodRuns], target: Target | None
) -> str:
    """What the simulated times rest on."""
    settings = record.settings
    compute = settings.get("compute")
    said = ["Computing, codec and network one after the other."]
    if isinstance(compute, float):
        slower = settings.get("straggler", "none")
        late = "" if slower == "none" else f", and longer for stragglers ({slower})"
        given = "assumed" if compute == COMPUTE_TIME else "a setting"
        said.append(f"Computing takes {duration(compute)} ({given}){late}.")
    encode, decode = settings.get("encode_time"), settings.get("decode_time")
    if settings.get("codec_times") == "measured":
        said.append("Codecs take what they take on this machine.")
    elif isinstance(encode, float) and isinstance(decode, float):
        given = "assumed" if encode == decode == CODEC_TIME else "settings"
        said.append(f"Codecs take {encode * 1e9:g} and {decode * 1e9:g} ns per element ({given}).")
    if fabric := training_fabric(record):
        said.append(f"{fabric}.")
    if any(run.simulated for each in methods if not each.measured for run in each.runs):
        said.append("Sums without a codec are a ring all-reduce over TCP.")
    again = [
        f"{network} ({method.title})"
        for network in record.networks
        for method in methods
        if method.simulated(network).retransmissions
    ]
    if again:
        said.append(f"Packets were sent again on {', '.join(again)}.")
    if target is not None:
        said.append(f"The last column: until within {target.margin} of plain float32's last score.")
    return " ".join(said)


def training_notes(record: TrainingRecord) -> tuple[str, ...]:
    """Notes for the user about failed methods, a sentence or two each."""
    chance = record.settings.get("chance")
    notes = []
    for method in methods_of(record):
        failure = method.failure(chance)
        if failure == "diverged":
            notes.append(
                f"{method.title}: its loss grew, the training diverged. "
                "Choose a smaller learning rate."
            )
        elif failure:
            found = spread_of_scores(method.scores(), method.metric)
            guess = score(float(chance or 0), method.metric)
            notes.append(
                f"{method.title}: its {method.metric.name}, {found}, is no better than guessing "
                f"({guess}). Train for more epochs, or with another learning rate or codec."
            )
    return tuple(notes)


def training_table(record: TrainingRecord) -> Table:
    """Score, loss and traffic of each method in the record."""
    methods = methods_of(record)
    last = int(record.settings.get("iterations_per_epoch", 1))
    part = "validation set" if record.settings.get("evaluate") == "validation" else "test set"
    scores, latest = f"Scores on the {part}.", "the last epoch's batches"
    if "iterations" in record.settings:
        scores, latest = (
            "Scores as the script measured them.",
            f"the last {plural(last, 'iteration')}",
        )
    chance = record.settings.get("chance")
    rows = [
        (f"{each.title} *" if each.failure(chance) else each.title, *cells(each, last))
        for each in methods
    ]
    heads = ("", methods[0].metric.name.capitalize(), "Loss", "Bytes", "Ratio", "vNMSE", "Exact")
    return ready_table(
        heads,
        rows,
        title=title(record, methods),
        caption=(
            f"{scores} Loss: mean of {latest}. ±: standard deviation over the seeds. Bytes: by "
            "each worker in one run, headers included. Ratio: how many times fewer than float32 in "
            "packets of as many values. vNMSE: squared errors of sums by their squares, the mean, "
            "with what is left for later. Exact: integer sums that equal the oracle's. *: "
            "diverged, or no better than chance."
        ),
    )


def cells(method: MethodRuns, last: int) -> tuple[str, ...]:
    """Score, loss, bytes, compression, errors and exact sums of one method, as text."""
    learned = (
        spread_of_scores(method.scores(), method.metric),
        spread(method.losses(last), _loss, lambda around: f"{around:.1g}"),
    )
    error = _NOT_SENT if method.is_plain else _mean_vnmse(method.runs, "vnmse")
    if not method.measured:
        return (*learned, _NOT_SENT, _NOT_SENT, error, _NOT_SENT)
    sent = sum(run.total("bytes_sent") for run in method.runs)
    exact = sum(run.exact_steps for run in method.runs)
    steps = sum(run.summed_steps for run in method.runs)
    return (
        *learned,
        size(sent / len(method.runs)),
        times(method.compression),
        error,
        "all" if exact == steps else f"{count(exact)} of {count(steps)}",
    )


def further_tables(record: TrainingRecord) -> Iterator[Table]:
    """Those of simulated time and of papers' own counting, where a record has them."""
    if record.networks:
        yield simulated_table(record)
        if any(each.scores() for each in methods_of(record)):
            yield scores_table(record)
    if any(run.counted_elements for run in record.runs):
        yield counted_table(record)


def counted_table(record: TrainingRecord) -> Table:
    """The compression as the codecs' papers count it, by type of layer, beside the wire's."""
    epoch = int(record.settings.get("iterations_per_epoch", 1))
    table = Table(
        title="Compression as the codec's paper counts it",
        caption=(
            "Float32's bits over those that the paper counts for what is sent, in all steps and in "
            "an epoch, the least and the most. Wire: bytes of packets, headers included, of all "
            "layers together; a switch cannot sum the paper's coding."
        ),
        box=SIMPLE_HEAD,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column("")
    for name in ("Layers", "Elements", "Ratio", "By epoch", "Wire"):
        table.add_column(name, justify="left" if name == "Layers" else "right", no_wrap=True)
    for method in methods_of(record):
        runs = [run for run in method.runs if run.counted_elements]
        wire = times(method.compression)
        for kind in runs[0].counted_elements if runs else ():
            overall = [run.counted_rates()[kind] for run in runs]
            epochs = [
                run.counted_rates(slice(start, start + epoch))[kind]
                for run in runs
                for start in range(0, len(run.steps) - epoch + 1, epoch)
            ]
            elements = runs[0].counted_elements[kind] // int(record.settings.get("workers", 1))
            low_high = f"{times(min(epochs))} to {times(max(epochs))}" if epochs else _NOT_SENT
            mean = times(statistics.fmean(overall))
            table.add_row(method.title, kind, count(elements), mean, low_high, wire)
        table.add_section()
    return table


def _loss(number: float) -> str:
    """A loss with three digits; the large loss of a diverged training in short form."""
    return f"{number:.3g}" if 1e-4 < number < 1e4 else f"{number:.1e}"


def spread_of_scores(scores: Sequence[float], metric: Metric) -> str:
    """The mean of scores and their spread: 97.0 ± 0.3 %, 4.12 ± 0.03."""
    if not scores:
        return "not evaluated"
    read = [metric.factor * each for each in scores]
    text = spread(read, score_like(statistics.fmean(read), metric))
    return f"{text} %" if metric.unit == "share" else text


def spread(
    values: Sequence[float],
    text: Callable[[float], str],
    around: Callable[[float], str] | None = None,
) -> str:
    """The mean, and the sample standard deviation where there are several.

    Args:
        values: at least one.
        text: how to write the mean.
        around: how to write the deviation, if not as the mean.
    """
    mean = text(statistics.fmean(values))
    return f"{mean} ± {(around or text)(statistics.stdev(values))}" if len(values) > 1 else mean


def title(record: TrainingRecord, methods: Sequence[MethodRuns]) -> str:
    """Title of a training's table: model, workers, epochs or iterations, and seeds."""
    settings = record.settings
    length = f"epochs: {settings.get('epochs')}"
    if "iterations" in settings:  # of a script, which may know no epochs
        length = plural(settings["iterations"], "iteration")
    seeds = max(len(method.runs) for method in methods)
    local = settings.get("local_sgd")
    return (
        f"{settings.get('title', 'a CNN learns handwritten digits')}: "
        f"{plural(settings.get('workers'), 'worker')}, {length}, "
        f"seeds: {seeds}" + ("" if local is None else f", local SGD {local}")
    )


# ----------------------------------------------------------------------------
# The table of ``innet reproduce``: a paper's claims, one by one.


def reproduction_table(record: ReproductionRecord) -> Table:
    """For each claim, the paper's result and the measurement; then what was not tried."""
    quick = ", a quick run: nothing is judged" if record.quick else ""
    table = Table(
        title=f"{record.codec}: {record.paper}{quick}",
        caption=record.note.replace("\n", " ").strip(),
        box=SIMPLE_HEAD,
        show_header=False,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column(style="bold")
    table.add_column()
    for finding in record.findings:
        table.add_row("claim", finding.claim)
        table.add_row("paper", finding.paper_result)
        table.add_row("here", finding.measured)
        table.add_row("set-up", finding.setup)
        table.add_row("verdict", verdict(finding), end_section=True)
    for reason in record.not_reproduced:
        table.add_row("not tried", reason)
    return table


def verdict(finding: Finding) -> str:
    """What became of the claim here, its criterion, and the reason where it does not hold."""
    word = finding.verdict
    said = f"{word} ({finding.criterion})" if finding.criterion else word
    return f"{said}. {finding.why}" if finding.why and finding.holds is False else said


def claims_table(records: Iterable[ReproductionRecord]) -> Table:
    """A row for each claim of several papers, and how many were reproduced."""
    found = [(record.codec, finding) for record in records for finding in record.findings]
    verdicts = [finding.verdict for _, finding in found]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    columns: list[Column[tuple[str, Finding]]] = [
        Column("codec", itemgetter(0), "left"),
        Column("claim", lambda row: Text(row[1].claim), "left"),
        Column("paper", lambda row: Text(row[1].paper_result), "left"),
        Column("here", lambda row: Text(row[1].measured), "left"),
        Column("verdict", lambda row: Text(verdict(row[1])), "left"),
    ]
    return make_table(found, columns, caption=f"{plural(len(found), 'claim')}: {counts}.")


# ----------------------------------------------------------------------------
# The table of ``innet experiment throughput``.


def throughput_table(record: ThroughputRecord) -> Table:
    """A row for each point."""
    wrong = sum(not each.exact for each in record.measurements)
    topology = Column[Measurement]("topology", lambda each: each.point.topology, "left")
    columns: list[Column[Measurement]] = [
        Column("switch", lambda each: each.point.switch, "left"),
        Column("workers", lambda each: str(each.point.workers), "left"),
        *[topology] * has_trees(record),
        Column("codec", lambda each: each.point.codec, "left"),
        Column("values", lambda each: str(each.point.values_per_packet), "left"),
        Column("window", lambda each: str(each.point.window), "left"),
        Column("goodput", lambda each: f"{size(each.goodput)}/s"),  # heads for 80 columns
        Column("of\nbmv2", lambda each: _known(times, record.ratio(each))),
        Column("packets\nin", lambda each: rate(each.packet_rate)),
        Column("sent\nagain", lambda each: count(each.retransmissions)),
    ]
    return make_table(
        record.measurements,
        columns,
        box=None,
        padding=(0, 1, 0, 0),
        caption=f"{wrong} points had wrong sums." if wrong else "All sums were exact.",
    )


def has_trees(record: ThroughputRecord) -> bool:
    """Whether a sweep varies the topology."""
    return any(each.point.topology != "star" for each in record.measurements)


# ----------------------------------------------------------------------------
# Simulations.

_ITERATIONS_SHOWN = 10


_MOST_ROWS = 24  # of each table of a network


def recording_table(record: RecordingRecord) -> Table:
    """What became of the packets of a recording."""
    fates = Counter(record.unpacked()["fate"].tolist())
    hosts = sum(node.kind == "host" for node in record.nodes)
    rows = [
        ("Hosts, switches", f"{hosts}, {len(record.nodes) - hosts}"),
        ("Simulated time", duration((record.end - record.begin) / 1e12)),
        ("Packets recorded", count(record.packets)),
        *((f"  {FATES[fate]}", count(fates[fate])) for fate in sorted(fates)),
        *([("Later packets, left out", count(record.left_out))] if record.left_out else []),
        ("Watched cells", count(len(record.watches))),
    ]
    return pairs_table([*rows, ("A page that plays it", "innet view FILE")])


def traffic_table(record: TrafficRecord) -> Group:
    """What became of traffic: its flows, hosts, switches and links that carried something."""
    # What limits the traffic stands first; the tables below say where.
    busiest = max(record.links, key=lambda link: link.utilization)
    limit = f"{busiest.source} to {busiest.target} ({percent(busiest.utilization)})"
    left = record.under_way
    total = [
        *_rests_on(record.fabric, ""),
        ("Busiest link", limit),
        ("Simulated time", duration(record.seconds)),
        ("Packets on links", count(record.packets)),
        *([("  still under way at the end", count(left))] if left else []),
        ("Time on this machine", duration(record.wall_seconds)),
    ]
    flows = [
        (
            f"{number}: host {each.source} to "
            + ("where the program sends" if each.destination is None else f"{each.destination}"),
            count(each.sent),
            "?" if each.received is None else count(each.received),
            _known(count, each.dropped),
            _known(duration, each.mean_delay),
            _known(duration, each.longest_delay),
        )
        for number, each in enumerate(record.flows)
    ]
    hosts = [
        (
            f"host {number}",
            count(each.sent),
            size(each.sent_bytes),
            count(each.received),
            size(each.received_bytes),
        )
        for number, each in enumerate(record.hosts)
        if each.sent or each.received
    ]
    switches = [
        (
            each.name,
            count(each.packets_in),
            count(each.packets_out),
            count(each.dropped_program + each.no_program + each.unconnected),
            count(each.dropped_queue),
            count(each.recirculated),
            size(max((queue.bytes_max for queue in each.queues), default=0)),
        )
        for each in record.switches
    ]
    has_pauses = any(each.pauses for each in record.links)
    links = [
        (
            f"{each.source} to {each.target}",
            count(each.packets),
            size(each.bytes),
            count(each.lost),
            percent(each.utilization),
            *([_paused(each)] if has_pauses else []),
        )
        for each in record.links
        if each.packets
    ]
    return Group(
        pairs_table(total),
        _listing(("Flow", "sent", "received", "dropped", "mean delay", "longest"), flows),
        _listing(("Host", "sent", "bytes", "received", "bytes"), hosts),
        _listing(
            ("Switch", "in", "out", "dropped by program", "by queues", "again", "longest queue"),
            switches,
        ),
        _listing(
            ("Link", "packets", "bytes", "lost", "busy", *(["paused"] if has_pauses else [])), links
        ),
    )


def _paused(link: LinkTraffic) -> str:
    """How often and how long a link was paused; by priority, if that is not 0."""
    return ", ".join(
        f"{count(pauses)} times, {duration(link.paused[priority])}"
        + (f" (priority {priority})" if priority else "")
        for priority, pauses in link.pauses.items()
    )


def _listing(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first of many rows."""
    hidden = len(rows) - _MOST_ROWS
    caption = f"{count(hidden)} more are in the record." if hidden > 0 else None
    return ready_table(heads, rows[:_MOST_ROWS], caption=caption)


def simulation_table(record: SimulationRecord) -> Group:
    """What a simulation took: a row for each number, and one for each of the first iterations."""
    parts = [pairs_table(_simulation_rows(record))]
    if record.model or len(record.iterations) > 1:
        parts.append(_iterations_table(record))
    if record.baselines:
        parts.append(_baselines_table(record))
    if record.background:
        parts.append(make_table(record.background, _BACKGROUND, caption=_OF_BACKGROUND))
    if record.sensitivity:
        parts.append(_sensitivity_table(record))
    return Group(*parts)


def _gpus_of_hosts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row, if hosts have several GPUs."""
    gpus = settings.get("gpus_per_host") or 1
    cards = settings.get("nics_per_host") or gpus
    said = f"{gpus}, with {cards} network card{'s' * (cards > 1)}"
    return [("  GPUs of a host", said)] if gpus > 1 else []


def _simulation_rows(record: SimulationRecord) -> list[tuple[str, str]]:
    what, first = record.simulated, record.iterations[0]
    report = record.report
    buckets = [bucket.elements for bucket in first.buckets]
    model = []
    if record.model:
        marked = " (assumed)" if record.compute_assumed else ""
        model = [
            ("Model", f"{record.model}, {count(record.elements)} parameters"),
            ("Forward and backward pass from", f"{record.compute_source}{marked}"),
            ("Buckets", f"{len(buckets)}, of {size(4 * min(buckets))} to {size(4 * max(buckets))}"),
        ]
    iterations = []
    if record.model or len(record.iterations) > 1:
        iterations = [("Time of an iteration, mean", duration(record.iteration_seconds))]
    sums = [bucket.exact for each in record.iterations for bucket in each.buckets]
    exact = f"{sum(each is True for each in sums)} of {len(sums)}"
    late = [who for each in record.iterations for bucket in each.buckets for who in bucket.without]
    left_out = []
    if late:
        named = f"worker{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
        left_out = [("Left out, as they were late", named)]
    if record.settings.get("thin"):
        exact = "not compared"
        by_codec = report.details.get("sizes") == "codec"
        model.append(("Packets", f"thin, sizes {'by the codec' if by_codec else 'modelled'}"))
    waited = []
    if what.waited:
        waited = [("  of it, waited for others", duration(what.waited))]
    return [
        *_assumed_parts(record),
        *_rests_on(what.fabric, record.limit),
        *model,
        ("Workers", count(record.workers)),
        *_gpus_of_hosts(record.settings),
        ("Elements", count(record.elements)),
        ("Codec", report.codec),
        *_hints(report),
        ("Program", f"{report.program}, {report.values_per_packet} values per packet"),
        ("Exact sums", exact),
        *([("vNMSE, against float64", _error(report.vnmse))] * (report.vnmse is not None)),
        *left_out,
        *iterations,
        ("Simulated time of the network", duration(what.seconds)),
        *waited,
        ("Goodput, each worker", f"{what.goodput_gbps:.4g} Gbit/s"),
        ("  elements summed", rate(what.elements_per_second)),
        *_packet_rows(what),
        ("  sent again", count(what.retransmissions)),
        *_queue_rows(what),
        *_forward_rows(record),
        ("Time on this machine", duration(record.wall_seconds)),
    ]


def _forward_rows(record: SimulationRecord) -> list[tuple[str, str]]:
    """What was skipped, or why nothing was, of thin packets; others never are."""
    found = record.fast_forward
    if found is None or not record.settings.get("thin"):
        return []
    skipped = f"{count(found.periods)} periods, {count(found.packets)} packets"
    return [("Skipped, as it repeats itself", f"nothing: {found.why}" if found.why else skipped)]


def _baselines_table(record: SimulationRecord) -> Table:
    """The codec, and below it each baseline."""
    (transport,) = {each.transport for each in record.baselines.values()}
    itself = (f"{record.report.codec} ({record.report.program})", record)
    runs: list[_Summed] = [itself, *record.baselines.items()]
    said = [
        f"Means of an iteration; packets of the whole run, with the acknowledgements of baselines, "
        f"which go over {transport}.",
        *(f"{name}: limited by {run.limit}." for name, run in runs),
    ]
    iterations = len(record.iterations)
    waited = Column[_Summed]("waited", lambda row: duration(row[1].simulated.waited / iterations))

    trimmed = Column[_Summed]("trimmed", lambda row: count(row[1].simulated.trimmed))

    def network(row: _Summed) -> str:
        what = row[1].simulated
        return duration((what.seconds - what.waited) / iterations)

    columns: list[Column[_Summed]] = [
        Column("summed by", lambda row: row[0], "left"),
        Column("iteration", lambda row: duration(row[1].iteration_seconds)),
        *[waited] * bool(record.simulated.waited),
        Column("network", network),
        Column("goodput\nGbit/s", lambda row: f"{row[1].simulated.goodput_gbps:.4g}"),
        Column("packets", lambda row: count(row[1].simulated.packets)),
        Column("dropped", lambda row: count(row[1].simulated.dropped)),
        *[trimmed] * any(run.simulated.trimmed for _, run in runs),
        Column("sent\nagain", lambda row: count(row[1].simulated.retransmissions)),
    ]
    return make_table(runs, columns, caption="\n".join(said))


def limit_name(limit: str) -> str:
    """The names in a line about what limits: "host links", "trunks and latency"."""
    return re.sub(r" \([^)]*\)", "", limit)


_OF_BACKGROUND = (
    "Packets beside the all-reduces; complete are messages of incasts and random flows without a "
    "missing packet."
)
_BACKGROUND: Sequence[Column[BackgroundTraffic]] = (
    Column("beside", lambda each: each.title, "left"),
    Column("sent", lambda each: count(each.sent)),
    Column("dropped", lambda each: count(each.dropped)),
    Column("mean\ndelay", lambda each: _known(duration, each.mean_delay)),
    Column("longest", lambda each: _known(duration, each.longest_delay)),
    Column(
        "complete",
        lambda each: f"{count(each.complete)} of {count(each.messages)}" if each.messages else "",
    ),
    Column("mean\ntime", lambda each: _known(duration, each.mean_completion)),
    Column("99 %", lambda each: _known(duration, each.p99_completion)),
)


def _known(said: Callable[[Number], str], number: Number | None) -> str:
    """A number as ``said`` writes it; "" where it is not known."""
    return "" if number is None else said(number)


def _sensitivity_table(record: SimulationRecord) -> Table:
    now = record.iteration_seconds
    columns: list[Column[Sensitivity]] = [
        Column("assumed", lambda each: each.setting, "left"),
        Column("value", lambda each: f"{each.value:g}"),
        Column("halved", lambda each: f"{(each.halved / now - 1) * 100:+.1f} %"),
        Column("doubled", lambda each: f"{(each.doubled / now - 1) * 100:+.1f} %"),
    ]
    caption = f"Time of an iteration, now {duration(now)}, with half and twice of what is assumed."
    return make_table(record.sensitivity, columns, caption=caption)


def _iterations_table(record: SimulationRecord) -> Table:
    left = len(record.iterations) - _ITERATIONS_SHOWN

    def mean(head: str, of: Callable[[Iteration], Sequence[float]]) -> Column[Iteration]:
        return Column(head, lambda each: duration(statistics.fmean(of(each))))

    def network(each: Iteration) -> str:
        return duration(statistics.fmean(each.network) - statistics.fmean(each.waited))

    columns: list[Column[Iteration]] = [
        Column("iteration", lambda each: str(each.number)),
        mean(_star("compute", "computing", record), lambda each: each.compute),
        mean(_star("encode", "encoding", record), lambda each: each.encode),
        mean("waited", lambda each: each.waited),
        Column("network", network),
        mean(_star("decode", "decoding", record), lambda each: each.decode),
        mean("exposed", lambda each: each.exposed),
        Column("all", lambda each: duration(each.seconds)),
    ]
    caption = (
        "Means of the workers; waited is the time until the slowest worker could send, and network "
        "what follows; exposed is what the backward pass did not hide."
        + (f" *: assumed; {_how_to_give(record.assumed)}." if record.assumed else "")
        + (f" {count(left)} more iterations are in the record." if left > 0 else "")
    )
    return make_table(record.iterations[:_ITERATIONS_SHOWN], columns, caption=caption)


_JOBS: Sequence[Column[JobRun]] = (
    Column("job", lambda job: job.name, "left"),
    Column("workers", lambda job: count(job.workers), "left"),
    Column("codec", lambda job: job.codec, "left"),
    Column("slots", lambda job: count(job.window)),
    Column("all-\nreduce", lambda job: duration(statistics.fmean(job.times))),
    Column("slower", lambda job: _known(times, job.slowdown)),
    Column("goodput\nGbit/s", lambda job: f"{job.goodput_gbps:.4g}"),
    Column("sent\nagain", lambda job: count(job.retransmissions)),
    Column("ends", lambda job: duration(job.end)),
)


_CLUSTER_JOBS: Sequence[Column[JobRun]] = (
    *_JOBS[:4],
    Column("arrives", lambda job: duration(job.arrived)),
    Column("waits", lambda job: duration(job.waited)),
    Column("takes", lambda job: duration(job.completion)),
    Column("of\nideal", lambda job: _known(times, job.stretch)),
    Column("slower", lambda job: _known(times, job.slowdown)),
    Column("sent\nagain", lambda job: count(job.retransmissions)),
)
_JOBS_SHOWN = 40  # of a cluster; its quantiles are of all


def jobs_table(record: JobsRecord) -> Group:
    """A row for each job, then the network, and the cluster that they shared."""
    what = record.simulated
    network = [
        *_cluster_rows(record),
        *_rests_on(what.fabric, what.limit),
        ("Program", f"{record.program}, {record.values_per_packet} values per packet, thin"),
        ("Simulated time", duration(what.seconds)),
        *_packet_rows(what),
        *_queue_rows(what),
        ("Time on this machine", duration(record.wall_seconds)),
    ]
    caption = "An all-reduce takes, in the mean, and beside it as many times as long as alone."
    columns = _JOBS
    if record.cluster is not None:
        columns = _CLUSTER_JOBS
        caption = (
            "A job takes the time from its arrival to its end, beside it as many times as long as "
            "alone. So much slower than alone were its all-reduces."
        )
        if (left := len(record.jobs) - _JOBS_SHOWN) > 0:
            caption += f" {count(left)} more jobs are in the record."
    shown = record.jobs if record.cluster is None else record.jobs[:_JOBS_SHOWN]
    parts = [make_table(shown, columns, caption=caption), pairs_table(network)]
    if record.background:
        parts.append(make_table(record.background, _BACKGROUND, caption=_OF_BACKGROUND))
    return Group(*parts)


def _cluster_rows(record: JobsRecord) -> list[tuple[str, str]]:
    """What jobs had of the cluster that they shared; nothing without one."""
    cluster = record.cluster
    if cluster is None:
        return []

    def spread(seconds: Sequence[float]) -> str:
        half, most = np.percentile(seconds, (50, 99)).tolist()
        mean = statistics.fmean(seconds)
        return f"{duration(mean)} mean, {duration(half)} median, {duration(most)} at 99 %"

    busy = f"{cluster.mean(cluster.hosts_busy) / cluster.hosts:.0%}"
    used = f"{cluster.mean(cluster.slots_used) / cluster.slots:.0%}"
    return [
        (
            "Cluster",
            f"{count(cluster.hosts)} hosts, {count(cluster.slots)} slots; placement "
            f"{cluster.placement}, memory {cluster.memory}, queueing {cluster.queueing}",
        ),
        ("Makespan", duration(record.makespan)),
        ("Completion", spread([job.completion for job in record.jobs])),
        ("Waiting", spread([job.waited for job in record.jobs])),
        ("In use", f"{busy} of hosts, {used} of slots; at most {max(cluster.waiting)} jobs waited"),
    ]


def _packet_rows(what: Simulated) -> list[tuple[str, str]]:
    return [
        ("Packets on links", count(what.packets)),
        ("  lost, dropped, marked", ", ".join(map(count, (what.lost, what.dropped, what.marked)))),
        *_pause_rows(what),
    ]


def _pause_rows(what: Simulated) -> list[tuple[str, str]]:
    """What priority flow control did, if anything."""
    if not what.pauses:
        return []
    return [("  pauses of links", f"{count(what.pauses)}; one for {duration(what.paused)} in all")]


def _queue_rows(what: Simulated) -> list[tuple[str, str]]:
    return [
        ("Longest queue", size(what.queue_bytes_max)),
        *(
            (f"Utilization, {name.replace('_', ' ')}", percent(share))
            for name, share in what.utilization.items()
        ),
    ]


# ----------------------------------------------------------------------------
# Sweeps.


def sweep_table(record: SweepRecord) -> Table:
    """A row for each point: the values of the axes, then the metrics that all points have."""
    metrics = [name for name in record.shown_metrics() if name != "packets"]
    if record.baselines:  # they need the room of what never happened
        metrics = [name for name in metrics if any(each.metric(name) for each in record.points)]
    notes = [note for note in (sweep_fabric(record), seeds_note(record, metrics)) if note]
    columns = [*(_axis(axis.name) for axis in record.axes), *map(_swept, metrics)]
    if any(map(_limit_of, record.points)):
        columns.append(Column("limited by", _limit_of, "left"))
    return make_table(record.points, columns, caption="\n".join(notes) or None)


def sweep_fabric(record: SweepRecord) -> str:
    """The networks of all points, in a line; "" where they are not known."""
    found = [(point.record.get("simulated") or {}).get("fabric") for point in record.points]
    return fabric_text(Fabric.model_validate(each) for each in found if each)


def _limit_of(point: SweepPoint) -> str:
    """What limits a point, by name: of a model its iterations, otherwise its all-reduces."""
    record = point.record
    limit = record.get("limit") if record.get("model") else None
    return limit_name(str(limit or (record.get("simulated") or {}).get("limit", "")))


_SWEPT: dict[str, tuple[str, Callable[[Any], str]]] = {
    "iteration_seconds": ("iteration", duration),
    "exposed_seconds": ("exposed", duration),
    "seconds": ("time", duration),
    "goodput_gbps": ("goodput\nGbit/s", lambda number: f"{number:.2f}"),
    "retransmissions": ("sent\nagain", count),
}


def _axis(name: str) -> Column[SweepPoint]:
    return Column(name, lambda point: setting(point.values[name]), "left", no_wrap=True)


def _swept(metric: str) -> Column[SweepPoint]:
    """A metric's column."""
    name, inner = baseline_metric(metric)
    head, said = _SWEPT[inner] if name else _SWEPT.get(metric, (metric, count))
    head = f"{name}\n{head}" if name else head
    return Column(head, lambda point: said(point.metric(metric)))


def seeds_note(record: SweepRecord, metrics: Sequence[str]) -> str:
    """A sentence where the seeds of a sweep make no difference to these numbers, else ""."""
    seeds = next((len(axis.values) for axis in record.axes if axis.name == "seed"), 1)
    if seeds < 2:
        return ""
    found: dict[str, set[tuple[float, ...]]] = {}
    for point in record.points:
        others = {name: value for name, value in point.values.items() if name != "seed"}
        numbers = tuple(point.metric(name) for name in metrics)
        found.setdefault(repr(others), set()).add(numbers)
    if any(len(numbers) > 1 for numbers in found.values()):
        return ""
    return f"All {seeds} seeds give the same numbers: nothing random changes them here."


def failures(record: SweepRecord) -> list[str]:
    """A line for each point that failed."""
    return [
        f"{point_label(each.values)} failed: {each.error} ({plural(each.attempts, 'attempt')})"
        for each in record.failures
    ]


# ----------------------------------------------------------------------------
# Predictions.

_PREDICTED = (  # fields of a run, what they are, and how they are written
    ("goodput_mbps", "Goodput of a worker, Mbit/s", "{:,.2f}"),
    ("packets", "Packets over links", "{:,}"),
    ("bytes", "Bytes on wires", "{:,}"),
    ("dropped", "Packets dropped by full queues", "{:,}"),
    ("lost", "Packets lost by chance", "{:,}"),
    ("retransmissions", "Packets sent again", "{:,}"),
)
_BUSY = 0.95  # of the cores, from which on they may be what limits Mininet
_SLOW = 0.95  # of the goodput that is predicted, below which something does


def prediction_table(record: PredictionRecord) -> Table:
    """Mininet and the simulation side by side, and by how much the simulation is above."""
    said = [
        f"Sums in Mininet: {_sums(record.exact)}. {record.workers} workers, "
        f"{count(record.elements)} elements, {count(record.window)} packets under way; median of "
        f"{len(record.mininet.seconds)} all-reduces.",
        f"A packet on idle links took {duration(record.idle_seconds)} in Mininet; the simulation "
        "has that as latency of its switches.",
    ]
    if fabric := fabric_text([record.simulated.fabric]):
        said.append(f"Simulated: {fabric}.")
    if record.processor_seconds:
        said.append(
            f"Mininet's processes used {record.cores:.2f} cores, "
            f"{duration(record.packet_seconds)} of one for each packet on a link."
        )
    if record.calibration is not None:
        said.append(
            f"Simulated hosts share {record.calibration['cores']:.2f} cores, and packets take "
            f"{duration(record.calibration['packet_seconds'])} of one: calibrated by another run."
        )
    if record.jobs > 1:
        said[0] = f"{record.jobs} jobs. {said[0]}"
    if record.busy > _BUSY and record.mininet.goodput_mbps < _SLOW * record.simulated.goodput_mbps:
        said.append(
            f"The cores of this machine were {record.busy:.0%} busy during Mininet's rounds: they "
            "may have been the limit, and not the links."
        )
    middle = tuple(statistics.median(each.seconds) for each in (record.mininet, record.simulated))
    rows = [("Time of an all-reduce", *map(duration, middle), _above(*middle))]
    for field, label, form in _PREDICTED:
        pair = (getattr(record.mininet, field), getattr(record.simulated, field))
        rows.append((label, *map(form.format, pair), _above(*pair)))
    heads = ("", "Mininet", "simulated", "difference")
    return ready_table(heads, rows, box=None, caption="\n".join(said), width=80)


def _sums(exact: bool | None) -> str:
    return {None: "not compared", True: "exact", False: "WRONG"}[exact]


def _above(measured: float, predicted: float) -> str:
    if measured == predicted:
        return "0 %"
    return f"{100 * (predicted / measured - 1):+.1f} %" if measured else ""
