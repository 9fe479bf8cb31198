"""Runs that write versioned records. Nothing here draws or prints: ``innet.report`` does."""
