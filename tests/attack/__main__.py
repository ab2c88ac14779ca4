"""Runs campaigns and prints one table: tried, held, broken."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from tests.attack.campaign import Tally, campaigns, run  # noqa: E402


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
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="campaigns at a time")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(every):
        parser.error(f"no campaign {', '.join(sorted(unknown))}")
    names = chosen.names or list(every)
    campaign = partial(run, seed=chosen.seed, short=chosen.short)
    found: dict[str, Tally] = {}
    # A campaign forks, sets signal handlers and preloads libraries: each has a new process.
    with get_context("spawn").Pool(chosen.jobs, maxtasksperchild=1) as pool:
        for name, tally, seconds in pool.imap_unordered(campaign, names):
            found[name] = tally
            print(f"{name}: {tally.tried} tried in {seconds:.0f} s", file=sys.stderr)
    rows = [(name, found[name]) for name in names]
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
