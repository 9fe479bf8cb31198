"""The topologies that innet has, one in each file."""
