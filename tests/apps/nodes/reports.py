"""What a node would send: registrations, statuses, inventories and beats."""

from datetime import UTC, datetime, timedelta

import msgspec

from llmgw.core import wire
from llmgw.core.units import GIB, Bytes, NodeName, Seconds
from llmgw.core.world import Device, DeviceKind
from tests.builders import EXAMINATION

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def at(seconds):
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


CPU = Device("cpu", DeviceKind.CPU, "cpu", Bytes(16 * GIB), slots=2)
GPU = Device("GPU-1", DeviceKind.GPU, "l40s-45g", Bytes(45 * GIB))


def an_inventory(*devices, **facts):
    known = {"cpu_count": 4, "memory_total": Bytes(16 * GIB), "engines": {"llamacpp": "llama-server"}, **facts}
    return wire.Inventory(devices=devices or (CPU,), **known)


def _sender(node, epoch, seq, instance, boot):
    return {
        "node": NodeName(node),
        "instance": instance,
        "boot_id": boot,
        "epoch": epoch,
        "seq": seq,
        "sent_at": Seconds(0.0),
    }


def a_registration(node="gpu07", *, epoch=0, seq=1, instance="folder-1", boot="boot-1", inventory=None, **told):
    return wire.Registration(
        **_sender(node, epoch, seq, instance, boot),
        inventory=inventory or an_inventory(),
        **{"address": "127.0.0.1", **told},
    )


def a_report(node="gpu07", *, epoch=1, seq=2, instance="folder-1", boot="boot-1"):
    return wire.ShardReport(**_sender(node, epoch, seq, instance, boot))


def an_inventory_change(*devices, node="gpu07", epoch=1, seq=2, instance="folder-1", boot="boot-1"):
    return wire.InventoryChanged(**_sender(node, epoch, seq, instance, boot), inventory=an_inventory(*devices))


def an_examination(node="gpu07", *, epoch=1, seq=2, instance="folder-1", boot="boot-1", **found):
    told = msgspec.structs.replace(EXAMINATION, **found)
    return wire.DoctorReport(**_sender(node, epoch, seq, instance, boot), examination=told)


def a_beat(tick=1, *, epoch=1, instance="folder-1", boot="boot-1", digest=None):
    told = wire.digest(()) if digest is None else digest
    return wire.Beat(tick=tick, epoch=epoch, instance=instance, boot_id=boot, digest=told)
