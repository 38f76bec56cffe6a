"""Rows of nodes as core values, and as the doors show them."""

from collections import Counter
from typing import Any, TypeVar

import msgspec
from django.db.models import QuerySet

from apps.nodes.models import DeviceRow, NodeFactsRow, NodeRow
from llmgw.core import wire
from llmgw.core.hardware.examination import Examination
from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.units import Bytes, NodeName
from llmgw.core.world import Device, DeviceKind, Node, NodeState

Kind = TypeVar("Kind")


def known() -> QuerySet[NodeRow]:
    """Return all nodes with their devices: two queries, however many there are."""
    return NodeRow.objects.prefetch_related("devices")


def in_full() -> QuerySet[NodeRow]:
    """Return all nodes with their devices and all that they told: two queries, too."""
    return known().select_related("facts")


def find(name: str) -> NodeRow | None:
    """Return a node by its name, in full."""
    return in_full().filter(name=name).first()


def nodes() -> tuple[Node, ...]:
    """Return all that is, as far as nodes go, in two queries."""
    return tuple(node_of(row) for row in known())


def node_of(row: NodeRow) -> Node:
    """Return the node as a core value; one query unless its devices were fetched along."""
    return Node(
        name=NodeName(row.name),
        state=NodeState(row.state),
        address=row.address,
        epoch=row.epoch,
        devices=tuple(device_of(device) for device in row.devices.all()),
        engines=frozenset(row.engines),
        disk_free=None if row.disk_free is None else Bytes(row.disk_free),
        cordoned=row.cordoned,
        labels=dict(row.labels),
        fabrics=fabrics_of(row),
    )


def fabrics_of(row: NodeRow) -> tuple[Attachment, ...]:
    """Return the fabrics that the node said it is on, the unusable ones too."""
    return as_kept(row.fabrics, tuple[Attachment, ...]) or ()


def facts_of(row: NodeRow) -> NodeFactsRow:
    """Return what the node told at length; one query unless `in_full` fetched it along."""
    return getattr(row, "facts", None) or NodeFactsRow(node=row)


def examination_of(row: NodeRow) -> Examination | None:
    """Return what the doctor found when it last ran on the node; None when it has not, or was never heard of."""
    told = facts_of(row).examination
    return as_kept(told, Examination) if told else None


def as_kept(raw: object, kind: type[Kind]) -> Kind | None:
    """Read what a node told earlier; None for what another version wrote, until the node tells it anew."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return None


def device_of(row: DeviceRow) -> Device:
    """Return the device as a core value."""
    return Device(
        id=row.device_id,
        kind=DeviceKind(row.kind),
        device_class=row.device_class,
        memory=Bytes(row.memory),
        slots=row.slots,
        unhealthy=row.unhealthy or None,
        unhealthy_code=row.unhealthy_code,
        index=row.number,
        label=row.label,
        card=row.card or None,
        capability=row.capability,
        nvlink=row.nvlink,
        domain=row.domain,
    )


def is_estranged(row: NodeRow, beat: wire.Beat) -> bool:
    """Tell whether a node answers as somebody else than it is here, or has not registered as what it is here."""
    told = (beat.instance, beat.boot_id, beat.epoch)
    return row.state == NodeState.JOINING or told != (row.instance, row.boot_id, row.epoch)


def state_word(row: NodeRow) -> str:
    """Return the word operators read: a ready node that takes nothing new is `cordoned`."""
    return "cordoned" if row.cordoned and row.state == NodeState.READY else str(row.state)


def devices_in_words(row: NodeRow) -> str:
    """Return the node's devices by class: `8 × h100-80g, cpu`."""
    counts = Counter(device.device_class for device in row.devices.all())
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items()) or "–"


def describe(row: NodeRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    return {
        "name": row.name,
        "address": row.address,
        "state": str(row.state),
        "state_since": row.state_since.isoformat(),
        "cordoned": row.cordoned,
        "epoch": row.epoch,
        "instance": row.instance,
        "boot_id": row.boot_id,
        "last_heard_at": row.last_heard_at.isoformat() if row.last_heard_at else None,
        "labels": row.labels,
        "devices": [_describe_device(device) for device in row.devices.all()],
        "inventory": facts_of(row).inventory,
        "findings": row.findings,
        "examination": facts_of(row).examination,
    }


def _describe_device(row: DeviceRow) -> dict[str, Any]:
    return {
        "id": row.device_id,
        "kind": str(row.kind),
        "class": row.device_class,
        "memory_bytes": row.memory,
        "slots": row.slots,
        "unhealthy": row.unhealthy or None,
        "unhealthy_code": row.unhealthy_code or None,
        "index": row.number,
        "label": row.label or None,
        "card": row.card or None,
    }
