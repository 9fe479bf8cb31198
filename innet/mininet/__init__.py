"""Mininet networks for innet. Only this package imports Mininet."""
