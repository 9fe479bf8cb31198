"""What papers claim: criteria as data, kinds of measurement, and verdicts (``innet reproduce``)."""
