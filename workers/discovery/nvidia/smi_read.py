"""Makes cards of a long answer of nvidia-smi and of its list, each under the driver's number."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu, MigInstance
from workers.discovery.nvidia import words
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.smi_gpu import read_card
from workers.discovery.nvidia.smi_list import ListedCard, ListedInstance
from workers.discovery.nvidia.smi_tree import Tree

NAME: Final = "nvidia-smi"


class Known(NamedTuple):
    """What tells the numbers of cards."""

    listed: tuple[ListedCard, ...] = ()
    order: tuple[str, ...] = ()
    """Addresses, as the driver numbers them."""
    dead: frozenset[int] = frozenset()
    """Numbers of cards that are not told of."""


def cards_of(tree: Tree, known: Known) -> Cards:
    """Return the cards that a long answer tells of."""
    return Cards(driver_of(tree), *_read(tree.cards, known))


def cut_card(tree: Tree, known: Known) -> Cards:
    """Return the card in which an answer breaks off, as far as it came."""
    return Cards(driver_of(tree), *_read([] if tree.cut is None else [tree.cut], known))


def driver_of(tree: Tree) -> Driver:
    """Return what stands above the cards."""
    version, cuda = (words.known(tree.head.get(name)) for name in ("driver_version", "cuda_version"))
    return Driver(version=version, cuda_version=cuda, source=NAME, attached=tree.attached)


def listed_card(card: ListedCard) -> Gpu:
    """Return a card of which nothing but the list tells; that is no proof that it works."""
    return _named(Gpu(index=card.index, uuid=card.uuid, name=card.name), card)


def with_list(gpu: Gpu, listed: Sequence[ListedCard]) -> Gpu:
    """Give the instances of a card the UUIDs and profiles that only the list tells."""
    return _named(gpu, next((card for card in listed if card.uuid == gpu.uuid), None))


def _read(elements: Sequence[Element], known: Known) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    told = [read_card(element, "gpu")[0] for element in elements]
    listed = [_listed(gpu, place, told, known.listed) for place, gpu in enumerate(told)]
    gpus: list[Gpu] = []
    problems: list[Problem] = []
    for element, card, index in zip(elements, listed, _numbers(told, listed, known), strict=True):
        gpu, bad = read_card(element, f"gpu {index}")
        uuid = gpu.uuid or (card.uuid if card else None)
        gpus.append(_named(msgspec.structs.replace(gpu, index=index, uuid=uuid), card))
        problems.extend(bad)
    return tuple(gpus), tuple(problems)


def _listed(gpu: Gpu, place: int, told: Sequence[Gpu], listed: Sequence[ListedCard]) -> ListedCard | None:
    """Find a card in the list by its UUID; one that tells none by its place, if both tell of as many."""
    by_uuid = next((card for card in listed if card.uuid == gpu.uuid), None)
    if by_uuid or gpu.uuid or len(listed) != len(told):
        return by_uuid
    return None if any(other.uuid == listed[place].uuid for other in told) else listed[place]


def _numbers(told: Sequence[Gpu], listed: Sequence[ListedCard | None], known: Known) -> Iterator[int]:
    """Return the driver's number of each: as listed, else by its address, else the next that is no other's."""
    taken = {card.index for card in listed if card} | known.dead
    for gpu, card in zip(told, listed, strict=True):
        place = known.order.index(gpu.pci_address) if gpu.pci_address in known.order else None
        is_free = place is not None and place not in taken
        number = card.index if card else place if place is not None and is_free else _next(taken)
        taken.add(number)
        yield number


def _next(taken: Iterable[int]) -> int:
    used = set(taken)
    return next(number for number in count() if number not in used)


# --- instances ----------------------------------------------------------------------------------------------------


def _named(gpu: Gpu, listed: ListedCard | None) -> Gpu:
    """Join the instances that both tell of; one that only the list knows is added."""
    by_slot = {part.slot: part for part in listed.instances} if listed else {}
    told = {part.slot: part for part in gpu.instances}
    parts = [_joined(told.get(slot) or MigInstance(slot=slot), by_slot.get(slot)) for slot in sorted({*told, *by_slot})]
    # Where nothing but the list answers, that there are instances says which mode the card is in.
    is_cut = gpu.mig_enabled if gpu.mig_enabled is not None or not parts else True
    return msgspec.structs.replace(gpu, instances=tuple(parts), mig_enabled=is_cut)


def _joined(part: MigInstance, listed: ListedInstance | None) -> MigInstance:
    if listed is None:
        return part
    return msgspec.structs.replace(part, uuid=part.uuid or listed.uuid, profile=part.profile or listed.profile)
