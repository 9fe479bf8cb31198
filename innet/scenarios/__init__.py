"""What is simulated or measured: all-reduces, jobs, traffic, sweeps, and what they are made of."""
