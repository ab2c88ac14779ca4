"""Compares a scorer with the reference, as `anoco_edge.scoring.agreement` does."""

from anoco_edge.scoring.agreement import EPS, Agreement, compare

__all__ = ["EPS", "Agreement", "compare"]
