"""Reads the two long answers of nvidia-smi, XML and text, into one kind of tree, as far as they are whole."""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_BEGIN: Final = re.compile(r"<nvidia_smi_log\b")
_END: Final = "</nvidia_smi_log>"
_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w.-]*)([^<>]*)>([^<]*)")
_ID: Final = re.compile(r"""\bid\s*=\s*\\?["']([^"'\\]*)""")
_TEXT_CARD: Final = re.compile(r"^\s*GPU\s+([0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR: Final = re.compile(r"^(\s*)(\S.*?)\s*(?: : ?(.*)|\s:)?$")
_OF_CARD: Final = frozenset(
    [
        "product_name",
        "mig_mode",
        "mig_devices",
        "serial",
        "uuid",
        "minor_number",
        "vbios_version",
        "gpu_virtualization_mode",
        "gpu_reset_status",
        "gpu_recovery_action",
        "pci",
        "performance_state",
        "clocks_event_reasons",
        "clocks_throttle_reasons",
        "fb_memory_usage",
        "bar1_memory_usage",
        "compute_mode",
        "utilization",
        "ecc_mode",
        "ecc_errors",
        "retired_pages",
        "remapped_rows",
        "temperature",
        "power_readings",
        "gpu_power_readings",
        "module_power_readings",
        "clocks",
        "max_clocks",
        "fabric",
        "processes",
    ]
)
"""What stands directly below a card, and nowhere else but in an instance."""
_MOST_ATTACHED: Final = 4096
"""More cards than any machine has; what counts more is no count."""


@dataclass(slots=True)
class Tree:
    """One answer: what stands above the cards, and the cards."""

    head: dict[str, str] = field(default_factory=dict)
    cards: list[Element] = field(default_factory=list)
    whole: bool = True
    """False for an answer that breaks off."""
    cut: Element | None = None
    """The card in which it breaks off; not one of `cards`."""

    @property
    def attached(self) -> int | None:
        """Return how many cards the driver counts."""
        told = self.head.get("attached_gpus", "")
        count = int(told) if re.fullmatch(r"[0-9]{1,9}", told) else _MOST_ATTACHED
        return count if count < _MOST_ATTACHED else None

    @property
    def is_short(self) -> bool:
        """Tell whether there are more cards than it tells of."""
        if self.attached is None:
            return not self.whole or self.cut is not None or not self.cards
        return len(self.cards) < self.attached


def read(text: str) -> Tree:
    """Read XML (`-q -x`) or text (`-q`), whichever was answered; what is neither has no cards."""
    plain = _CONTROL.sub("", _COLOUR.sub("", text))
    return read_xml(plain) if _BEGIN.search(plain) else read_text(plain)


# --- XML ----------------------------------------------------------------------------------------------------------


def read_xml(text: str) -> Tree:
    """Read a `nvidia_smi_log` of any version, whatever stands before and behind it; of several, the fullest.

    Tag by tag, and not by a parser that gives up at the first fault: a process may bring its name with a `<` into the
    document, a card that dies while it is asked breaks it off, and neither must cost the other cards. Nothing is
    fetched and no entity is declared, since `<!DOCTYPE` and what is in it is no tag and stands before the root.
    """
    begins = [found.start() for found in _BEGIN.finditer(text)]
    documents = [_document(text[begin:end]) for begin, end in zip(begins, [*begins[1:], None], strict=True)]
    return max(documents, key=lambda tree: (len(tree.cards), tree.whole), default=Tree(whole=False))


def _document(text: str) -> Tree:
    body, end, _ = text.partition(_END)
    tree = Tree(whole=bool(end))
    open_: list[Element] = []
    for closing, name, rest, said in _TAG.findall(body):
        tag = name.lower()  # camelCase stands here and there since 570
        value = html.unescape(said)
        if tag == "gpu":
            _drop(open_, 1)
            open_ = [] if closing else [_card(rest, tree)]
        elif closing:
            _close(tag, open_)
        elif open_:
            _open(tag, rest, value, open_)
        elif not tree.cards:
            tree.head.setdefault(tag, value.strip())
    _drop(open_, 1)
    cut = tree.cards.pop() if open_ and not end else None
    tree.cards = _each_once(tree.cards)
    tree.cut = cut if cut is not None and _is_card(cut) else None
    return tree


def _card(attributes: str, tree: Tree) -> Element:
    found = _ID.search(attributes)
    card = Element("gpu", {"id": found[1]} if found else {})
    tree.cards.append(card)
    return card


def _open(tag: str, rest: str, value: str, open_: list[Element]) -> None:
    """Begin an element, after those of which the end was lost: a value has nothing below it, a part no other part."""
    if len(open_) > 1 and (open_[-1].text or "").strip():
        _drop(open_, len(open_) - 1)
    if tag in _OF_CARD and not any(each.tag == "mig_device" for each in open_):
        _drop(open_, 1)
    element = Element(tag)
    element.text = value
    open_[-1].append(element)
    if not rest.endswith("/"):
        open_.append(element)


def _close(tag: str, open_: list[Element]) -> None:
    """End an element and all in it; an end without its beginning ends nothing."""
    depth = next((depth for depth in range(len(open_) - 1, 0, -1) if open_[depth].tag == tag), None)
    if depth is not None:
        _drop(open_, depth + 1)
        del open_[depth]


def _drop(open_: list[Element], depth: int) -> None:
    """Give up what has begun and has not ended: of a value without its end nobody knows how much is missing."""
    for element in open_[depth:]:
        element.text = None
    del open_[depth:]


def _is_card(element: Element) -> bool:
    told = any(element.find(name) is not None for name in ("product_name", "uuid", "gpu_uuid"))
    return told or (len(element) > 0 and "id" in element.attrib)


def _each_once(cards: Iterable[Element]) -> list[Element]:
    """Return the cards by address; of two at one address the one that tells more, and none that tells nothing."""
    found: dict[str, Element] = {}
    for place, card in enumerate(cards):
        key = card.get("id") or f"#{place}"
        if _is_card(card) and (key not in found or len(found[key]) < len(card)):
            found[key] = card
    return list(found.values())


# --- text ---------------------------------------------------------------------------------------------------------


def read_text(text: str) -> Tree:
    """Read `-q`: pairs with ` : ` between them, nested by indentation; the width of the columns differs by driver."""
    tree = Tree()
    open_: list[tuple[int, Element]] = []
    for line in text.rpartition("\n")[0].splitlines():  # of a line that does not end nobody knows how much is missing
        card = _TEXT_CARD.match(line)
        if card:
            open_ = [(-1, Element("gpu", {"id": card[1]}))]
            tree.cards.append(open_[0][1])
        elif line.strip() and (pair := _pair(line)):
            _put(pair, open_, tree)
    tree.cards = _each_once(tree.cards)
    return tree


def _pair(line: str) -> tuple[int, str, str | None] | None:
    found = _PAIR.match(line)
    if found is None:
        return None
    name = re.sub(r"[^a-z0-9]+", "_", found[2].lower()).strip("_")
    return (len(found[1].expandtabs(4)), name, found[3]) if name else None


def _put(pair: tuple[int, str, str | None], open_: list[tuple[int, Element]], tree: Tree) -> None:
    depth, name, value = pair
    if not open_:
        if value is not None:
            tree.head.setdefault(name, value.strip())
        return
    while len(open_) > 1 and open_[-1][0] >= depth:
        open_.pop()
    element = Element(name)
    element.text = value
    open_[-1][1].append(element)
    open_.append((depth, element))


# --- looking things up --------------------------------------------------------------------------------------------


def text_at(element: Element, path: str) -> str | None:
    """Return the text at a path; None where it is not there."""
    found = element.find(path)
    return None if found is None else found.text or ""


def children(element: Element, path: str) -> Iterator[Element]:
    """Return what stands below a path."""
    found = element.find(path)
    return iter(found if found is not None else ())


def texts(element: Element) -> Iterator[str]:
    """Return every text of a card that is not blank, but not what its processes are called."""
    for each in element.iter():
        text = (each.text or "").strip()
        if text and each.tag not in {"process_name", "name"}:
            yield text
