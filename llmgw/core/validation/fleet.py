"""A fleet as people write it, for planning without one: nodes with their devices, fabrics and engines."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from llmgw.core.engines.needs import NEEDS
from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.units import GIB, Bytes, NodeName
from llmgw.core.validation.form import AMOUNT, TEXT, WHOLE, Form, Kind
from llmgw.core.wanted import CPU_CLASS, Problem
from llmgw.core.world import Device, DeviceKind, Node, NodeState

NODE_KEYS: Final = ("name", "count", "devices", "engines", "labels", "fabrics", "cordoned", "disk_free")
DEVICE_KEYS: Final = ("class", "count", "memory", "nvlink", "domain", "unhealthy")
FABRIC_KEYS: Final = ("name", "identity", "rail_only")
MOST_NODES: Final = 100_000
MOST_DEVICES: Final = 1024
_SHORT: Final = re.compile(r"(?:(\d{1,4}) ?[x×] ?)?(\S+)")
_SIZE: Final = re.compile(r"\.(\d+)gb$|-(\d+)g$")
_NUMBERED: Final = "-{:0{}}"


def _yes_no(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


YES_NO: Final = Kind("true or false", _yes_no)


def fleet_from_document(raw: object) -> tuple[Node, ...] | tuple[Problem, ...]:
    """Read `nodes: [ … ]`; whatever is wrong comes back as problems, each with its place."""
    problems: list[Problem] = []
    document = Form(raw, "", ("nodes",), problems)
    if not problems and document.values.get("nodes") is None:
        problems.append(Problem("nodes", "key.missing", "nodes is missing", "write `nodes: []` for a fleet of none"))
    nodes = [node for form in document.forms("nodes", NODE_KEYS) for node in _nodes(form)]
    problems += _twice(nodes)
    return tuple(problems) or tuple(nodes)


def _twice(nodes: list[Node]) -> Iterator[Problem]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            yield Problem("nodes", "name.twice", f"`{node.name}` is here already", "give each node its own name")
        seen.add(node.name)


def _nodes(form: Form) -> Iterator[Node]:
    """Yield one node, or `count` of them, numbered from 1."""
    name, count = form.need("name", TEXT, ""), _within(form, "count", MOST_NODES)
    labels, fabrics = dict(form.pairs("labels")), tuple(_fabrics(form))
    devices = tuple(_devices(form))
    engines = frozenset(form.texts("engines", tuple(NEEDS)))
    cordoned, disk = form.take("cordoned", YES_NO, default=False), form.maybe("disk_free", AMOUNT)
    for number in range(1, count + 1):
        called = name if form.values.get("count") is None else name + _NUMBERED.format(number, len(str(count)))
        yield Node(
            name=NodeName(called),
            state=NodeState.READY,
            address="",
            epoch=1,
            devices=devices,
            engines=engines,
            disk_free=disk,
            cordoned=cordoned,
            labels=labels,
            fabrics=fabrics,
        )


def _within(form: Form, key: str, most: int) -> int:
    told = form.take(key, WHOLE, 1)
    if 1 <= told <= most:
        return told
    form.problems.append(Problem(form.at(key), "number.range", f"{key} is {told}", f"use 1 to {most}"))
    return 1


# --- devices ------------------------------------------------------------------------------------------------------


def _devices(node: Form) -> Iterator[Device]:
    """Yield the devices of a node: `8 × h100-80g`, or a mapping that says more."""
    first = 0
    for at, raw in node.items("devices"):
        form = Form(_spelt_out(raw), at, DEVICE_KEYS, node.problems)
        many = _within(form, "count", MOST_DEVICES)
        yield from _group(form, first, many)
        first += many


def _spelt_out(raw: object) -> object:
    found = _SHORT.fullmatch(raw.strip()) if isinstance(raw, str) else None
    return {"class": found[2], "count": int(found[1] or 1)} if found else raw


def _group(form: Form, first: int, many: int) -> Iterator[Device]:
    name = form.need("class", TEXT, "")
    kind = _kind(name)
    memory = form.maybe("memory", AMOUNT) or _memory_of(name)
    if memory is None:
        cure = "give `memory`, or a class that ends in it, such as `h100-80g`"
        form.problems.append(Problem(form.at("memory"), "key.missing", f"`{name}` does not tell how much it has", cure))
    joined = form.take("nvlink", YES_NO, default=False)
    domain, unhealthy = form.take("domain", TEXT, ""), form.maybe("unhealthy", TEXT)
    if kind is DeviceKind.CPU:
        yield Device(CPU_CLASS, kind, name, memory or Bytes(0), slots=many, unhealthy=unhealthy)
        return
    for number in range(first, first + many):
        yield Device(
            id=f"{kind.value}-{number}",
            kind=kind,
            device_class=name,
            memory=memory or Bytes(0),
            unhealthy=unhealthy,
            index=number,
            label=str(number),
            nvlink=f"{kind.value}-{first}" if joined else "",
            domain=domain,
        )


def _kind(name: str) -> DeviceKind:
    if name == CPU_CLASS:
        return DeviceKind.CPU
    return DeviceKind.MIG if "-mig-" in name else DeviceKind.GPU


def _memory_of(name: str) -> Bytes | None:
    """Read the memory that a class tells: of an instance its own, `a100-80g-mig-3g.40gb`; of a CPU nothing."""
    found = _SIZE.search(name)
    return Bytes(int(found[1] or found[2]) * GIB) if found else None


# --- fabrics ------------------------------------------------------------------------------------------------------


def _fabrics(node: Form) -> Iterator[Attachment]:
    for at, raw in node.items("fabrics"):
        form = Form({"name": raw} if isinstance(raw, str) else raw, at, FABRIC_KEYS, node.problems)
        identity: Any = form.maybe("identity", TEXT)
        made = Attachment(name=form.need("name", TEXT, ""), identities=(identity,) if identity else ())
        yield msgspec.structs.replace(made, rail_only=form.take("rail_only", YES_NO, default=False))
