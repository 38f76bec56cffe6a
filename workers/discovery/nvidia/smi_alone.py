"""Asks nvidia-smi for one card at a time, since one dead card can make it silent about all."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.gpus import Gpu
from workers import tools
from workers.discovery import pci
from workers.discovery.nvidia import smi_list, smi_tree
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.of_kernel import from_kernel, is_hidden
from workers.discovery.nvidia.smi_dead import dead_in
from workers.discovery.nvidia.smi_read import NAME, Known, cards_of, with_list
from workers.discovery.nvidia.smi_tree import Tree
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

_MOST: Final = 64
"""So many cards are asked for one by one at most."""
_HANGS: Final = 2
"""After so many that do not answer in time it is the driver that hangs, and not the card."""
_NONE: Final = "No devices were found"


class Alone(NamedTuple):
    """What came of it."""

    cards: Cards = Cards()
    hidden: frozenset[str] = frozenset()
    """Addresses of cards that are well, and not for this process."""


def by_address(machine: Machine, settings: NodeSettings, missing: Sequence[str], told: Cards, known: Known) -> Alone:
    """Ask for those that were not told of; from an answer that is about something else nothing is concluded."""
    found: list[Cards] = []
    hidden: set[str] = set()
    hangs = 0
    for address in missing[:_MOST]:
        answer = tools.ask(machine, settings, NAME, "-q", "-x", "-i", _long(address))
        if (one := _facts(machine, settings, answer, address, known)) is not None:
            found.append(one)
        elif _is_hidden(told, machine, address):
            hidden.add(address)
        elif words := _failure(answer, address):
            found.append(Cards(gpus=(msgspec.structs.replace(from_kernel(machine, address), failed=words),)))
        hangs += bool(answer.problem)
        if hangs == _HANGS:
            break
    return Alone(_together(found), frozenset(hidden))


def _facts(machine: Machine, settings: NodeSettings, answer: ToolResult, address: str, known: Known) -> Cards | None:
    tree = smi_tree.read(answer.out)
    own = [each for each in tree.cards if pci.canonical(each.get("id") or "") == address]
    cards = cards_of(Tree(tree.head, own), known)
    return _with_instances(machine, settings, cards, _long(address)) if own else None


def _failure(answer: ToolResult, address: str) -> str | None:
    """Return the words that the card which was asked for can do nothing, if the answer is about it."""
    said = f"{answer.out}\n{answer.err}"
    words = next((each.words for each in dead_in(said) if each.address in {None, address}), None)
    return words or (_NONE if _NONE in said else None) or answer.problem or None


def _is_hidden(told: Cards, machine: Machine, address: str) -> bool:
    """Tell whether the driver counts no more cards than it told of, and this one is kept from this process."""
    attached = told.driver.attached if told.driver else None
    return attached == len(told.gpus) and is_hidden(machine, from_kernel(machine, address), told.gpus)


def by_number(machine: Machine, settings: NodeSettings, known: Known) -> Cards:
    """Ask by number until one is no card's, where no address is known."""
    found: dict[str | None, Cards] = {}
    for number in range(_MOST):
        if number in known.dead:
            continue
        answer = tools.ask(machine, settings, NAME, "-q", "-x", "-i", str(number))
        one = _numbered(machine, settings, answer, number)
        key = one.gpus[0].uuid or one.gpus[0].pci_address if one else None
        if one is None:
            break
        if key in found:  # it says the same whatever the number
            found[key] = _without_numbers(found[key])
            break
        found[key] = one
    return _together([*found.values()])


def _without_numbers(cards: Cards) -> Cards:
    return Cards(cards.driver, tuple(msgspec.structs.replace(gpu, index=None) for gpu in cards.gpus), cards.problems)


def _numbered(machine: Machine, settings: NodeSettings, answer: ToolResult, number: int) -> Cards | None:
    tree = smi_tree.read(answer.out)
    if len(tree.cards) == 1:
        cards = cards_of(tree, Known(dead=frozenset(range(number))))
        return _with_instances(machine, settings, cards, str(number))
    dead = dead_in(f"{answer.out}\n{answer.err}")
    return Cards(gpus=(Gpu(index=number, pci_address=dead[0].address, failed=dead[0].words),)) if dead else None


def _with_instances(machine: Machine, settings: NodeSettings, cards: Cards, which: str) -> Cards:
    """Ask for the UUIDs of instances that the list of all cards did not tell."""
    if not any(part.uuid is None for gpu in cards.gpus for part in gpu.instances):
        return cards
    listed = smi_list.parse(tools.ask(machine, settings, NAME, "-L", "-i", which).out)
    return Cards(cards.driver, tuple(with_list(gpu, listed) for gpu in cards.gpus), cards.problems)


def _together(found: Sequence[Cards]) -> Cards:
    driver = next((cards.driver for cards in found if cards.driver), None)
    gpus = tuple(gpu for cards in found for gpu in cards.gpus)
    return Cards(driver, gpus, tuple(bad for cards in found for bad in cards.problems))


def _long(address: str) -> str:
    """Spell an address as nvidia-smi does."""
    return address.upper().rjust(16, "0")
