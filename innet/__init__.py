"""innet: an in-network aggregation emulator with a programmable switch model."""
