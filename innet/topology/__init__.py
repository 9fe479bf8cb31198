"""What a job on a network needs, as data, and how it is carried out in memory."""

from innet.topology.aggregation import (
    AGGREGATIONS,
    Aggregation,
    Probe,
    RegisterReader,
    Request,
    WorkerEnd,
    aggregation_of,
    check_codec,
    check_conditions,
    following,
    make_plan,
)
from innet.topology.emulation import Emulation
from innet.topology.plan import Link, Plan, PlannedHost, PlannedSwitch, Port
from innet.topology.sharing import SharedPlan, plan_jobs

__all__ = [
    "AGGREGATIONS",
    "Aggregation",
    "Emulation",
    "Link",
    "Plan",
    "PlannedHost",
    "PlannedSwitch",
    "Port",
    "Probe",
    "RegisterReader",
    "Request",
    "SharedPlan",
    "WorkerEnd",
    "aggregation_of",
    "check_codec",
    "check_conditions",
    "following",
    "make_plan",
    "plan_jobs",
]
