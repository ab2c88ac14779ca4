"""A whole station under random faults for many parts: `python -m tests.soak --help`."""
