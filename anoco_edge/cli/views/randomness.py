"""Random weights are for tests: whoever touches such a bundle is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anoco_edge.cli.console import warn

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle


def warn_if_random(bundle: Bundle) -> None:
    """Say it, if the backbone's weights are random numbers."""
    if bundle.manifest.backbone.weights.random:
        warn("the weights are random: this bundle is for tests, its verdicts mean nothing")
