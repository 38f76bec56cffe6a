"""Asks nvidia-smi for the cards: XML joined with the list, then csv, then each card alone, until something answers."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Driver, Gpu, MigInstance, NvLink
from workers import tools
from workers.discovery import pci
from workers.discovery.nvidia import smi_csv, smi_list, smi_tree
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.smi_failure import failure_of
from workers.discovery.nvidia.smi_gpu import read_card
from workers.discovery.nvidia.smi_list import ListedCard, ListedInstance
from workers.discovery.nvidia.smi_tree import Tree
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

NAME: Final = "nvidia-smi"
_HANDLE: Final = re.compile(
    r"Unable to determine the device handle for GPU\s*(\d+:\s*)?"
    r"([0-9A-F]{3,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9])[.:]*\s*(.*)",
    re.IGNORECASE,
)
_INFOROM: Final = re.compile(r"infoROM is corrupted at gpu ([0-9A-Fa-f:.]+)", re.IGNORECASE)
_MOST: Final = 64
"""So many cards are asked for one by one at most."""
OF_KERNEL: Final = Path("/proc/driver/nvidia/gpus")


def ask(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask, and return all cards that could be told of, with what could not."""
    answer = tools.ask(machine, settings, NAME, "-q", "-x")
    listing = smi_list.parse(tools.ask(machine, settings, NAME, "-L").out) if answer.problem != "not found" else ()
    tree = smi_tree.read(answer.out)
    if tree is None or not tree.cards:
        return _without_xml(machine, settings, answer, listing)
    return _more(machine, settings, _complete(machine, settings, tree, listing), answer)


def _complete(machine: Machine, settings: NodeSettings, tree: Tree, listing: Sequence[ListedCard]) -> Cards:
    """Return the cards of a long answer, and those that it should have had."""
    cards = _from_tree(tree, listing, kernel_order(machine))
    return _merged(cards, _missing(machine, settings, tree, cards))


# --- the long answer ----------------------------------------------------------------------------------------------


def _from_tree(tree: Tree, listing: Sequence[ListedCard], order: Sequence[str]) -> Cards:
    by_uuid = {card.uuid: card for card in listing}
    gpus: list[Gpu] = []
    problems: list[Problem] = []
    for place, element in enumerate(tree.cards):
        told = read_card(element, "gpu")[0]
        index = _index(told, place, by_uuid, order)
        gpu, bad = read_card(element, f"gpu {index}")
        listed = by_uuid.get(gpu.uuid or "")
        gpus.append(_named(msgspec.structs.replace(gpu, index=index), listed.instances if listed else ()))
        problems.extend(bad)
    head = tree.head
    attached = head.get("attached_gpus", "")
    driver = Driver(
        version=head.get("driver_version") or None,
        cuda_version=head.get("cuda_version") or None,
        source=NAME,
        attached=int(attached) if attached.isdigit() else None,
    )
    return Cards(driver, tuple(gpus), tuple(problems))


def _index(gpu: Gpu, place: int, by_uuid: Mapping[str, ListedCard], order: Sequence[str]) -> int:
    """Return the driver's number: as listed, else by place among the addresses that the kernel knows, else as told."""
    listed = by_uuid.get(gpu.uuid or "")
    if listed is not None:
        return listed.index
    return order.index(gpu.pci_address) if gpu.pci_address in order else place


def _named(gpu: Gpu, listed: Sequence[ListedInstance]) -> Gpu:
    """Give the instances the UUIDs and profiles that only the list tells; one that only the list knows is added."""
    by_slot = {part.slot: part for part in listed}
    told = {part.slot: part for part in gpu.instances}
    parts = [_joined(told.get(slot) or MigInstance(slot=slot), by_slot.get(slot)) for slot in sorted({*told, *by_slot})]
    # Where nothing but the list answers, that there are instances says which mode the card is in.
    is_cut = gpu.mig_enabled if gpu.mig_enabled is not None or not parts else True
    return msgspec.structs.replace(gpu, instances=tuple(parts), mig_enabled=is_cut)


def _joined(part: MigInstance, listed: ListedInstance | None) -> MigInstance:
    if listed is None:
        return part
    return msgspec.structs.replace(part, uuid=part.uuid or listed.uuid, profile=listed.profile)


def _missing(machine: Machine, settings: NodeSettings, tree: Tree, cards: Cards) -> Cards:
    """Ask alone for those that the driver counts and that are not there; say that they are missing if none answers."""
    attached = cards.driver.attached if cards.driver else None
    short = (attached or 0) - len(cards.gpus)
    known = {gpu.pci_address for gpu in cards.gpus}
    order = kernel_order(machine)
    alone = [address for address in order if address not in known]
    found = _one_by_one(machine, settings, alone, order) if alone else Cards()
    if short <= len(found.gpus) and tree.whole:
        return found
    text = (
        f"nvidia-smi's answer breaks off: {short if short > 0 else 'some'} of {attached or 'its'} cards are not in it"
    )
    lost = Problem(code="nvidia-smi.truncated", fact="gpus", text=text)
    return Cards(found.driver, found.gpus, (*found.problems, lost))


def _merged(cards: Cards, more: Cards) -> Cards:
    if not more.gpus and not more.problems:
        return cards
    gpus = sorted((*cards.gpus, *more.gpus), key=lambda gpu: (gpu.index is None, gpu.index or 0))
    return Cards(cards.driver or more.driver, tuple(gpus), (*cards.problems, *more.problems), cards.is_known)


# --- other looks --------------------------------------------------------------------------------------------------


def _without_xml(machine: Machine, settings: NodeSettings, answer: ToolResult, listing: Sequence[ListedCard]) -> Cards:
    """Try the other ways; where none answers, say what it was that the first said."""
    said = f"{answer.out}\n{answer.err}"
    dead = _HANDLE.search(said)
    if dead:
        return _beside_a_dead_one(machine, settings, dead)
    failure = failure_of(answer, machine)
    if failure.is_final:
        return failure.cards
    text = smi_tree.read(tools.ask(machine, settings, NAME, "-q").out)
    if text is not None and text.cards:
        found = _complete(machine, settings, text, listing)
        return _more(machine, settings, _after(found, failure.problem), answer)
    short = smi_csv.ask(machine, settings)
    if short.gpus:
        named = tuple(_named(gpu, _instances_of(gpu, listing)) for gpu in short.gpus)
        return Cards(short.driver, named, (failure.problem, *short.problems))
    if listing:
        return Cards(Driver(source=NAME), tuple(_listed(card) for card in listing), (failure.problem,))
    return failure.cards


def _after(cards: Cards, problem: Problem) -> Cards:
    return Cards(cards.driver, cards.gpus, (problem, *cards.problems), cards.is_known)


def _instances_of(gpu: Gpu, listing: Sequence[ListedCard]) -> Sequence[ListedInstance]:
    return next((card.instances for card in listing if card.uuid == gpu.uuid), ())


def _listed(card: ListedCard) -> Gpu:
    """A card of which nothing but the list tells; that is no proof that it works."""
    return _named(Gpu(index=card.index, uuid=card.uuid, name=card.name), card.instances)


# --- each card alone ----------------------------------------------------------------------------------------------


def _beside_a_dead_one(machine: Machine, settings: NodeSettings, dead: "re.Match[str]") -> Cards:
    """One dead card makes the whole command fail: ask each by its own address, or by number where none is known."""
    order = kernel_order(machine) or _lspci_order(machine, settings)
    if not order:
        return _by_number(machine, settings, dead)
    named = pci.canonical(dead[2])
    if named and named not in order:
        order = tuple(sorted((*order, named)))
    found = _one_by_one(machine, settings, order, order)
    return Cards(found.driver or Driver(source=NAME), found.gpus, found.problems)


def _one_by_one(machine: Machine, settings: NodeSettings, addresses: Sequence[str], order: Sequence[str]) -> Cards:
    found = Cards()
    for address in addresses[:_MOST]:
        answer = tools.ask(machine, settings, NAME, "-q", "-x", "-i", _long(address))
        found = _merged(found, _alone(answer, order.index(address), address, machine))
    return found


def _by_number(machine: Machine, settings: NodeSettings, dead: "re.Match[str]") -> Cards:
    """Ask by number until a number is none; the dead one has the number that is answered by nothing but its end."""
    found, address = Cards(), pci.canonical(dead[2])
    for index in range(_MOST):
        answer = tools.ask(machine, settings, NAME, "-q", "-x", "-i", str(index))
        is_dead = _HANDLE.search(f"{answer.out}\n{answer.err}") is not None
        tree = smi_tree.read(answer.out)
        if not is_dead and (tree is None or not tree.cards):
            break
        if is_dead and any(gpu.failed for gpu in found.gpus):
            break  # it says the same whatever the number
        found = _merged(found, _alone(answer, index, address if is_dead else None, machine))
    if not any(gpu.failed for gpu in found.gpus):
        said = cut(dead[3].strip(" .") or dead[0])
        lost = msgspec.structs.replace(from_kernel(machine, address), failed=said)
        found = _merged(found, Cards(gpus=(lost,)))
    return Cards(found.driver or Driver(source=NAME), found.gpus, found.problems)


def _alone(answer: ToolResult, index: int, address: str | None, machine: Machine) -> Cards:
    """Read what was answered of one card; one that cannot be asked is there all the same, as failed."""
    tree = smi_tree.read(answer.out)
    same = next((each for each in tree.cards if _is_at(each.get("id"), address)), None) if tree else None
    element = same if same is not None else (tree.cards[0] if tree and len(tree.cards) == 1 and not address else None)
    if tree is None or element is None:
        said = _last_words(answer)
        known = from_kernel(machine, address)
        return Cards(gpus=(msgspec.structs.replace(known, index=index, failed=said),))
    gpu, problems = read_card(element, f"gpu {index}")
    return Cards(
        _from_tree(tree, (), ()).driver,
        (msgspec.structs.replace(gpu, index=index),),
        problems,
    )


def _is_at(spelt: str | None, address: str | None) -> bool:
    return bool(spelt and address and pci.canonical(spelt) == address)


def _last_words(answer: ToolResult) -> str:
    said = f"{answer.out}\n{answer.err}".strip()
    dead = _HANDLE.search(said)
    reason = re.split(r"\s{2,}|\n", dead[3])[0].strip(" .") if dead else ""
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return cut(reason or answer.problem or first or "it does not answer")


# --- what the kernel and others know ------------------------------------------------------------------------------


def kernel_order(machine: Machine) -> tuple[str, ...]:
    """Return the addresses of the cards that the kernel module has taken, in the driver's order."""
    found = (pci.canonical(name) for name in machine.names_in(OF_KERNEL))
    return tuple(sorted(address for address in found if address))


def _lspci_order(machine: Machine, settings: NodeSettings) -> tuple[str, ...]:
    """Return the addresses of NVIDIA's 3D and VGA controllers (classes 0302 and 0300)."""
    out = tools.ask(machine, settings, "lspci", "-D", "-n", "-d", "10de:").out
    found = (pci.canonical(line.split()[0]) for line in out.splitlines() if re.search(r"\s030[02]:", line))
    return tuple(sorted(address for address in found if address))


def from_kernel(machine: Machine, address: str | None) -> Gpu:
    """Return what the kernel module has written down of a card when it took it."""
    name = next((each for each in machine.names_in(OF_KERNEL) if pci.canonical(each) == address), "") if address else ""
    told = machine.read_text(OF_KERNEL / name / "information") if name else None
    facts = dict(re.findall(r"^([^:\n]+):\s*(.*?)\s*$", told or "", re.MULTILINE))
    uuid = facts.get("GPU UUID", "")
    return Gpu(
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        name=facts.get("Model") or None,
        pci_address=address,
    )


def _long(address: str) -> str:
    """Spell an address as nvidia-smi does."""
    return address.upper().rjust(16, "0")


# --- what only other answers tell ---------------------------------------------------------------------------------


def _more(machine: Machine, settings: NodeSettings, cards: Cards, answer: ToolResult) -> Cards:
    """Add compute capabilities, NVLinks and warnings: each is another question, and costs nothing when it fails."""
    capabilities = smi_csv.capabilities(machine, settings)
    links = _links(machine, settings) if any(_may_have_links(gpu) for gpu in cards.gpus) else {}
    corrupted = {pci.canonical(spelt) for spelt in _INFOROM.findall(f"{answer.out}\n{answer.err}")}
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            compute_capability=capabilities.get(gpu.uuid or ""),
            nvlinks=links.get(gpu.uuid or ""),
            inforom_ok=False if gpu.pci_address in corrupted and corrupted else None,
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
