"""Prints the results of commands: tables, progress and sentences."""
