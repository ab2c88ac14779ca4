"""Runs a station under random faults and prints one table: what happened, what held."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from tests.soak.campaign import SoakPlan, SoakReport, soak  # noqa: E402
from tests.soak.memory import rise  # noqa: E402

_SHOWN = 10


def main() -> int:
    """Run the soak; return 0 if everything held, 1 if something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=36_000.0, help="end earlier after this")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep everything in this new folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(SoakPlan(folder, chosen.parts, chosen.seconds, chosen.seed, chosen.pause))
    print_table(report, chosen.seed)
    return int(not report.held)


def print_table(report: SoakReport, seed: int) -> None:
    """Print what happened and what was checked."""
    print(f"{'what happened':36}{'times':>8}   (seed {seed}, {report.seconds:.0f} s)")
    for name, times in sorted({**report.happened, **_named(report.verdicts)}.items()):
        print(f"{name:36}{times:8}")
    print("\nmemory in MB in each ninth of the run, and its rise from the second third to the last")
    for name, sizes in report.memory.items():
        print(f"{name:12}" + "".join(f"{size:8.1f}" for size in sizes) + f"{rise(sizes):+10.2f}")
    print(f"\n{'what must hold':36}{'checked':>8}{'broken':>8}")
    for outcome in report.outcomes:
        print(f"{outcome.name:36}{outcome.tried:8}{len(outcome.broken):8}")
        for text in outcome.broken[:_SHOWN]:
            print(f"BROKEN {outcome.name}: {text}", file=sys.stderr)


def _named(verdicts: dict[str, int]) -> dict[str, int]:
    return {f"verdict: {verdict}": times for verdict, times in verdicts.items()}


if __name__ == "__main__":
    sys.exit(main())
