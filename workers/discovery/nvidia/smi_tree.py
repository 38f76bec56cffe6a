"""Reads the two long answers of nvidia-smi, XML and text, into one kind of tree, as far as they are whole."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_BEGIN: Final = re.compile(r"<nvidia_smi_log\b")
_END: Final = "</nvidia_smi_log>"
_TEXT_CARD: Final = re.compile(r"GPU\s+([0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*$")
_PAIR: Final = re.compile(r"^(\s*)(\S.*?)\s*(?: : ?(.*)|\s:)?$")


@dataclass(slots=True)
class Tree:
    """One answer: what stands above the cards, and each card that is there in full."""

    head: dict[str, str] = field(default_factory=dict)
    cards: list[Element] = field(default_factory=list)
    whole: bool = True
    """False for an answer that breaks off."""


def read(text: str) -> Tree | None:
    """Read XML (`-q -x`) or text (`-q`); None for what is neither."""
    if _BEGIN.search(text):
        return read_xml(text)
    return read_text(text) if "NVSMI LOG" in text else None


# --- XML ----------------------------------------------------------------------------------------------------------


def read_xml(text: str) -> Tree | None:
    """Read a `nvidia_smi_log` of any version, whatever stands before and behind it.

    What is read before the document breaks is kept. No DTD is fetched and no entity is declared (`<!DOCTYPE` is
    left out with all else that stands before the root).
    """
    begin = _BEGIN.search(text)
    if begin is None:
        return None
    end = text.find(_END, begin.start())
    tree = Tree(whole=end >= 0)
    parser: XMLPullParser[Element] = XMLPullParser(events=("end",))
    try:
        parser.feed(_CONTROL.sub("", text[begin.start() : end + len(_END) if end >= 0 else None]))
    except ParseError:
        tree.whole = False
    _take(parser, tree)
    return tree


def _take(parser: "XMLPullParser[Element]", tree: Tree) -> None:
    try:
        for event in parser.read_events():
            element = event[-1]
            if not isinstance(element, Element):
                continue
            element.tag = element.tag.lower()
            if element.tag == "gpu" and ("id" in element.attrib or element.find("product_name") is not None):
                tree.cards.append(element)
            elif len(element) == 0 and not tree.cards:
                tree.head.setdefault(element.tag, (element.text or "").strip())
    except ParseError:
        tree.whole = False


# --- text ---------------------------------------------------------------------------------------------------------


def read_text(text: str) -> Tree:
    """Read `-q`: pairs with ` : ` between them, nested by indentation; the width of the columns differs by driver."""
    tree = Tree()
    open_: list[tuple[int, Element]] = []
    for line in text.splitlines():
        card = _TEXT_CARD.match(line)
        if card:
            open_ = [(0, Element("gpu", {"id": card[1]}))]
            tree.cards.append(open_[0][1])
        elif line.strip() and (pair := _pair(line)):
            _put(pair, open_, tree)
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


def text_at(element: Element, *paths: str) -> str | None:
    """Return the text at the first of these paths that is there; each generation of drivers has its own."""
    for path in paths:
        found = element.find(path)
        if found is not None:
            return found.text or ""
    return None


def children(element: Element, path: str) -> Iterator[Element]:
    """Return what stands below a path."""
    found = element.find(path)
    return iter(found if found is not None else ())


def texts(element: Element) -> Iterator[str]:
    """Return every text of a card that is not blank."""
    return (text.strip() for each in element.iter() if (text := each.text) and text.strip())
