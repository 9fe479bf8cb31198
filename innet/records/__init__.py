"""What a run leaves behind: reports, and the versioned records that plots and tables read.

An all-reduce returns a ``Report``. An experiment writes a ``Record``: JSON with a format name, a
version, the machine and every step of every run. Tables and plots are made from the record alone,
so that they can be made again later and elsewhere. Records of different machines refuse to be
merged: times of one and times of the other in one plot would compare nothing.

``Record.load`` reads any record; ``schema`` describes all of them.
"""

from typing import Any

from innet.records.jobs import JOBS, ClusterUse, JobRun, JobsRecord
from innet.records.prediction import PREDICTION, NetworkRun, PredictionRecord
from innet.records.record import VERSION, Machine, Record
from innet.records.recording import (
    RECORDING,
    RecordedLink,
    RecordedNode,
    RecordingRecord,
)
from innet.records.report import VERBATIM, Fabric, Report, Seconds, Simulated
from innet.records.reproduction import REPRODUCE, Finding, ReproductionRecord, Series
from innet.records.simulation import SIMULATION, Bucket, Iteration, SimulationRecord
from innet.records.sweep import (
    SWEEP,
    Axis,
    PointRecord,
    SweepFailure,
    SweepPoint,
    SweepRecord,
)
from innet.records.throughput import THROUGHPUT, Measurement, Point, ThroughputRecord
from innet.records.traffic import (
    TRAFFIC,
    FlowTraffic,
    HostTraffic,
    LinkTraffic,
    QueueTraffic,
    SwitchTraffic,
    TrafficRecord,
)
from innet.records.training import (
    ACCURACY,
    DEMO,
    HIT_RATE,
    PERPLEXITY,
    TRAIN,
    Metric,
    Progress,
    Run,
    SimulatedTime,
    Step,
    TrainingRecord,
    Watcher,
    merge,
)

__all__ = [
    "ACCURACY",
    "DEMO",
    "HIT_RATE",
    "JOBS",
    "PERPLEXITY",
    "PREDICTION",
    "RECORDING",
    "REPRODUCE",
    "SIMULATION",
    "SWEEP",
    "THROUGHPUT",
    "TRAFFIC",
    "TRAIN",
    "VERBATIM",
    "VERSION",
    "Axis",
    "Bucket",
    "ClusterUse",
    "Fabric",
    "Finding",
    "FlowTraffic",
    "HostTraffic",
    "Iteration",
    "JobRun",
    "JobsRecord",
    "LinkTraffic",
    "Machine",
    "Measurement",
    "Metric",
    "NetworkRun",
    "Point",
    "PointRecord",
    "PredictionRecord",
    "Progress",
    "QueueTraffic",
    "Record",
    "RecordedLink",
    "RecordedNode",
    "RecordingRecord",
    "Report",
    "ReproductionRecord",
    "Run",
    "Seconds",
    "Series",
    "Simulated",
    "SimulatedTime",
    "SimulationRecord",
    "Step",
    "SweepFailure",
    "SweepPoint",
    "SweepRecord",
    "SwitchTraffic",
    "ThroughputRecord",
    "TrafficRecord",
    "TrainingRecord",
    "Watcher",
    "merge",
    "schema",
]


def schema() -> dict[str, Any]:
    """The JSON schema of every record, and of the report that ``innet allreduce --json`` prints."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - only this function needs it

    every = TypeAdapter[Any](
        TrainingRecord
        | ReproductionRecord
        | ThroughputRecord
        | SimulationRecord
        | SweepRecord
        | PointRecord
        | TrafficRecord
        | PredictionRecord
        | JobsRecord
        | RecordingRecord
        | Report
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Records and reports of innet",
        **every.json_schema(mode="serialization"),
    }
