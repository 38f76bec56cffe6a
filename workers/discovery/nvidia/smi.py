"""Asks nvidia-smi for the cards: XML joined with the list, then text, csv, and each alone, until all are told of."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu, NvLink
from workers import tools
from workers.discovery import pci
from workers.discovery.nvidia import smi_alone, smi_csv, smi_list, smi_tree
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.of_kernel import from_kernel, kernel_order
from workers.discovery.nvidia.pci_cards import cards_on_pci
from workers.discovery.nvidia.smi_dead import Dead, dead_in
from workers.discovery.nvidia.smi_failure import failure_of
from workers.discovery.nvidia.smi_read import NAME, Known, cards_of, cut_card, listed_card, with_list
from workers.discovery.nvidia.smi_tree import Tree
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

_ON_BUS: Final = re.compile(r"(\S+) .*?(?:\b030[02]\b|3D controller|VGA compatible controller)")
"""A line of `lspci -n`, or with names: the classes of NVIDIA's cards."""
_INFOROM: Final = re.compile(r"infoROM is corrupted at gpu ([0-9A-Fa-f:.]+)", re.IGNORECASE)
UNANSWERED: Final = "nvidia-smi does not answer for it"
"""What is said of a card that nvidia-smi counts, or hung at, and tells nothing of."""


def ask(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask, and return all cards that could be told of, with what could not."""
    answer = tools.ask(machine, settings, NAME, "-q", "-x")
    tree, said = smi_tree.read(answer.out), f"{answer.out}\n{answer.err}"
    if answer.problem:
        return _broken_off(machine, tree, answer)
    failure = None if tree.cards or tree.cut is not None or dead_in(said) else failure_of(answer, machine)
    if failure is not None:
        if failure.is_final:
            return failure.cards
        said = tools.ask(machine, settings, NAME, "-q").out
        tree = smi_tree.read(said)
    cards = _told(machine, settings, tree, said)
    if failure is None:
        return _with_more(machine, settings, cards, said)
    return _after(failure.problem, _with_more(machine, settings, cards, said)) if cards.gpus else failure.cards


def _after(problem: Problem, cards: Cards) -> Cards:
    return Cards(cards.driver, cards.gpus, (problem, *cards.problems), cards.is_known)


def _broken_off(machine: Machine, tree: Tree, answer: ToolResult) -> Cards:
    """Keep what was told before nvidia-smi hung; asking on would hang as well."""
    failure = failure_of(answer, machine)
    if not tree.cards:
        return failure.cards
    known = Known(order=kernel_order(machine))
    return _after(failure.problem, _with_the_untold(machine, cards_of(tree, known), known.order, UNANSWERED))


# --- one look after another ---------------------------------------------------------------------------------------


def _told(machine: Machine, settings: NodeSettings, tree: Tree, said: str) -> Cards:
    """Return all cards: those of the long answer, and what further looks tell of others while some are missing."""
    listing = tools.ask(machine, settings, NAME, "-L")
    dead = sorted(dead_in(f"{said}\n{listing.out}\n{listing.err}"), key=lambda each: each.index is None)
    order = _order(machine, settings, tree, dead)
    known = Known(smi_list.parse(listing.out), order, frozenset(each.index for each in dead if each.index is not None))
    cards = _plus(Cards(), cards_of(tree, known), order)
    if dead and not cards.gpus and not order:
        cards = _plus(cards, smi_alone.by_number(machine, settings, known), order)
    cards = _with_the_dead(machine, cards, dead, order)
    alone = smi_alone.by_address(machine, settings, _missing(cards, order), cards, known)
    cards = _plus(cards, alone.cards, order)
    # A card that is left out of an answer that came to its end can tell nothing of itself.
    silent = UNANSWERED if tree.whole and tree.cards else None
    if _is_short(cards, tree):
        cards = _plus(cards, _by_table(machine, settings, known), order)
    if _is_short(cards, tree):
        cards = _plus(cards, _by_list(machine, known, silent), order)
    torn = _plus(cards, cut_card(tree, known), order)
    shown = [address for address in order if address not in alone.hidden]
    return _accounted(_with_the_untold(machine, torn, shown, silent), tree, is_cut=len(torn.gpus) > len(cards.gpus))


def _is_short(cards: Cards, tree: Tree) -> bool:
    attached = cards.driver.attached if cards.driver else None
    if attached is None:
        return tree.is_short or not cards.gpus
    return len(cards.gpus) < attached


def _missing(cards: Cards, order: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that are not told of; where nothing is, it is not the single card that is silent."""
    there = {gpu.pci_address for gpu in cards.gpus}
    return tuple(address for address in order if address not in there) if cards.gpus else ()


def _by_table(machine: Machine, settings: NodeSettings, known: Known) -> Cards:
    short = smi_csv.ask(machine, settings)
    return Cards(short.driver, tuple(with_list(gpu, known.listed) for gpu in short.gpus), short.problems)


def _by_list(machine: Machine, known: Known, silent: str | None) -> Cards:
    """Return the cards of the list, with the addresses under which the kernel has them."""
    written: Mapping[str | None, str | None] = {
        card.uuid: card.pci_address for address in known.order if (card := from_kernel(machine, address)).uuid
    }
    listed = (listed_card(card) for card in known.listed)
    gpus = tuple(msgspec.structs.replace(gpu, pci_address=written.get(gpu.uuid), failed=silent) for gpu in listed)
    return Cards(Driver(source=NAME) if gpus else None, gpus)


def _with_the_untold(machine: Machine, cards: Cards, order: Sequence[str], silent: str | None) -> Cards:
    """Add the cards that the kernel module has and that nothing else tells of."""
    missing = _missing(cards, order)
    untold = tuple(msgspec.structs.replace(from_kernel(machine, address), failed=silent) for address in missing)
    return _plus(cards, Cards(gpus=untold, problems=tuple(map(_untold, missing))), order)


def _untold(address: str) -> Problem:
    fact = f"gpu {address}"
    text = f"{fact}: the kernel module has taken it and nvidia-smi tells nothing of it; look at the kernel log"
    return Problem(code="nvidia-smi.untold", fact=fact, text=text)


def _accounted(cards: Cards, tree: Tree, *, is_cut: bool) -> Cards:
    """Say how many cards are not even known by name, or only in part."""
    attached = cards.driver.attached if cards.driver else None
    missing = max(0, (attached or 0) - len(cards.gpus))
    if missing:
        which = f"{missing} of the {attached} cards that it counts are not in it"
    elif is_cut:
        which = "the last card is not in it in full"
    elif tree.cards and not tree.whole and attached is None:
        which = "it is not known how many cards are not in it"
    else:
        return cards
    text = f"nvidia-smi's answer breaks off: {which}"
    lost = Problem(code="nvidia-smi.truncated", fact="gpus", text=text)
    return Cards(cards.driver, cards.gpus, (*cards.problems, lost), cards.is_known)


# --- cards without a handle ---------------------------------------------------------------------------------------


def _order(machine: Machine, settings: NodeSettings, tree: Tree, dead: Sequence[Dead]) -> tuple[str, ...]:
    """Return the addresses of all cards in the driver's order, dead ones too."""
    told = tuple(address for card in tree.cards if (address := pci.canonical(card.get("id") or "")))
    by_others = (told or _order_on_bus(machine, settings)) if dead and all(each.address for each in dead) else ()
    order = kernel_order(machine) or by_others
    new = {each.address for each in dead if each.address and _nearest(each.address, order) is None}
    return tuple(sorted({*order, *new})) if order else ()


def _nearest(address: str, order: Sequence[str]) -> str | None:
    """Return an address as the kernel has it; some builds of nvidia-smi print a device number that is none."""
    if address in order:
        return address
    same_bus = [each for each in order if each[:-4] == address[:-4]]
    return same_bus[0] if len(same_bus) == 1 else None


def _with_the_dead(machine: Machine, cards: Cards, dead: Sequence[Dead], order: Sequence[str]) -> Cards:
    """Add the cards that have no handle, or mark them where they are told of all the same."""
    gpus = list(cards.gpus)
    lost: list[Gpu] = []
    for each in dead:
        address = _address(each, order, {gpu.pci_address for gpu in gpus})
        place = next((place for place, gpu in enumerate(gpus) if address and gpu.pci_address == address), None)
        if place is not None:
            gpus[place] = msgspec.structs.replace(gpus[place], failed=gpus[place].failed or each.words)
        elif address or each.index is not None:
            lost.append(msgspec.structs.replace(from_kernel(machine, address), index=each.index, failed=each.words))
    return _plus(Cards(cards.driver, tuple(gpus), cards.problems), Cards(gpus=tuple(lost)), order)


def _address(dead: Dead, order: Sequence[str], told: Collection[str | None]) -> str | None:
    if dead.address:
        return _nearest(dead.address, order) or dead.address
    by_number = order[dead.index] if dead.index is not None and dead.index < len(order) else None
    return None if by_number in told else by_number


def _order_on_bus(machine: Machine, settings: NodeSettings) -> tuple[str, ...]:
    """Return the addresses of the cards on PCI that the driver has, by sysfs, else by lspci."""
    taken = tuple(card.address for card in cards_on_pci(machine) if card.driver == "nvidia")
    if taken:
        return taken
    out = tools.ask(machine, settings, "lspci", "-D", "-n", "-d", "10de:").out
    found = (_ON_BUS.match(line) for line in out.splitlines())
    return tuple(sorted(address for line in found if line and (address := pci.canonical(line[1]))))


# --- putting together ---------------------------------------------------------------------------------------------


def _plus(cards: Cards, more: Cards, order: Sequence[str]) -> Cards:
    """Add the cards that are not told of yet, each under a number that no other has."""
    uuids = {gpu.uuid for gpu in cards.gpus if gpu.uuid}
    addresses = {gpu.pci_address for gpu in cards.gpus if gpu.pci_address}
    taken = {gpu.index for gpu in cards.gpus}
    new = []
    for gpu in more.gpus:
        is_nameless = gpu.uuid is None and gpu.pci_address is None
        if gpu.uuid in uuids or gpu.pci_address in addresses or (is_nameless and gpu.index in taken):
            continue
        place = order.index(gpu.pci_address) if gpu.pci_address in order else None
        number = next((each for each in (gpu.index, place) if each is not None and each not in taken), None)
        taken.add(number)
        uuids.add(gpu.uuid or "")
        addresses.add(gpu.pci_address or "")
        new.append(msgspec.structs.replace(gpu, index=number))
    gpus = sorted((*cards.gpus, *new), key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.pci_address or ""))
    problems = dict.fromkeys((*cards.problems, *(more.problems if new else ())))
    return Cards(_fuller(cards.driver, more.driver), tuple(gpus), tuple(problems), cards.is_known)


def _fuller(told: Driver | None, other: Driver | None) -> Driver | None:
    if told is None or other is None:
        return told or other
    return Driver(
        version=told.version or other.version,
        cuda_version=told.cuda_version or other.cuda_version,
        source=NAME,
        attached=told.attached or other.attached,
    )


# --- what only other answers tell ---------------------------------------------------------------------------------


def _with_more(machine: Machine, settings: NodeSettings, cards: Cards, said: str) -> Cards:
    """Add compute capabilities, NVLinks and warnings: each is another question, and costs nothing when it fails."""
    capabilities = smi_csv.capabilities(machine, settings)
    links = _links(machine, settings) if any(_may_have_links(gpu) for gpu in cards.gpus) else {}
    corrupted = {pci.canonical(spelt) for spelt in _INFOROM.findall(said)}
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            compute_capability=capabilities.get(gpu.uuid or ""),
            nvlinks=links.get(gpu.uuid or ""),
            inforom_ok=False if gpu.pci_address in corrupted and gpu.pci_address else None,
        )
        for gpu in cards.gpus
    )
    return Cards(cards.driver, gpus, cards.problems, cards.is_known)


def _may_have_links(gpu: Gpu) -> bool:
    return not gpu.failed and not gpu.mig_enabled


def _links(machine: Machine, settings: NodeSettings) -> Mapping[str, tuple[NvLink, ...]]:
    status = tools.ask(machine, settings, NAME, "nvlink", "--status").out
    if "Link " not in status:
        return {}
    return smi_list.parse_links(status, tools.ask(machine, settings, NAME, "nvlink", "-e").out)
