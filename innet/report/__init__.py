"""Records and reports made readable: tables, plots, progress. Nothing here imports an engine."""
