"""Workers and a switch service that are killed again and again: no wrong sum, no hang, no growth.

    python -m benchmarks.soak [--seconds 600] [--every 60] [--codec lhc] [--transport shm]
        [--threads 2]

A switch service and worker processes sum without end. Every ``--every`` seconds one worker is
killed (SIGKILL) and started anew, and half of that later the switch, at the same port. The last
worker is never killed. Each worker compares each of its sums, bit for bit, with that of a
collective in its own memory. At the end: sums, epochs, how long each interruption took until all
workers had summed again, and what resident memory a process had in its first seconds, midway and in
its last.

It ends with status 1 if a sum was wrong, a process ended by itself, or one did nothing for
``--patience`` seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from innet import Collective
from innet.allreduce.worker import Worker
from innet.core.errors import StalledError
from innet.core.settings import ServiceTransport
from innet.service import Membership, join
from innet.transport.transports import checked_transport

_DEADLINE = 60.0  # seconds that a worker waits for the others and for the switch
_REPORT = 0.5  # seconds between two reports of a worker
_WARM = 5.0  # seconds of summing before a process's memory is looked at


# ---------------------------------------------------------------------- a worker


@dataclass(frozen=True, slots=True)
class Load:
    """What workers sum.

    Attributes:
        codec: a registered codec's name.
        size: elements of a gradient.
        pause: seconds between two sums.
        transport: what carries packets to the switch.
    """

    codec: str = "lhc"
    size: int = 20_000
    pause: float = 0.0
    transport: ServiceTransport = "auto"


def work(switch: str, worker: int, workers: int, load: Load) -> None:
    """Sum until SIGTERM; print a line of JSON for what happens."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with join(
        switch,
        job="soak",
        worker=worker,
        workers=workers,
        deadline=_DEADLINE,
        transport=load.transport,
    ) as member:
        while True:
            try:
                _sum_one_epoch(member, load)
            except StalledError as error:
                _say(interrupted=str(error))
                member.renew(_DEADLINE)


def _sum_one_epoch(member: Membership, load: Load) -> None:
    """Sum, and compare, until something fails. All workers draw the same gradients of all."""
    reference = Collective(
        workers=member.workers,
        codec=load.codec,
        values_per_packet=member.plan.layout.values,
        seed=1,
    )
    worker = Worker(
        member.plan, member.worker, codec=load.codec, transport=member.transport, seed=1
    )
    rng = np.random.default_rng(member.epoch)
    sums, told = 0, time.monotonic()
    while True:
        gradients = [rng.laplace(size=load.size).astype(np.float32) for _ in range(member.workers)]
        total, _ = worker.all_reduce(gradients[member.worker])
        expected, report = reference.all_reduce(gradients)
        if not report.exact or not np.array_equal(total, expected):
            _say(wrong=sums, epoch=member.epoch)
            sys.exit(2)
        sums += 1
        if time.monotonic() >= told + _REPORT or sums == 1:
            _say(sums=sums, epoch=member.epoch)
            told = time.monotonic()
            sums = 0
        time.sleep(load.pause)


def _say(**what: Any) -> None:
    # The clock is the same in all processes of a machine.
    print(json.dumps({**what, "at": time.monotonic()}), flush=True)


# ---------------------------------------------------------------------- who starts and kills them


@dataclass(slots=True)
class Life:
    """One process from its start to its end.

    Attributes:
        name: as people call it.
        process: itself.
        born: when it was started, by ``time.monotonic``.
        summing: when the first sum was made with it; None before.
        resident: (age in seconds, bytes) of its memory, once it has run for a while.
    """

    name: str
    process: subprocess.Popen[str]
    born: float
    summing: float | None = None
    resident: list[tuple[float, int]] = field(default_factory=list)

    def look(self, now: float) -> None:
        """Note its memory, once a second."""
        if self.summing is None or now < self.summing + _WARM:
            return
        if self.resident and now < self.born + self.resident[-1][0] + 1.0:
            return
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return
        self.resident.append((now - self.born, pages * os.sysconf("SC_PAGE_SIZE")))

    def sizes(self) -> tuple[int, int, int] | None:
        """Bytes early, midway and late, medians of five looks each; None if it was too short."""
        looks = [size for _, size in self.resident]
        if len(looks) < 15:
            return None
        middle = len(looks) // 2
        early, midway, late = looks[:5], looks[middle - 2 : middle + 3], looks[-5:]
        return _median(early), _median(midway), _median(late)


def _median(sizes: list[int]) -> int:
    return int(statistics.median(sizes))


@dataclass(slots=True)
class Stats:
    """What has happened.

    Attributes:
        sums: by worker, all compared.
        epochs: that some sum was of.
        kills: by name.
        interruptions: seconds from each kill until all workers had summed again.
        errors: what must not be.
    """

    sums: Counter[str] = field(default_factory=Counter)
    epochs: set[int] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    interruptions: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Soak:
    """The processes, and what they say."""

    def __init__(self, workers: int, load: Load, values: int, threads: int | None) -> None:
        self.stats = Stats()
        self.lives: list[Life] = []
        self._now: dict[str, Life] = {}
        self._said: queue.SimpleQueue[tuple[Life, dict[str, Any]]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._summed: dict[str, float] = {}  # when each worker last told of sums
        self._killed_at: float | None = time.monotonic()  # as if all had been
        self._load = [load.codec, str(load.size), str(load.pause), load.transport]
        self._values, self._threads_wanted = values, threads
        self._address = f"127.0.0.1:{_free_port()}"
        self.workers = [f"worker {each}" for each in range(workers)]

    def start(self, name: str) -> None:
        """Start the switch or a worker."""
        if name == "switch":
            command = ["-m", "innet", "switch", "serve", "--listen", self._address]
            command += ["--values-per-packet", str(self._values)]
            if self._threads_wanted is not None:
                command += ["--threads", str(self._threads_wanted)]
        else:
            index, count = name.split()[1], str(len(self.workers))
            command = ["-m", "benchmarks.soak", "--as-worker", self._address, index, count]
            command += self._load
        process = subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        life = Life(name, process, time.monotonic())
        self.lives.append(life)
        self._now[name] = life
        self._summed[name] = life.born
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            thread = threading.Thread(target=self._listen, args=(life, pipe), daemon=True)
            thread.start()
            self._threads.append(thread)

    def kill(self, name: str) -> None:
        """Kill a process, so that it has no time for farewells, and start it anew."""
        life = self._now[name]
        life.process.kill()
        life.process.wait()
        self.stats.kills[name] += 1
        self._killed_at = time.monotonic()
        self.start(name)

    def watch(self, seconds: float, patience: float) -> None:
        """Take up what the processes say, for so long and until all have summed since the last
        kill; or until something is wrong.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end or self._killed_at is not None:
            with contextlib.suppress(queue.Empty):
                self._take(*self._said.get(timeout=0.2))
            self._look(patience)
            if self.stats.errors:
                return

    def stop(self) -> None:
        """End all processes."""
        for life in self._now.values():
            life.process.terminate()
        for life in self._now.values():
            try:
                status = life.process.wait(20)
            except subprocess.TimeoutExpired:
                life.process.kill()
                status = life.process.wait()
                self.stats.errors.append(f"{life.name} did not end when it was asked to")
            if status not in (0, -signal.SIGTERM):  # the latter if it had only just begun
                self.stats.errors.append(f"{life.name} ended with status {status}")
        for thread in self._threads:
            thread.join(5)

    def _listen(self, life: Life, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                try:
                    said = json.loads(line)
                except ValueError:
                    said = {"text": line.rstrip()}
                self._said.put((life, said))

    def _take(self, life: Life, said: dict[str, Any]) -> None:
        if "wrong" in said:
            self.stats.errors.append(f"{life.name}: a wrong sum in epoch {said['epoch']}")
        elif "sums" in said:
            self.stats.sums[life.name] += said["sums"]
            self.stats.epochs.add(said["epoch"])
            now = float(said["at"])
            self._summed[life.name] = max(now, self._summed[life.name])
            for each in (life, self._now["switch"]):
                each.summing = each.summing or now
            since = self._killed_at
            if since is not None and all(self._summed[each] > since for each in self.workers):
                if self.stats.kills:  # not the beginning
                    self.stats.interruptions.append(now - since)
                self._killed_at = None
        elif "text" in said and life is self._now[life.name] and life.name != "switch":
            print(f"{life.name}: {said['text']}", file=sys.stderr)

    def _look(self, patience: float) -> None:
        now = time.monotonic()
        for name, life in self._now.items():
            life.look(now)
            if life.process.poll() is not None:
                self.stats.errors.append(
                    f"{name} ended by itself, status {life.process.returncode}"
                )
            if name != "switch" and now - self._summed[name] > patience:
                self.stats.errors.append(f"{name} has not summed for {patience:g} s")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def soak(
    seconds: float,
    every: float,
    *,
    workers: int = 4,
    load: Load = Load(),
    values: int = 256,
    patience: float = 60.0,
    threads: int | None = None,
) -> Soak:
    """Run it; see above."""
    run = Soak(workers, load, values, threads)
    try:
        for name in ("switch", *run.workers):
            run.start(name)
        run.watch(every / 2, patience)
        for turn in range(max(1, round(seconds / every))):
            for name in (run.workers[turn % max(1, workers - 1)], "switch"):
                if not run.stats.errors:
                    run.kill(name)
                    run.watch(every / 2, patience)
    finally:
        run.stop()
    return run


def show(run: Soak) -> None:
    """Print what has happened."""
    stats, console = run.stats, Console()
    console.print(
        f"{sum(stats.sums.values()):,} sums compared in {len(stats.epochs)} epochs; killed: "
        + (", ".join(f"{name} {number}" for name, number in sorted(stats.kills.items())) or "none")
    )
    if stats.interruptions:
        console.print(
            f"from a kill until all had summed again: median "
            f"{statistics.median(stats.interruptions):.2f} s, at most "
            f"{max(stats.interruptions):.2f} s"
        )
    table = Table(title="resident memory, MB", box=None, title_justify="left")
    for title in ("", "looked for, s", "early", "midway", "late"):
        table.add_column(title, justify="right" if title else "left")
    for life in run.lives:
        if (sizes := life.sizes()) is not None:
            looked = life.resident[-1][0] - life.resident[0][0]
            table.add_row(life.name, f"{looked:.0f}", *(f"{size / 1e6:.1f}" for size in sizes))
    console.print(table)
    for error in stats.errors:
        console.print(f"ERROR: {error}", markup=False)


def main(  # noqa: PLR0917 - options of a command line
    seconds: Annotated[float, typer.Option(help="How long.")] = 600,
    every: Annotated[float, typer.Option(help="Seconds from one worker's death to the next.")] = 60,
    workers: Annotated[int, typer.Option(min=1, max=32)] = 4,
    codec: Annotated[str, typer.Option()] = "lhc",
    size: Annotated[int, typer.Option(help="Elements of a gradient.")] = 20_000,
    pause: Annotated[float, typer.Option(help="Seconds that workers sleep between sums.")] = 0.0,
    transport: Annotated[str, typer.Option(help="auto, udp or shm.")] = "auto",
    patience: Annotated[float, typer.Option(help="Seconds without a sum that are a hang.")] = 60.0,
    threads: Annotated[int | None, typer.Option(help="Threads of the switch.")] = None,
) -> None:
    """Kill and restart processes for some minutes, compare all sums, and print what happened."""
    # Whoever ends this ends what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    load = Load(codec, size, pause, checked_transport(transport))
    run = soak(seconds, every, workers=workers, load=load, patience=patience, threads=threads)
    show(run)
    if run.stats.errors:
        raise typer.Exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-worker"]:
        where, index, count, name, elements, rest, over = sys.argv[2:]
        load = Load(name, int(elements), float(rest), checked_transport(over))
        work(where, int(index), int(count), load)
    else:
        typer.run(main)
