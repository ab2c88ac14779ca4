"""Reads and checks the options of the larger commands before any work is done."""
