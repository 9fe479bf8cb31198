"""Jobs in simulated time, as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from innet.core.files import atomic_write
from innet.records import JobsRecord

_FIELDS = (
    "name", "workers", "codec", "elements", "window", "arrived", "begin", "end", "waited",
    "completion", "alone_seconds", "stretch", "goodput_gbps", "retransmissions",
)  # fmt: skip


def write_jobs(record: JobsRecord, path: str | Path) -> None:
    """Write a line for each job. Times are in seconds; hosts are separated by blanks.

    Raises:
        OutputError: it cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((*_FIELDS, "hosts"))
        for job in record.jobs:
            hosts = " ".join(map(str, job.hosts))
            rows.writerow((*(getattr(job, name) for name in _FIELDS), hosts))
