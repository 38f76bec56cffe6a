"""Plays histories by the thousand, or one that was kept: `python -m tests.twin --seeds 5000 --from 1`."""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.twin.run import Played, play, read, shortened, write


def main() -> int:
    """Play, print, and keep what breaks."""
    parser = argparse.ArgumentParser(prog="python -m tests.twin", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories (%(default)s)")
    parser.add_argument("--from", type=int, default=None, dest="first", help="the first seed; drawn if not given")
    parser.add_argument("--stop-after", type=int, default=5, help="broken histories until it ends (%(default)s)")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "llmgw-twin", help="%(default)s")
    parser.add_argument("--replay", type=Path, help="play this kept history, and no other")
    asked = parser.parse_args()
    if asked.replay:
        played = read(asked.replay)
        sys.stdout.write(f"{played.broken or 'nothing is broken'}\n{played.where}")
        return 1 if played.broken else 0
    first = random.SystemRandom().randrange(10**9) if asked.first is None else asked.first
    sys.stdout.write(f"from seed {first}\n")
    return many(first, asked.seeds, asked.stop_after, asked.keep)


def many(first: int, seeds: int, stop_after: int, folder: Path) -> int:
    """Play one seed after the other."""
    begun, broken, passes, longest = time.perf_counter(), 0, 0, 0
    seed = first
    for seed in range(first, first + seeds):
        played = play(seed)
        passes, longest = passes + played.passes, max(longest, played.until_rest)
        if played.broken:
            broken += 1
            tell(played, folder)
            if broken == stop_after:
                break
    count = seed - first + 1
    took = time.perf_counter() - begun
    told = {"seeds": count, "broken": broken, "passes": passes, "most_passes_until_rest": longest}
    sys.stdout.write(json.dumps({**told, "seconds": round(took, 1), "per_minute": round(count / took * 60)}) + "\n")
    return 1 if broken else 0


def tell(played: Played, folder: Path) -> None:
    """Print a broken history, and keep its shortest form."""
    shorter = shortened(played)
    file = write(shorter, folder)
    sys.stdout.write(f"seed {played.seed}: {shorter.broken}\n")
    for event in shorter.events:
        sys.stdout.write(f"    {json.dumps(event)}\n")
    sys.stdout.write(f"  kept: python -m tests.twin --replay {file}\n")


if __name__ == "__main__":
    raise SystemExit(main())
