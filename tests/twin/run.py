"""One history, from its seed or its file; and of a broken one, the shortest that breaks the same."""

import json
import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.twin.fleets import Scene, a_scene
from tests.twin.history import Dice, Event, Twin

LONGEST = 60


@dataclass
class Played:
    """One history, and what it broke."""

    seed: int
    scene: Scene
    events: list[Event] = field(default_factory=list)
    broken: str = ""
    where: str = ""
    passes: int = 0
    until_rest: int = 0

    @property
    def promise(self) -> str:
        """Name what was broken without its particulars, so that a shorter history breaks the same."""
        return self.broken.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        """Return what can be played again."""
        scene = msgspec.to_builtins(self.scene)
        return {"seed": self.seed, "broken": self.broken, "where": self.where, "events": self.events, "scene": scene}


def play(seed: int) -> Played:
    """Draw a history and let it happen."""
    dice = random.Random(seed)  # noqa: S311 - the same seed is to tell the same history
    played = Played(seed, a_scene(dice))
    drawn = Dice(dice)
    many = dice.randint(10, LONGEST)
    return _run(played, lambda twin, count: drawn.draw(twin) if count < many else None)


def again(scene: Scene, events: Sequence[Event], seed: int = 0) -> Played:
    """Let a history happen that was drawn before."""
    return _run(Played(seed, scene), lambda _, count: events[count] if count < len(events) else None)


def _run(played: Played, next_event: Any) -> Played:
    twin = Twin(played.scene)
    try:
        while (event := next_event(twin, len(played.events))) is not None:
            played.events.append(event)
            twin.happen(event)
        played.until_rest = twin.settle()
    except Exception as broken:  # noqa: BLE001 - whatever a history brings up is what we look for
        told = str(broken) if isinstance(broken, AssertionError) else f"{type(broken).__name__}: {broken}"
        played.broken, played.where = told, traceback.format_exc(limit=-3)
    played.passes = twin.passes + played.until_rest
    return played


def shortened(played: Played) -> Played:
    """Leave out all events without which the same promise is still broken."""
    size = max(len(played.events) // 2, 1)
    while size:
        at = 0
        while at < len(played.events):
            shorter = again(played.scene, played.events[:at] + played.events[at + size :], played.seed)
            if shorter.promise == played.promise:
                played = shorter
            else:
                at += size
        size //= 2
    return played


def write(played: Played, folder: Path) -> Path:
    """Keep a history."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"twin-{played.seed}.json"
    file.write_text(json.dumps(played.to_json(), indent=1) + "\n")
    return file


def read(file: Path) -> Played:
    """Play a history that was kept."""
    kept = json.loads(file.read_text())
    return again(msgspec.convert(kept["scene"], Scene), kept["events"], kept["seed"])
