"""Makes text from outside safe to show: control characters are escaped, passwords masked."""
