"""A line-side program: judge every picture that another program drops into a folder.

    python examples/watch_folder.py line.anoco inbox/ --once

prints one line a picture, and exits with 1 unless every part was good, which is all a line
controller needs to know. Without --once it goes on until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from anoco_edge import AnocoError, Detector


def judge(detector: Detector, path: Path) -> bool:
    """Print the verdict; True when the part may pass."""
    try:
        result = detector.inspect(path)
    except AnocoError as error:
        print(f"{path.name}\tno verdict\t{error}")
        return False  # fail closed: what could not be inspected does not pass
    where = ""
    if result.regions:
        worst = result.regions[0]
        evidence = result.evidence(worst.row, worst.col)
        box = ",".join(f"{value:.0f}" for value in worst.box)
        where = f"at {box}, unlike {evidence.reference}"
    print(f"{path.name}\t{result.verdict}\t{result.ratio or 0:.2f}\t{where}")
    return result.verdict == "good"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("inbox", type=Path)
    parser.add_argument("--once", action="store_true", help="stop when the folder is done")
    options = parser.parse_args()

    detector = Detector.open(options.bundle)
    seen: set[Path] = set()
    passed = True
    while True:
        for path in sorted(set(options.inbox.glob("*.png")) - seen):
            seen.add(path)
            passed &= judge(detector, path)
        if options.once:
            return 0 if passed else 1
        time.sleep(0.2)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
