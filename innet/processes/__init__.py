"""Programs that run on hosts; each imports innet and is started with ``python -m workers.NAME``."""
