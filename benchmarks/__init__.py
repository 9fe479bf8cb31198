"""Speed, as ratios of what was measured side by side in one run. Never part of the tests."""
