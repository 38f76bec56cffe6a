"""How busy each endpoint is, which ones are left alone for a moment, and who takes the next request."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from llmgw.core.routing import Endpoint, ModelUnknown, NotServing, Table, pick
from llmgw.core.units import Seconds

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 10.0


@dataclass(slots=True)
class Suspension:
    """An endpoint that has failed: left out until then, and twice as long the next time."""

    since: Seconds
    pause: float
    until: Seconds
    reachable: bool = False
    """It takes connections again, but has not answered yet."""


class Balancer:
    """Counts requests under way and remembers failures, by launch id: a new start has a clean record."""

    def __init__(self) -> None:
        self._under_way: dict[str, int] = {}
        self._suspended: dict[str, Suspension] = {}
        self._turn = 0

    def choose(
        self, table: Table, model: str, tried: Collection[str], now: Seconds
    ) -> Endpoint | ModelUnknown | NotServing:
        """Pick the endpoint with the fewest requests under way, leaving out those tried or suspended."""
        self._turn += 1
        left_out = {*tried, *self.suspended(now)} if self._suspended or tried else ()
        chosen = pick(table, model, self.under_way, left_out, self._turn)
        if isinstance(chosen, Endpoint) and (trial := self._suspended.get(chosen.launch_id)):
            # One request tries it out; the others wait until it is known to take connections.
            trial.until = Seconds(0.0 if trial.reachable else now + trial.pause)
        return chosen

    def under_way(self, launch_id: str) -> int:
        """Return how many requests this endpoint has now."""
        return self._under_way.get(launch_id, 0)

    def enter(self, launch_id: str) -> None:
        """Count a request in."""
        self._under_way[launch_id] = self._under_way.get(launch_id, 0) + 1

    def leave(self, launch_id: str) -> None:
        """Count a request out."""
        left = self._under_way[launch_id] - 1
        if left:
            self._under_way[launch_id] = left
        else:
            del self._under_way[launch_id]

    def suspend(self, launch_id: str, now: Seconds) -> float:
        """Leave an endpoint alone that has failed; returns for how long.

        Many requests see the same failure: only one that comes after the pause makes the next pause longer.
        """
        before = self._suspended.get(launch_id)
        if before and now < before.since + before.pause:
            before.until, before.reachable = Seconds(before.since + before.pause), False
            return before.pause
        pause = min(before.pause * 2, LONGEST_PAUSE_S) if before else FIRST_PAUSE_S
        self._suspended[launch_id] = Suspension(now, pause, Seconds(now + pause))
        return pause

    def reached(self, launch_id: str) -> None:
        """It takes connections: no need to keep the others waiting, but it has proved nothing yet."""
        if trial := self._suspended.get(launch_id):
            trial.until, trial.reachable = Seconds(0.0), True

    def answered(self, launch_id: str) -> None:
        """It has answered: forgive and forget."""
        self._suspended.pop(launch_id, None)

    def suspended(self, now: Seconds) -> set[str]:
        """Return the launch ids that are left alone now."""
        return {launch_id for launch_id, pause in self._suspended.items() if pause.until > now}

    def forget_all_but(self, launch_ids: Collection[str]) -> None:
        """Drop the record of endpoints that the table no longer names."""
        self._suspended = {one: pause for one, pause in self._suspended.items() if one in launch_ids}
