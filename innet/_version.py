"""The version, for those who would import the whole package for it."""

__version__ = "0.2.0"
