"""The course lab: a switch and workers that students write, and what checks them; see ``check``."""

from __future__ import annotations

from innet.lab.check import CheckedLevel, LabReport, check
from innet.lab.findings import LabFinding
from innet.lab.folder import new_folder
from innet.lab.switch_part import commands

__all__ = ["CheckedLevel", "LabFinding", "LabReport", "check", "commands", "new_folder"]
