"""``innet switch serve``: the built-in switch as a UDP service; ``innet switch top`` shows it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from innet.cli.options import declared, with_settings
from innet.cli.output import out, say_json
from innet.core.numbers import number_list
from innet.core.settings import LISTEN, ServiceSettings


@with_settings(ServiceSettings)
def serve(settings: ServiceSettings) -> None:
    """Serve the built-in switch to workers that are processes on this or other machines.

    It prints where it listens, and serves until it is interrupted or terminated.
    """
    from innet.service.process import serve as serve_here

    serve_here(settings)


# ----------------------------------------------------------------------------
# ``innet switch top``: live statistics of a switch service.

Document = Mapping[str, Any]


def top(
    *,
    switch: Annotated[str, typer.Argument(metavar="[ADDRESS:PORT]")] = LISTEN,
    once: Annotated[bool, typer.Option("--once", help="Show it once, then exit.")] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=0.1, help="Seconds between updates.")
    ] = 1.0,
    key: Annotated[str | None, typer.Option(help="The service's key.")] = None,
    key_file: Annotated[
        Path | None, declared("key_file", ServiceSettings.model_fields["key_file"])
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one line per update.")
    ] = False,
) -> None:
    """Show packets, drops and jobs of a switch service, and which workers it waits for.

    Without a terminal it shows them once. Rates are those since the last update.
    """
    from innet.service.connections import Observer, key_of

    with Observer(switch, key_of(key, key_file)) as observer:
        if as_json and once:
            say_json(observer.statistics())
        elif as_json:
            for _, now in _updates(observer, seconds):
                print(json.dumps(now), flush=True)
        elif once or not out.is_terminal:
            out.print(screen(None, observer.statistics()))
        else:
            with Live(console=out, auto_refresh=False, screen=True) as live:
                for before, now in _updates(observer, seconds):
                    live.update(screen(before, now), refresh=True)


def _updates(observer: Any, seconds: float) -> Iterator[tuple[Document | None, Document]]:
    before = None
    try:
        while True:
            now = observer.statistics()
            yield before, now
            before = now
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def screen(before: Document | None, now: Document) -> Group:
    """The text on the screen.

    Args:
        before: the previous statistics, for rates; None for none.
        now: the current statistics of a service.
    """
    parts: list[Any] = [_title(now["switch"]), _packets(before, now), _drops(now["drops"])]
    if not now["jobs"]:
        parts.append(Text("no jobs"))
    parts += [_job(job) for job in now["jobs"]]
    return Group(*parts)


def _title(switch: Document) -> Text:
    threads = f"{switch['threads']} thread{'s' if switch['threads'] > 1 else ''}"
    return Text(
        f"{switch['program']} at {switch['address']}, for {switch['seconds']:,.0f} s; "
        f"{switch['clients']} connections, {switch['refused_requests']} requests refused; "
        f"{threads} ({switch['threads_reason']})"
    )


def _seconds_between(before: Document | None, now: Document) -> float:
    if before is None:
        return float(now["switch"]["seconds"])
    return float(now["switch"]["seconds"] - before["switch"]["seconds"])


def _packets(before: Document | None, now: Document) -> Text:
    spent = max(_seconds_between(before, now), 1e-9)
    said = []
    for way in ("in", "out"):
        total = now["packets"][way]
        since = total - (0 if before is None else before["packets"][way])
        said.append(f"{way} {total:,} packets, {since / spent:,.0f}/s")
    return Text("; ".join(said))


def _drops(drops: Document) -> Text:
    listed = ", ".join(
        f"{why.replace('_', ' ')} {number:,}" for why, number in drops.items() if number
    )
    return Text(f"dropped: {listed or 'nothing'}")


def _job(job: Document) -> Table:
    table = Table(title=Text(_job_title(job)), title_justify="left", box=None)
    for name in ("worker", "state", "address", "packets in", "packets out", "silent"):
        table.add_column(name, justify="left" if name in ("state", "address") else "right")
    members = {member["worker"]: member for member in job["members"]}
    for worker in range(job["workers"]):
        member = members.get(worker)
        if member is None:
            table.add_row(str(worker), "absent", "", "", "", "")
            continue
        silent = member["silent_seconds"]
        table.add_row(
            str(worker),
            member["state"],
            member["address"],
            f"{member['packets_in']:,}",
            f"{member['packets_out']:,}",
            "" if silent is None else f"{silent:,.1f} s",
        )
    return table


def _job_title(job: Document) -> str:
    state = "running" if job["running"] else "waiting"
    said = (
        f"job {job['name']!r} ({job['number']}): {state}, epoch {job['epoch']}, "
        f"{job['slots_open']} of {job['slots']} slots open"
    )
    if job["awaited"]:
        said += f"; the next epoch waits for {_workers(job['awaited'])}"
    if job["missing"]:
        said += f"; chunk {job['oldest_open_sequence']} waits for {_workers(job['missing'])}"
    return said


def _workers(indices: list[int]) -> str:
    return f"worker{'s' if len(indices) > 1 else ''} {number_list(indices)}"
