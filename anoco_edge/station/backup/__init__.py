"""Backups of a station: a consistent copy of all that it is, made while it runs."""
