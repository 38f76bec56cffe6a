"""Which profiles of a model fit on which classes of a fleet: now, if it were empty, or never."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from llmgw.core.estimates.fit import longest_context, usable
from llmgw.core.placement import Fleet, Refusals, fitting, place
from llmgw.core.units import Bytes, ReplicaId
from llmgw.core.wanted import Demand, Model, Profile
from llmgw.core.world import ClusterSnapshot

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Fit:
    """One profile on one class."""

    profile: str
    device_class: str
    now: int
    """So many more replicas have a place."""
    empty: int
    """So many had one if nothing ran."""
    needs: Bytes
    """Of one device; 0 where it is not known."""
    longest_context: int | None
    """Tokens of one request that the largest device of the class has room for; None where it is not known."""
    why: str = ""
    """The code of what stands against it most often, where there is no place."""
    text: str = ""

    @property
    def verdict(self) -> str:
        """Say it in words: `fits now`, `fits if empty`, `never`."""
        return "fits now" if self.now else "fits if empty" if self.empty else "never"

    def to_json(self) -> dict[str, Any]:
        """Return the printed shape."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**facts, "verdict": self.verdict}


def fits(snapshot: ClusterSnapshot, model: Model) -> tuple[Fit, ...]:
    """Try every profile on every class that it names."""
    bare = replace(snapshot, replicas=(), strays=())
    return tuple(
        _fit(snapshot, bare, model, replace(profile, device_classes=(name,)))
        for profile in model.profiles
        for name in profile.device_classes
    )


def _fit(snapshot: ClusterSnapshot, bare: ClusterSnapshot, model: Model, profile: Profile) -> Fit:
    demand = Demand(model, profile)
    now, empty = _room(snapshot, demand), _room(bare, demand)
    code, text = ("", "") if now else _against(snapshot if empty else bare, demand)
    name = profile.device_classes[0]
    return Fit(profile.name, name, now, empty, demand.memory, _longest(snapshot, demand, name), code, text)


def _room(snapshot: ClusterSnapshot, demand: Demand) -> int:
    fleet = Fleet(snapshot)
    for number in range(_MOST):
        found = fitting(fleet, demand)
        if found is None:
            return number
        for part in found.parts:
            fleet.claim(part.node, part.devices, ReplicaId(f"{demand.model.name}/+{number}"), demand.model.name)
    return _MOST


def _against(snapshot: ClusterSnapshot, demand: Demand) -> tuple[str, str]:
    """Return what speaks most often against it, but for nodes that have none of the class."""
    found = place(snapshot, demand)
    refused = found.refused if isinstance(found, Refusals) else ()
    telling = [no for no in refused if no.refusal.code != "class.mismatch"] or list(refused)
    counts = Counter(no.refusal.code for no in telling)
    code = counts.most_common(1)[0][0] if counts else ""
    return code, next((no.refusal.text() for no in telling if no.refusal.code == code), "")


def _longest(snapshot: ClusterSnapshot, demand: Demand, device_class: str) -> int | None:
    sizes = [d.memory for node in snapshot.nodes for d in node.devices if d.device_class == device_class]
    facts = demand.model.facts
    if facts is None or not sizes:
        return None
    told = longest_context(facts, demand.split, usable(max(sizes)))
    return told if isinstance(told, int) else None
