"""The switch as a service over UDP, for workers that are processes anywhere: ``join`` a job."""

from innet.service.client import Membership, join

__all__ = ["Membership", "join"]
