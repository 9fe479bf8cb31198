"""Error feedback: what happens to what was not sent. One file each."""
