"""Selectors: which coordinates go this time. One file each."""
