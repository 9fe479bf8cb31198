"""Plans of networks and jobs, as data, and their emulation in memory."""

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
    make_plan,
    next_epoch_plan,
    plan_jobs,
)
from innet.topology.emulation import AdmittedJob, EmulatedNetwork, JobRound, default_timing
from innet.topology.plan import Plan, PlannedHost, PlannedLink, PlannedSwitch, Port, SharedPlan
from innet.topology.topologies import (
    TOPOLOGIES,
    Shape,
    Topology,
    TreeNode,
    topology_of,
    with_bottleneck,
)

__all__ = [
    "AGGREGATIONS",
    "TOPOLOGIES",
    "AdmittedJob",
    "Aggregation",
    "EmulatedNetwork",
    "JobRound",
    "Plan",
    "PlannedHost",
    "PlannedLink",
    "PlannedSwitch",
    "Port",
    "Probe",
    "RegisterReader",
    "Request",
    "Shape",
    "SharedPlan",
    "Topology",
    "TreeNode",
    "WorkerEnd",
    "aggregation_of",
    "check_codec",
    "check_conditions",
    "default_timing",
    "make_plan",
    "next_epoch_plan",
    "plan_jobs",
    "topology_of",
    "with_bottleneck",
]
