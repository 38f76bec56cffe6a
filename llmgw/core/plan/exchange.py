"""Gives a start of the same pass another place, where that makes room for one that has none.

Nothing runs yet of what a pass starts, so nothing is lost by it. A model that may run on several classes, or by several
profiles, takes the first that fits; only later is it seen that somebody else could have used nothing but that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from llmgw.core.placement import Fleet, Placement, fitting
from llmgw.core.plan.actions import Action, Start
from llmgw.core.wanted import Demand, Model

_MOST_TRIED: Final = 16
"""For each that has no place, so many starts are tried to be moved: the latest, which are the easiest to place."""


@dataclass(slots=True)
class _Begun:
    """One start, and where it stands among its model's actions."""

    model: Model
    actions: list[Action]
    at: int
    start: Start


class Exchange:
    """The starts of one pass that could go elsewhere."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._begun: list[_Begun] = []

    def begin(self, model: Model, actions: list[Action], start: Start) -> None:
        """Add a start to its model's actions, and remember it; one that has no choice is of no use here."""
        if sum(len(profile.device_classes) for profile in model.profiles) > 1:
            self._begun.append(_Begun(model, actions, len(actions), start))
        actions.append(start)

    def make_room(self, model: Model, demands: Sequence[Demand]) -> tuple[Demand, Placement] | None:
        """Move one start of an equal priority so that one of these demands fits; its place is claimed by nobody yet."""
        wanted = {name for demand in demands for name in demand.profile.device_classes}
        equal = [one for one in reversed(self._begun) if one.model.priority == model.priority and one.model != model]
        for one in equal[:_MOST_TRIED]:
            if self._is_on(one.start, wanted) and (found := self._moved(one, demands)):
                return found
        return None

    def _is_on(self, start: Start, classes: set[str]) -> bool:
        first = start.shards[0]
        devices = self._fleet.by_name[first.node].devices
        return any(device.id in first.devices and device.device_class in classes for device in devices)

    def _moved(self, one: _Begun, demands: Sequence[Demand]) -> tuple[Demand, Placement] | None:
        """Try it: the newcomer first, then the start that gave way; without a place for both nothing has changed."""
        before = one.start
        self._leave(before, one.model)
        found = _first(self._fleet, demands)
        elsewhere = self._with(found[1], one.model) if found else None
        if found is None or elsewhere is None:
            self._take(before, one.model)
            return None
        demand, place = elsewhere
        fingerprint = one.model.fingerprint(demand.profile)
        one.start = one.actions[one.at] = replace(
            before, profile=place.profile, fingerprint=fingerprint, shards=place.parts, fabric=place.fabric
        )
        self._take(one.start, one.model)
        return found

    def _with(self, found: Placement, model: Model) -> tuple[Demand, Placement] | None:
        """Look for another place while the newcomer holds its own."""
        for part in found.parts:
            self._fleet.claim(part.node, part.devices, "the newcomer", model.name)
        elsewhere = _first(self._fleet, [Demand(model, profile) for profile in model.profiles])
        for part in found.parts:
            self._fleet.release(part.node, part.devices, "the newcomer", model.name)
        return elsewhere

    def _leave(self, start: Start, model: Model) -> None:
        for part in start.shards:
            self._fleet.release(part.node, part.devices, start.replica, model.name)

    def _take(self, start: Start, model: Model) -> None:
        for part in start.shards:
            self._fleet.claim(part.node, part.devices, start.replica, model.name)


def _first(fleet: Fleet, demands: Sequence[Demand]) -> tuple[Demand, Placement] | None:
    return next(((demand, found) for demand in demands if (found := fitting(fleet, demand))), None)
