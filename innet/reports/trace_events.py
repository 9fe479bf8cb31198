"""A simulation in the Trace Event Format, which Perfetto and chrome://tracing show.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Each
worker is a process with two threads, for what it computes and what happens to its gradients. The
network is a process with the all-reduces, and counters of what they did to links and queues.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from innet.core.files import atomic_write
from innet.records import Iteration, SimulationRecord
from innet.records.simulation import Bucket

_NETWORK = 0  # process; those of workers are their numbers plus 1
_COMPUTE, _GRADIENTS = 1, 2  # threads of a worker
_ALL_REDUCES = 1  # thread of the network
_PICOSECONDS = 1e12  # in a second
# Counters of an all-reduce, where its ``simulated`` has them. They are added up over the run.
_ADDED = ("packets", "lost", "dropped", "marked", "retransmissions")
# Counters that are shown for the all-reduce under way; they are 0 between all-reduces.
_LASTING = ("goodput_gbps", "queue_bytes_max")


def trace_events(record: SimulationRecord) -> dict[str, Any]:
    """The trace as JSON: events in order of time, after those that name processes and threads.

    Times are microseconds of simulated time; fractions are whole picoseconds.
    """
    events = [event for each in record.iterations for event in _iteration(each)]
    events += _counters(record)
    events.sort(key=itemgetter("ts"))
    return {
        "traceEvents": [*_names(record.workers), *events],
        "displayTimeUnit": "ns",
        "otherData": {
            "innet": record.innet,
            "model": record.model,
            "workers": record.workers,
            "elements": record.elements,
            "codec": record.report.codec,
            "program": record.report.program,
        },
    }


def write_trace(record: SimulationRecord, path: str | Path) -> None:
    """Write the trace of a simulation to a JSON file.

    Raises:
        OutputError: it cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(trace_events(record), file, separators=(",", ":"), allow_nan=False)


def _names(workers: int) -> Iterator[dict[str, Any]]:
    """Names of processes and threads; the network comes first."""
    yield _metadata("process_name", _NETWORK, 0, name="network")
    yield _metadata("thread_name", _NETWORK, _ALL_REDUCES, name="all-reduces")
    for process in range(1, workers + 1):
        yield _metadata("process_name", process, 0, name=f"worker {process - 1}")
        yield _metadata("process_sort_index", process, 0, sort_index=process)
        yield _metadata("thread_name", process, _COMPUTE, name="compute")
        yield _metadata("thread_name", process, _GRADIENTS, name="gradients")


def _metadata(what: str, process: int, thread: int, **arguments: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": arguments}


def _iteration(iteration: Iteration) -> Iterator[dict[str, Any]]:
    number = {"iteration": iteration.number}
    for worker, begin in enumerate(iteration.begin):
        forward, backward = iteration.forward[worker], iteration.backward[worker]
        computing = begin + iteration.paused[worker]
        lane = (worker + 1, _COMPUTE)
        yield from _span("pause", lane, (begin, computing), number)
        yield from _span("forward", lane, (computing, forward), number)
        yield from _span("backward", lane, (forward, backward), number)
    for position, bucket in enumerate(iteration.buckets):
        first, last = bucket.layers
        about = {**number, "bucket": position, "elements": bucket.elements}
        yield from _bucket(bucket, {**about, "first layer": first, "last layer": last})


def _bucket(bucket: Bucket, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    slowest = max(bucket.encoded)
    for worker, started in enumerate(bucket.started):
        encoded, summed = bucket.encoded[worker], bucket.summed[worker]
        lane = (worker + 1, _GRADIENTS)
        waited = {**about, "until the slowest could send, µs": _microseconds(slowest - encoded)}
        yield from _span("encode", lane, (started, encoded), about)
        yield from _span("network", lane, (encoded, summed), waited)
        yield from _span("decode", lane, (summed, bucket.decoded[worker]), about)
    what = bucket.simulated
    about = {**about, "bytes": what.bytes, "packets": what.packets, "exact": bucket.exact}
    # Asynchronous events: one may begin before a slow worker has the sum of the one before.
    begin = {
        "name": f"bucket {about['bucket']}",
        "cat": "all-reduce",
        "ph": "b",
        "ts": _microseconds(min(bucket.encoded)),
        "id": f"{about['iteration']}.{about['bucket']}",
        "pid": _NETWORK,
        "tid": _ALL_REDUCES,
        "args": about,
    }
    yield begin
    yield {**begin, "ph": "e", "ts": _microseconds(max(bucket.summed)), "args": {}}


def _span(
    name: str, lane: tuple[int, int], times: tuple[float, float], arguments: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """A complete event; nothing for what takes no time."""
    begin, end = map(_ticks, times)
    if end > begin:
        yield {
            "name": name,
            "cat": "worker",
            "ph": "X",
            "ts": begin / 1e6,
            "dur": (end - begin) / 1e6,
            "pid": lane[0],
            "tid": lane[1],
            "args": arguments,
        }


def _counters(record: SimulationRecord) -> Iterator[dict[str, Any]]:
    totals = dict.fromkeys(_ADDED, 0)
    buckets = [bucket for each in record.iterations for bucket in each.buckets]
    begins = [min(bucket.encoded) for bucket in buckets]
    for bucket, begin, following in zip(buckets, begins, [*begins[1:], math.inf], strict=True):
        end = max(bucket.summed)
        what = bucket.simulated.model_dump()
        lasting = {name: {name: what[name]} for name in _LASTING if what.get(name) is not None}
        for name, values in {"utilization": what["utilization"], **lasting}.items():
            yield _counter(name, begin, values)
            if end < following:  # otherwise the values of the next one are there already
                yield _counter(name, end, dict.fromkeys(values, 0))
        for name in _ADDED:
            if what.get(name) is not None:
                totals[name] += what[name]
                yield _counter(name, end, {name: totals[name]})


def _counter(name: str, time: float, values: dict[str, float]) -> dict[str, Any]:
    ts = _microseconds(time)
    return {"name": name, "ph": "C", "ts": ts, "pid": _NETWORK, "tid": 0, "args": values}


def _ticks(seconds: float) -> int:
    return round(seconds * _PICOSECONDS)


def _microseconds(seconds: float) -> float:
    return _ticks(seconds) / 1e6
