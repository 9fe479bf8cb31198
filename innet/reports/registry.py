"""How records are shown: the tables and the picture of each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

from innet import records
from innet.core.errors import InputError
from innet.reports import plots, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _demo(record: records.TrainingRecord) -> Group:
    return Group(tables.demo_table(record), *tables.further_tables(record))


def _training(record: records.TrainingRecord) -> Group:
    return Group(tables.training_table(record), *tables.further_tables(record))


_Shown = tuple[Callable[[Any], Table | Group], "Callable[..., Figure] | None"]

_SHOWN: Mapping[str, _Shown] = {
    records.DEMO: (_demo, plots.demo_figure),
    records.JOBS: (tables.jobs_table, plots.jobs_figure),
    records.PREDICTION: (tables.prediction_table, None),
    records.RECORDING: (tables.recording_table, None),
    records.REPRODUCE: (tables.reproduction_table, plots.reproduction_figure),
    records.SIMULATION: (tables.simulation_table, plots.simulation_figure),
    records.SWEEP: (tables.sweep_table, plots.sweep_figure),
    records.THROUGHPUT: (tables.throughput_table, plots.throughput_figure),
    records.TRAFFIC: (tables.traffic_table, None),
    records.TRAIN: (_training, plots.training_figure),
}


FORMATS = frozenset(_SHOWN)
"""Formats of records that have a table."""


def _shown(record: records.Record) -> _Shown:
    found = _SHOWN.get(record.format)
    if found is None:
        raise InputError(f"there is no table of {record.format}; use --json.")
    return found


def table_of(record: records.Record) -> Table | Group:
    """The record as a table, or as several.

    Raises:
        InputError: such records have no table.
    """
    table, _ = _shown(record)
    return table(record)


def draw(record: records.Record, path: str | Path, **options: Any) -> None:
    """Draw the record's picture into a .png, .pdf or .svg file.

    Args:
        record: what is drawn.
        path: of the file.
        **options: of the picture; a sweep's has ``metrics``.

    Raises:
        InputError: such records have no picture, this one has nothing to draw, or the file cannot
            be written.
        MissingToolError: matplotlib is not installed.
    """
    _, figure = _shown(record)
    if figure is None:
        raise InputError(f"there is no plot of {record.format}, so {path} is not made; use --json.")
    plots.save(figure(record, **options), path)
