"""Programs that run on hosts, each started with ``python -m innet.processes.NAME``."""
