"""Quantizers: float32 to integers and back. One file each."""
