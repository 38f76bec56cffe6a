"""What can befall a node here: it reports, changes its state, is cordoned, is forgotten."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import structlog
from django.db import transaction
from django.db.models import F

from apps.audit import actions as audit
from apps.audit.actions import Actor
from apps.nodes import queries
from apps.nodes.models import DeviceRow, NodeFactsRow, NodeRow, NodeTransitionRow, ReportCountRow
from apps.nodes.redis import unhear
from apps.nodes.signals import node_lost, node_returned, nodes_changed
from llmgw.core import wire
from llmgw.core.hardware.findings import Finding
from llmgw.core.world import Device, NodeState

log = structlog.get_logger(__name__)

TAKEN: Final = "taken"
NEW_EPOCH: Final = "new-epoch"
REPEATED: Final = "repeated"
STALE_EPOCH: Final = "stale-epoch"
STALE_SEQ: Final = "stale-seq"
OTHER_INSTANCE: Final = "other-instance"
UNKNOWN_NODE: Final = "unknown-node"
UNREADABLE: Final = "unreadable"

# So many sweeps in a row a node may tell otherwise than we know, since a report may be on its way.
SWEEPS_UNTIL_HELLO: Final = 2
LONGEST_NAME: Final = 63
MOVES_KEPT: Final = timedelta(days=30)
STRANGERS_KEPT: Final = timedelta(days=1)
"""Counts of a name that no node bears: anybody with access to the broker could make up more of them."""


@dataclass(frozen=True, slots=True)
class Reception:
    """What is to become of a report."""

    outcome: str
    """One of the words of `ReportCountRow.outcome`."""
    node: NodeRow | None
    """As it now stands; None when nobody knows it."""
    hello: bool = False
    """The node must be ordered to register again, under the epoch that it has here."""

    @property
    def taken(self) -> bool:
        """Tell whether what the report says of launches and orders is to be applied."""
        return self.outcome == TAKEN


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no node of that name."""

    code: ClassVar[str] = "node.unknown"
    name: str

    def text(self) -> str:
        """Say it in one line."""
        return f"there is no node {self.name}"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "`manage.py nodes` lists those that there are"


@dataclass(frozen=True, slots=True)
class NotLost:
    """The node is still there, or may be: it would only come back."""

    code: ClassVar[str] = "node.not-lost"
    name: str
    state: str

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.name} is {self.state}, and only a lost node can be forgotten"

    def cure(self) -> str:
        """Say what an operator can do."""
        return f"stop the worker on {self.name} and wait until it is lost"


# --- reports ------------------------------------------------------------------------------------------------------


@transaction.atomic
def receive(report: wire.AnyReport, *, now: datetime) -> Reception:
    """Take what a report says of its node, count it, and say what is to become of the rest of it."""
    if isinstance(report, wire.Registration):
        reception = register(report, now=now)
    elif isinstance(report, wire.InventoryChanged):
        reception = inventory_changed(report, now=now)
    elif isinstance(report, wire.DoctorReport):
        reception = examined(report, now=now)
    else:
        reception = identify(report, now=now)
    detail = "" if reception.taken else f"{type(report).__name__} {report.seq} of epoch {report.epoch}"
    count_report(report.node, reception.outcome, now=now, detail=detail)
    return reception


@transaction.atomic(savepoint=False)
def register(report: wire.Registration, *, now: datetime) -> Reception:
    """Take who the node is and what it has; its launches are to be applied only under the epoch it has here."""
    if not _is_name(report.node):
        return Reception(UNREADABLE, None)
    row = _locked(report.node) or _introduce(report.node, now)
    if _is_same(row, report) and report.seq <= row.registered_seq:
        return Reception(REPEATED if report.seq == row.registered_seq else STALE_SEQ, row)
    by = Actor(report.node, "node")
    rivals = _are_rivals(row, report)
    if why := _why_new_epoch(row, report):
        _begin_epoch(row, report, why, by, now)
    _store_registration(row, report, now)
    if rivals:
        # A hello at once would be read by either worker, and have them take the name in turn as fast as they can.
        _tell_of_rivals(row)
        return Reception(NEW_EPOCH, row)
    if report.epoch == row.epoch:
        _move(row, NodeState.READY, "registered", by, now)
        return Reception(TAKEN, row)
    if row.state == NodeState.LOST:
        _move(row, NodeState.JOINING, "registers again", by, now)
    return Reception(NEW_EPOCH, row, hello=True)


@transaction.atomic(savepoint=False)
def identify(report: wire.Report, *, now: datetime) -> Reception:
    """Tell whether a report comes from the node that we know, under its present epoch, for the first time."""
    row = _locked(report.node)
    if row is None:
        return Reception(UNKNOWN_NODE, None)
    if not _is_same(row, report):
        return Reception(OTHER_INSTANCE, row)
    if report.epoch > row.epoch:
        # We have forgotten some of it, as after a database was restored. Orders of that time must not be obeyed.
        _set(row, epoch=report.epoch + 1)
    if report.epoch != row.epoch:
        return Reception(STALE_EPOCH, row, hello=True)
    if report.seq == row.last_seq:
        return Reception(REPEATED, row)
    _set(row, last_seq=max(row.last_seq, report.seq), last_heard_at=now)
    return Reception(TAKEN, row)


@transaction.atomic(savepoint=False)
def inventory_changed(report: wire.InventoryChanged, *, now: datetime) -> Reception:
    """Take the node's new inventory, unless it is older than what we have."""
    reception = identify(report, now=now)
    if not reception.taken or reception.node is None:
        return reception
    if report.seq <= reception.node.inventory_seq:
        return Reception(STALE_SEQ, reception.node)
    _store_inventory(reception.node, report.inventory, report.seq)
    _tell(reception.node, now)
    return reception


@transaction.atomic(savepoint=False)
def examined(report: wire.DoctorReport, *, now: datetime) -> Reception:
    """Keep what the doctor found, unless a later run is known already."""
    reception = identify(report, now=now)
    if not reception.taken or reception.node is None:
        return reception
    if report.seq <= reception.node.examination_seq:
        return Reception(STALE_SEQ, reception.node)
    _set(reception.node, examination_seq=report.seq)
    told = msgspec.to_builtins(report.examination)
    NodeFactsRow.objects.update_or_create(node=reception.node, defaults={"examination": told})
    return reception


def count_report(node: str, outcome: str, *, now: datetime, detail: str = "") -> None:
    """Count one report; those that were ignored are kept countable, with the last one's detail."""
    whose = {"node_name": audit.plain(node)[:LONGEST_NAME], "outcome": outcome}
    told = {"last_at": now, "last_detail": audit.plain(detail)}
    counted = ReportCountRow.objects.filter(**whose)
    if not counted.update(count=F("count") + 1, **told):
        # Two first ones at once: the loser finds the winner's row.
        _, made = ReportCountRow.objects.get_or_create(**whose, defaults={"count": 1, **told})
        if not made:
            counted.update(count=F("count") + 1, **told)


def _locked(name: str) -> NodeRow | None:
    """Lock a node's row: reports of one node are taken one after the other."""
    return NodeRow.objects.select_for_update().filter(name=name).first()


def _is_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _introduce(name: str, now: datetime, **known: Any) -> NodeRow:
    """Write down a node that nobody knew; until something else is told, its epoch is below every order's."""
    first = {"state_since": now, "last_heard_at": now, "epoch": 0, **known}
    row, _ = NodeRow.objects.get_or_create(name=name, defaults=first)
    return row


def _is_same(row: NodeRow, report: wire.Report) -> bool:
    """Tell whether it is the state folder that we know, since the boot that we know."""
    return (row.instance, row.boot_id) == (report.instance, report.boot_id)


def _why_new_epoch(row: NodeRow, report: wire.Registration) -> str:
    """Say why all that was ordered and reported before must be fenced; nothing when it need not be."""
    if row.instance != report.instance:
        return "registered from another state folder"
    if row.boot_id != report.boot_id:
        return "has rebooted"
    return "has seen a later epoch than this database" if report.epoch > row.epoch else ""


def _are_rivals(row: NodeRow, report: wire.Registration) -> bool:
    """Tell whether a second worker takes the name of one that has not even joined yet."""
    return row.state == NodeState.JOINING and row.instance not in {"", report.instance}


def _tell_of_rivals(row: NodeRow) -> None:
    text = (
        f"workers with different state folders register as {row.name} in turn, and take each other's orders"
        " – stop one of them, or give it an id of its own"
    )
    log.warning(text, node=row.name)
    _set(row, findings=[*row.findings, msgspec.to_builtins(Finding("node.two-workers", text))])


def _begin_epoch(row: NodeRow, report: wire.Registration, why: str, by: Actor, now: datetime) -> None:
    _set(row, epoch=max(row.epoch, report.epoch) + 1)
    if row.instance != report.instance:
        _set(row, registered_seq=0, inventory_seq=0, examination_seq=0, last_seq=0)
    _move(row, NodeState.JOINING, why, by, now)


def _store_registration(row: NodeRow, report: wire.Registration, now: datetime) -> None:
    _set(
        row,
        instance=report.instance,
        boot_id=report.boot_id,
        address=report.address,
        labels=dict(report.labels),
        findings=msgspec.to_builtins(report.findings),
        registered_seq=report.seq,
        last_seq=max(row.last_seq, report.seq),
        last_heard_at=now,
        digest_differs=0,
    )
    if report.seq > row.inventory_seq:
        _store_inventory(row, report.inventory, report.seq)
    _tell(row, now)


def _set(row: NodeRow, **values: Any) -> None:
    """Write some fields, here and there; the caller holds the row's lock."""
    NodeRow.objects.filter(pk=row.pk).update(**values)
    for field, value in values.items():
        setattr(row, field, value)


def _tell(row: NodeRow, now: datetime) -> None:
    nodes_changed.send(NodeRow, names=(row.name,), now=now)


# --- inventory ----------------------------------------------------------------------------------------------------


def _store_inventory(row: NodeRow, inventory: wire.Inventory, seq: int) -> None:
    told = msgspec.to_builtins(inventory)
    del told["devices"]  # these have rows of their own
    _set(
        row,
        inventory_seq=seq,
        engines=sorted(inventory.engines),
        disk_free=inventory.disk_free,
        fabrics=told["fabrics"],
        ailments=len(inventory.findings),
    )
    NodeFactsRow.objects.update_or_create(node=row, defaults={"inventory": told})
    _store_devices(row, {device.id: device for device in inventory.devices})


def _store_devices(row: NodeRow, devices: Mapping[str, Device]) -> None:
    """Write what is new, change what changed, remove what is gone; most times that is nothing."""
    present = {device.device_id: device for device in row.devices.all()}
    gone = [device.pk for name, device in present.items() if name not in devices]
    if gone:
        DeviceRow.objects.filter(pk__in=gone).delete()
    new = [DeviceRow(node=row, device_id=name, **_columns(devices[name])) for name in devices if name not in present]
    if new:
        DeviceRow.objects.bulk_create(new)
    for name, device in present.items():
        if name in devices and queries.device_of(device) != devices[name]:
            DeviceRow.objects.filter(pk=device.pk).update(**_columns(devices[name]))


def _columns(device: Device) -> dict[str, Any]:
    return {
        "kind": device.kind,
        "device_class": device.device_class,
        "memory": device.memory,
        "slots": device.slots,
        "unhealthy": (device.unhealthy or "")[:500],
        "unhealthy_code": device.unhealthy_code[:64],
        "number": device.index,
        "label": device.label[:32],
        "card": device.card or "",
        "capability": device.capability[:16],
        "nvlink": device.nvlink[:100],
        "domain": device.domain[:100],
    }


# --- states -------------------------------------------------------------------------------------------------------


@transaction.atomic
def mark(
    name: str, before: NodeState, after: NodeState, *, why: str, by: Actor, now: datetime, last_tick: int | None = None
) -> bool:
    """Move a node from one state to another; False when it is no longer in the first, or no longer there."""
    row = _locked(name)
    if row is None or row.state != before or not _move(row, after, why, by, now):
        return False
    if last_tick is not None:
        _set(row, last_tick=last_tick)
    _tell(row, now)
    return True


def _move(row: NodeRow, after: NodeState, why: str, by: Actor, now: datetime) -> bool:
    """Move a row by compare-and-set, and tell those who have to act on it."""
    before = NodeState(row.state)
    if before is after or not NodeRow.objects.filter(pk=row.pk, state=before).update(state=after, state_since=now):
        return False
    _set(row, state=after, state_since=now, digest_differs=0)
    NodeTransitionRow.objects.create(node=row, at=now, before=before, after=after, why=why[:500], by=by.name)
    if after is NodeState.LOST:
        _set(row, epoch=row.epoch + 1)
        node_lost.send(NodeRow, node=row, now=now)
    elif before in (NodeState.UNREACHABLE, NodeState.LOST):
        _set(row, last_heard_at=now)
        node_returned.send(NodeRow, node=row, was=before, now=now)
    return True


@transaction.atomic
def introduce(name: str, beat: wire.Beat, *, now: datetime) -> bool:
    """Write down a node that answers ticks and that nobody knows, so that it can be told hello."""
    if not _is_name(name) or NodeRow.objects.filter(name=name).exists():
        return False
    row = _introduce(name, now, instance=beat.instance, boot_id=beat.boot_id, epoch=beat.epoch + 1)
    node_returned.send(NodeRow, node=row, was=NodeState.LOST, now=now)
    return True


def compare(beats: Mapping[str, wire.Beat], ours: Mapping[str, str | None]) -> tuple[NodeRow, ...]:
    """Return the nodes that have told otherwise than we know for too long: each is due a hello.

    `ours` is the digest of the launches that each node has here, None while they move and none can be compared. Writes
    only where the count of sweeps changes.
    """
    rows = NodeRow.objects.filter(name__in=beats).exclude(state=NodeState.LOST)
    differing = {row.pk: row for row in rows if _differs(row, beats[row.name], ours)}
    agreeing = [row.pk for row in rows if row.digest_differs and row.pk not in differing]
    if agreeing:
        NodeRow.objects.filter(pk__in=agreeing).update(digest_differs=0)
    if differing:
        NodeRow.objects.filter(pk__in=differing).update(digest_differs=F("digest_differs") + 1)
    return tuple(row for row in differing.values() if row.digest_differs + 1 >= SWEEPS_UNTIL_HELLO)


def _differs(row: NodeRow, beat: wire.Beat, ours: Mapping[str, str | None]) -> bool:
    return queries.is_estranged(row, beat) or ours.get(row.name, wire.digest(())) not in (None, beat.digest)


# --- what operators ask for ---------------------------------------------------------------------------------------


def cordon(name: str, *, by: Actor, now: datetime, reason: str = "") -> NodeRow | NotFound:
    """Keep new work away from a node; what runs there goes on."""
    return _set_cordoned(name, "node.cordon", by, now, reason, cordoned=True)


def uncordon(name: str, *, by: Actor, now: datetime, reason: str = "") -> NodeRow | NotFound:
    """Let new work come to a node again."""
    return _set_cordoned(name, "node.uncordon", by, now, reason, cordoned=False)


@transaction.atomic
def _set_cordoned(name: str, verb: str, by: Actor, now: datetime, reason: str, *, cordoned: bool) -> NodeRow | NotFound:
    row = _locked(name)
    if row is None:
        return NotFound(name)
    if row.cordoned is cordoned:
        return row
    _set(row, cordoned=cordoned)
    told = {"before": {"cordoned": not cordoned}, "after": {"cordoned": cordoned}}
    audit.record(by, verb, "node", name, now, reason=reason, **told)
    _tell(row, now)
    return row


@transaction.atomic
def forget(name: str, *, by: Actor, now: datetime, reason: str = "") -> NotFound | NotLost | None:
    """Delete a lost node with its launches, their failures and all else; the audit keeps what it was."""
    row = _locked(name)
    if row is None:
        return NotFound(name)
    if row.state != NodeState.LOST:
        return NotLost(name, str(row.state))
    audit.record(by, "node.forget", "node", name, now, before=queries.describe(row), reason=reason)
    ReportCountRow.objects.filter(node_name=name).delete()
    row.delete()
    nodes_changed.send(NodeRow, names=(name,), now=now)
    transaction.on_commit(partial(unhear, name))
    return None


# --- what is past keeping -----------------------------------------------------------------------------------------


def tidy(now: datetime) -> dict[str, int]:
    """Delete moves of long ago, and the counts of those whom nobody knows; return how many rows of which kind."""
    moves, _ = NodeTransitionRow.objects.filter(at__lt=now - MOVES_KEPT).delete()
    strangers = ReportCountRow.objects.exclude(node_name__in=NodeRow.objects.values("name"))
    counts, _ = strangers.filter(last_at__lt=now - STRANGERS_KEPT).delete()
    return {"node_moves": moves, "report_counts": counts}
