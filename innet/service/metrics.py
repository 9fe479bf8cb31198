"""A service's statistics for Prometheus, over HTTP. ``docs/service.md`` lists the names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from innet.core.errors import MissingToolError, NetworkError
from innet.transport.peers import Address

Document = dict[str, Any]

_REMEDY = "Install it with `pip install 'innet[metrics]'`."


class Collector:
    """What a Prometheus client library asks for metrics at every scrape.

    Args:
        ask: gives the document of ``SwitchService.statistics``, from any thread.
    """

    def __init__(self, ask: Callable[[], Document]) -> None:
        self._ask = ask
        self._core = _library("core")

    def describe(self) -> list[Any]:
        """Nothing is known before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Metric families, from one look at the service."""
        document = self._ask()
        yield from self._switch(document)
        yield from self._jobs(document["jobs"])

    def _switch(self, document: Document) -> Iterator[Any]:
        counter, gauge = self._core.CounterMetricFamily, self._core.GaugeMetricFamily
        packets = counter(
            "innet_switch_packets", "Frames of workers in, and to workers out.", labels=["way"]
        )
        size = counter(
            "innet_switch_bytes", "Bytes of them, innet headers included.", labels=["way"]
        )
        for way in ("in", "out"):
            packets.add_metric([way], document["packets"][way])
            size.add_metric([way], document["packets"][f"bytes_{way}"])
        dropped = counter(
            "innet_switch_dropped_packets", "Datagrams not taken or not sent.", labels=["reason"]
        )
        for reason, number in document["drops"].items():
            dropped.add_metric([reason], number)
        switch = document["switch"]
        yield packets
        yield size
        yield dropped
        yield counter(
            "innet_switch_refused_requests",
            "Control requests that were refused.",
            value=switch["refused_requests"],
        )
        yield gauge("innet_switch_clients", "Control connections.", value=switch["clients"])
        yield gauge("innet_switch_jobs_max", "Room for jobs.", value=switch["jobs_max"])

    def _jobs(self, jobs: list[Document]) -> Iterator[Any]:
        gauge = self._core.GaugeMetricFamily
        of_jobs = {
            "workers": "Workers that the job has.",
            "running": "1 while all workers are in the present epoch.",
            "epoch": "The present epoch.",
            "slots": "Slots of the job.",
            "slots_open": "Slots that wait for a worker.",
        }
        for name, text in of_jobs.items():
            family = gauge(f"innet_job_{name}", text, labels=["job"])
            for job in jobs:
                family.add_metric([job["name"]], job[name])
            yield family
        epochs = self._core.CounterMetricFamily(
            "innet_job_epochs", "Epochs that have begun.", labels=["job"]
        )
        awaited = gauge(
            "innet_job_awaited",
            "1 for each worker that the job's next epoch, or its oldest open slot, waits for.",
            labels=["job", "worker"],
        )
        packets = self._core.CounterMetricFamily(
            "innet_worker_packets", "Frames of a worker and to it.", labels=["job", "worker", "way"]
        )
        silent = gauge(
            "innet_worker_silent_seconds", "Since its last frame.", labels=["job", "worker"]
        )
        for job in jobs:
            epochs.add_metric([job["name"]], job["epochs"])
            for worker in sorted({*job["awaited"], *job["missing"]}):
                awaited.add_metric([job["name"], str(worker)], 1)
            for session in job["seats"]:
                labels = [job["name"], str(session["worker"])]
                packets.add_metric([*labels, "in"], session["packets_in"])
                packets.add_metric([*labels, "out"], session["packets_out"])
                if session["silent_seconds"] is not None:
                    silent.add_metric(labels, session["silent_seconds"])
        yield from (epochs, awaited, packets, silent)


@contextmanager
def exporting(where: Address, ask: Callable[[], Document]) -> Iterator[Address]:
    """While the context is open, metrics are served at http://ADDRESS/metrics.

    Yields:
        where that is; port 0 takes a free one.

    Raises:
        MissingToolError: the library is not installed.
        NetworkError: the address is not this machine's, or the port is in use.
    """
    library = _library("exposition")
    registry = _library("registry").CollectorRegistry()
    registry.register(Collector(ask))
    try:
        server, thread = library.start_http_server(where.udp_port, where.ip, registry)
    except OSError as error:
        raise NetworkError(
            f"cannot serve metrics at {where.ip}:{where.udp_port}: {error.strerror or error}."
        ) from None
    try:
        yield Address(*server.server_address[:2])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _library(part: str) -> Any:
    try:
        return importlib.import_module(f"prometheus_client.{part}")
    except ImportError:
        raise MissingToolError("prometheus_client", "--metrics", _REMEDY) from None
