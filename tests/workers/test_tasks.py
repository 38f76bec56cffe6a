"""What lives as long as the worker: the look at the machine every minute, and what is said of an order in the log."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import structlog

from llmgw.core import wire
from llmgw.core.hardware.findings import Finding
from llmgw.core.units import GIB, Bytes, LaunchId, NodeName, OrderId, Seconds
from workers.tasks import InventoryWatch, bound

NOW = wire.Inventory(
    devices=(), cpu_count=2, memory_total=Bytes(8 * GIB), disk_total=Bytes(100 * GIB), disk_free=Bytes(50 * GIB)
)


@dataclass
class Told:
    """What the control plane would be told."""

    registrations: int = 0
    changes: int = 0

    def register(self):
        self.registrations += 1

    def inventory_changed(self):
        self.changes += 1


@pytest.fixture
def told():
    return Told()


def with_free_disk(gib):
    return msgspec.structs.replace(NOW, disk_free=Bytes(gib * GIB))


@dataclass
class Looks:
    """A machine that looks as its inventories say, one after the other."""

    inventories: list[Any]
    has_changed: bool = False
    looks: int = 0
    glances: int = 0

    def collect(self):
        self.looks += 1
        found = self.inventories.pop(0) if len(self.inventories) > 1 else self.inventories[0]
        if isinstance(found, Exception):
            raise found
        return found

    def ports_changed(self):
        self.glances += 1
        return self.has_changed


def looking_at(told, *inventories):
    watch = InventoryWatch(Looks(list(inventories)), told, every=60)
    for _ in inventories:
        watch.look()
    return watch


def test_the_first_look_is_followed_by_the_registration(told):
    watch = looking_at(told, NOW)
    assert (told.registrations, told.changes, watch.told) == (1, 0, NOW)


def test_only_a_change_that_matters_is_told(told):
    watch = looking_at(told, NOW, with_free_disk(49))
    assert (told.changes, watch.told) == (0, NOW)
    watch = looking_at(told, NOW, with_free_disk(40))
    assert (told.changes, watch.told) == (1, with_free_disk(40))


def test_many_small_changes_become_one_that_is_told(told):
    looking_at(told, *(with_free_disk(50 - lost) for lost in range(8)))
    assert told.changes == 1


def test_whoever_is_told_all_is_told_the_last_look(told):
    watch = looking_at(told, NOW, with_free_disk(49))
    assert watch.newest() == with_free_disk(49)
    assert watch.told == with_free_disk(49)


def test_the_last_look_can_be_had_without_telling_it(told):
    watch = looking_at(told, NOW, with_free_disk(49))
    assert watch.seen == with_free_disk(49)
    assert watch.told == NOW, "small changes that nobody was told still add up"


def test_what_is_new_is_logged_once(told):
    odd = Finding("port.down", "mlx5_0:1 is down", about="mlx5_0:1")
    with structlog.testing.capture_logs() as lines:
        looking_at(told, NOW, *[msgspec.structs.replace(NOW, findings=(odd,))] * 3, NOW)
    said = [(line["event"], line["log_level"], line["code"]) for line in lines if "code" in line]
    assert said == [("finding", "warning", "port.down"), ("finding is gone", "info", "port.down")]


def test_a_look_that_fails_is_not_the_last(told, eventually):
    looks = Looks([ZeroDivisionError(), NOW, ZeroDivisionError(), with_free_disk(40)])
    watch = InventoryWatch(looks, told, every=0.01)
    watch.start()
    eventually(lambda: told.changes)
    watch.stop()
    assert told.registrations == 1


def test_a_port_that_changes_is_looked_at_with_the_next_heartbeat(told, eventually):
    looks = Looks([NOW], has_changed=False)
    watch = InventoryWatch(looks, told, every=3600)
    watch.start()
    eventually(lambda: watch.told)
    watch.glance()
    eventually(lambda: looks.glances == 1)
    assert looks.looks == 1
    looks.has_changed = True
    watch.glance()
    eventually(lambda: looks.looks == 2)
    watch.stop()


@pytest.mark.parametrize("kind", [wire.HelloOrder, wire.StopOrder])
def test_what_is_logged_says_which_order_and_launch(kind):
    facts = {"launch_id": LaunchId("l1")} if kind is wire.StopOrder else {}
    order = kind(order_id=OrderId("o1"), node=NodeName("n1"), epoch=1, issued_at=Seconds(0.0), **facts)
    with bound(order):
        said = structlog.contextvars.get_contextvars()
    assert said == {"node": "n1", "order_id": "o1", **facts}
    assert not structlog.contextvars.get_contextvars()
