"""Runs campaigns and prints one table: tried, held, broken."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from tests.attack.campaign import Plan, Tally, campaigns  # noqa: E402


def main() -> int:
    """Run the chosen campaigns; return 0 if everything held, 1 if something broke."""
    every = campaigns()
    listing = "\n".join(f"  {name:14} {_title(one)}" for name, one in every.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack",
        description=__doc__,
        epilog=f"campaigns:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="as `make test` runs it")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(every):
        parser.error(f"no campaign {', '.join(sorted(unknown))}")
    rows = []
    for name in chosen.names or every:
        started, tally = time.monotonic(), Tally()
        with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as folder:
            for case in every[name].cases(Plan(Path(folder), chosen.seed, chosen.short)):
                tally.count(case)
                if case.broken:
                    print(f"BROKEN {name} / {case.name}: {case.broken}", file=sys.stderr)
        seconds = time.monotonic() - started
        rows.append((name, tally))
        print(f"{name}: {tally.tried} tried in {seconds:.0f} s", file=sys.stderr)
    print_table(rows, chosen.seed)
    return int(any(tally.broken or not (tally.tried or tally.not_executed) for _, tally in rows))


def print_table(rows: list[tuple[str, Tally]], seed: int) -> None:
    """Print one line for each campaign, and the sums."""
    total = Tally(sum(t.tried for _, t in rows), sum(t.broken for _, t in rows))
    print(f"{'campaign':16}{'tried':>8}{'held':>8}{'broken':>8}   (seed {seed})")
    for name, tally in [*rows, ("total", total)]:
        print(f"{name:16}{tally.tried:8}{tally.held:8}{tally.broken:8}")
    for name, tally in rows:
        for what in tally.not_executed:
            print(f"not executed here: {name} / {what}")


def _title(module: object) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
