"""Examines the machine: what is installed, how fast it runs, what a device computes."""
