"""Networks to run innet in. Nothing but this package imports Mininet."""
