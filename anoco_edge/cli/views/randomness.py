"""A warning for bundles with random weights, which are for tests only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge.cli.console import warn

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle


def warn_if_random(bundle: Bundle) -> None:
    """Warn if the weights of the backbone are random numbers."""
    if bundle.manifest.backbone.weights.random:
        warn("the weights are random: this bundle is for tests, its verdicts mean nothing")
