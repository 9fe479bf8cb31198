"""What a run leaves behind: reports, and the versioned records that plots and tables read.

An all-reduce returns a ``Report``. An experiment writes an ``ExperimentRecord``: JSON with a format
name, a version, the machine and every step of every run. Tables and plots are made from the record
alone, so that they can be made again later and elsewhere. Records of different machines refuse to
be merged: times of one and times of the other in one plot would compare nothing.
"""

from innet.records.experiment import ExperimentRecord, merge
from innet.records.files import DEMO, FORMATS, REPRODUCE, TRAIN, VERSION, format_of
from innet.records.machine import ACCURACY, HIT_RATE, PERPLEXITY, Machine, Metric
from innet.records.report import Report, Seconds
from innet.records.reproduction import Finding, Reproduction, Series
from innet.records.run import Progress, Run, Step, Watcher
from innet.records.throughput import Measurement, Point, ThroughputRecord

__all__ = [
    "ACCURACY",
    "DEMO",
    "FORMATS",
    "HIT_RATE",
    "PERPLEXITY",
    "REPRODUCE",
    "TRAIN",
    "VERSION",
    "ExperimentRecord",
    "Finding",
    "Machine",
    "Measurement",
    "Metric",
    "Point",
    "Progress",
    "Report",
    "Reproduction",
    "Run",
    "Seconds",
    "Series",
    "Step",
    "ThroughputRecord",
    "Watcher",
    "format_of",
    "merge",
]
