"""The rules of a part as plain code on a given clock: no I/O, no threads."""
