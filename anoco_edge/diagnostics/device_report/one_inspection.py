"""Inspects one picture twice in a process of its own, for tools that watch a whole process.

    python -m anoco_edge.diagnostics.device_report.one_inspection BUNDLE PRODUCT ENGINE SCORER \
        RUNTIME PICTURE

The second time everything is warm, and CUDA graphs are launched if there are such.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from anoco_edge.detector import Detector
from anoco_edge.pipeline.base import Runtime


def main(arguments: Sequence[str]) -> None:
    """Open the detector and inspect."""
    bundle, product, engine, scorer, runtime, picture = arguments
    detector = Detector.open(
        bundle, product, engine, scorer, runtime=cast(Runtime, runtime), allow_random=True
    )
    for _ in range(2):
        detector.inspect(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
