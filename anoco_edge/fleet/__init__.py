"""Distributes work over a Ray cluster, and keeps a journal of what is done."""
