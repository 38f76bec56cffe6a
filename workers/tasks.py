"""The door in: orders and ticks from Celery, handed on to what lives as long as this process."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final, Protocol

import structlog
from celery import Celery, signals

from llmgw import telemetry
from llmgw.core import wire
from llmgw.core.engines import ENGINES
from llmgw.core.units import OrderId
from workers.app import make_app, run_worker, stop_on_signals
from workers.discovery import changes
from workers.discovery.collect import Collector
from workers.discovery.packages import Installer
from workers.discovery.remembered import LastCards
from workers.doctor.watch import DoctorWatch
from workers.engines import programs
from workers.fetch import Fetcher
from workers.heartbeat import Heart
from workers.ports import Machine
from workers.report import CelerySender, Reporter, Whole
from workers.settings import NodeSettings
from workers.supervisor import Identity, Supervisor
from workers.supervisor.files import FileShelf
from workers.system import RealMachine

log = structlog.get_logger(__name__)

AGAIN_S: Final = 1.0
"""Until the first look has been successful: without one, a node cannot register."""
CARDS_FILE: Final = "cards.json"
"""In the state folder: the cards as the driver told them last."""
STOP_S: Final = 2.0
"""A worker that was told to stop has this long; engines are not its children to wait for."""


def make_collector(settings: NodeSettings, machine: Machine, engines: Callable[[], AbstractSet[int]]) -> Collector:
    """Return what looks at this machine and at its installed engines; `engines` tells the pids of ours that run."""
    found = {name: programs.find(name, settings, machine) for name in ENGINES}
    last = LastCards(FileShelf(settings.state / CARDS_FILE))
    return Collector(machine, settings, found, engines=engines, last=last, installer=Installer(machine, settings))


class Look(Protocol):
    """Who looks at the machine."""

    def collect(self) -> wire.Inventory:
        """Look at everything."""
        ...

    def ports_changed(self) -> bool:
        """Tell whether a port's state has changed since the last look at everything."""
        ...


class InventoryWatch:
    """What the machine is, looked at again and again, at once when a port changes; a change that matters is told."""

    def __init__(self, look: Look, reporter: Reporter, every: float) -> None:
        self._at = look
        self._reporter = reporter
        self._every = every
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._masters = changes.Masters()
        self._seen: wire.Inventory | None = None
        self._told: wire.Inventory | None = None

    @property
    def told(self) -> wire.Inventory | None:
        """What the control plane knows, or is being told; None before the first look is over."""
        return self._told

    @property
    def seen(self) -> wire.Inventory | None:
        """The last look, told or not; None before it is over."""
        return self._seen

    def newest(self) -> wire.Inventory | None:
        """Return the last look, which is told from here on; None before it is over."""
        self._told = self._seen
        return self._told

    def start(self) -> None:
        """Begin to look; the first look is followed by the registration."""
        threading.Thread(target=self._run, name="inventory", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._woken.set()

    def glance(self) -> None:
        """Have the ports glanced at, as at each heartbeat; returns at once."""
        self._woken.set()

    def look(self) -> None:
        """Look once, and tell what is new."""
        seen, told, found = self._seen, self._told, self._at.collect()
        self._seen = found
        if told is None:
            self._told = found
            self._reporter.register()
        elif changes.matters(told, found):
            self._told = found
            log.info("inventory changed")
            self._reporter.inventory_changed()
        _log((*changes.told(seen, found), *self._masters.told(found)))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:
                # A tool or a file of a kind that nobody has seen must not end all looking for the worker's life.
                log.exception("inventory failed")
            self._wait(self._every if self._told else AGAIN_S)

    def _wait(self, seconds: float) -> None:
        """Wait for the next look: until its time, or until a glance sees that it cannot wait."""
        until = time.monotonic() + seconds
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            if self._woken.wait(left):
                self._woken.clear()
                if self._told and self._at.ports_changed():
                    return


def _log(news: Iterable[changes.News]) -> None:
    for each in news:
        say = log.warning if each.is_warning else log.info
        say(each.event, **each.facts)


class Node:
    """This node, for as long as its worker lives."""

    def __init__(self, settings: NodeSettings, machine: Machine, app: Celery) -> None:
        """Take the state folder; raises StateRefused or OSError."""
        self._settings = settings
        self._machine = machine
        self._identity = Identity.open(settings.state, machine)
        self._reporter = Reporter(
            settings.id, identity=self._identity, machine=machine, sender=CelerySender(app), whole=self._whole
        )
        self._supervisor = Supervisor(
            machine=machine,
            settings=settings,
            identity=self._identity,
            fetcher=Fetcher(settings),
            push=self._reporter.push,
            findings_changed=self._register_again,
        )
        self._inventory = InventoryWatch(
            make_collector(settings, machine, self._pids), self._reporter, settings.inventory_s
        )
        self._doctor = DoctorWatch(machine, settings, lambda: self._inventory.seen, self._reporter.examined)
        self._heart = Heart(settings.redis_url, settings.id, self._beat)
        self._closed = threading.Lock()

    def start(self) -> None:
        """Take over the engines that run, then say that we are here."""
        self._supervisor.adopt()
        self._reporter.start()
        self._inventory.start()
        self._doctor.start()
        kept = len(self._supervisor.statuses())
        log.info("node started", state=str(self._settings.state), epoch=self._identity.epoch, launches=kept)

    def close(self) -> None:
        """Stop all threads and leave the engines; what is called twice does it once."""
        if not self._closed.acquire(blocking=False):
            return
        self._inventory.stop()
        self._doctor.stop()
        self._supervisor.close()
        self._reporter.close()
        self._heart.close()
        self._identity.close()

    # --- what comes in

    def order(self, raw: object) -> None:
        """Carry out one order, or say why not."""
        order = wire.order_from_wire(raw)
        if isinstance(order, wire.Unreadable):
            self._refuse(raw, order)
            return
        with bound(order):
            self._take(order)

    def tick(self, tick: int, at: float) -> None:
        """Say that we heard a tick."""
        self._heart.answer(tick, at)
        self._inventory.glance()

    def _take(self, order: wire.AnyOrder) -> None:
        if isinstance(order, wire.LaunchOrder):
            self._reporter.trace(order.launch_id, trace_of(order))
        try:
            answer, status = self._supervisor.take(order)
        except OSError as error:  # not answered: it comes again
            log.warning("order cannot be kept, free some space or see to the folder", error=str(error))
            return
        self._reporter.push(*([status] if status else []), answer=answer)
        log.info("order answered", kind=type(order).__name__, answer=answer.kind.value, code=answer.code)
        if answer.kind is wire.AnswerKind.REFUSED:
            return
        if isinstance(order, wire.HelloOrder):
            self._register_again()
        elif isinstance(order, wire.ExamineOrder):
            self._doctor.ask()

    def _pids(self) -> AbstractSet[int]:
        return {status.pid for status in self._supervisor.statuses() if status.pid}

    def _register_again(self) -> None:
        if self._inventory.told:  # else the first look is not over, and registers by itself
            self._reporter.register()

    def _refuse(self, raw: object, why: wire.Unreadable) -> None:
        order_id = raw.get("order_id") if isinstance(raw, Mapping) else None
        log.warning("order unreadable", order_id=order_id, why=why.text())
        if isinstance(order_id, str):
            code = wire.OrderRefusal.VERSION if why.what == "version" else wire.OrderRefusal.INVALID
            refused = wire.Answer(OrderId(order_id), wire.AnswerKind.REFUSED, code, why.text())
            self._reporter.push(answer=refused)

    # --- what is said

    def _beat(self, tick: int) -> wire.Beat:
        return wire.Beat(
            tick=tick,
            epoch=self._identity.epoch,
            instance=self._identity.instance,
            boot_id=self._machine.boot_id(),
            digest=self._supervisor.digest(),
        )

    def _whole(self) -> Whole:
        inventory = self._inventory.newest()
        if inventory is None:
            raise RuntimeError("a registration was asked for before the first look was over")
        return Whole(
            address=self._settings.address,
            inventory=inventory,
            shards=self._supervisor.statuses(),
            labels=dict(self._settings.labels),
            findings=self._supervisor.findings(),
        )


@contextmanager
def bound(order: wire.AnyOrder) -> Iterator[None]:
    """Have every line that is logged inside say which order, and which launch, it is about."""
    facts: dict[str, Any] = {"node": order.node, "order_id": order.order_id}
    facts |= {
        name: value for name in ("model", "replica", "launch_id") if (value := getattr(order, name, None)) is not None
    }
    with structlog.contextvars.bound_contextvars(**facts):
        yield


def trace_of(order: wire.LaunchOrder) -> str:
    """Return the `traceparent` for all that becomes of an order: our own task's if it is in the order's trace."""
    here = telemetry.current_traceparent()
    is_same = here.split("-")[1:2] == order.trace.split("-")[1:2]
    return here if is_same or not order.trace else order.trace


def add_tasks(app: Celery, node: Node) -> None:
    """Give the app what it runs."""

    @app.task(name=wire.ORDER_TASK)
    def order(raw: object) -> None:
        node.order(raw)

    @app.task(name=wire.TICK_TASK)
    def tick(tick: int, at: float) -> None:
        node.tick(tick, at)


def serve(settings: NodeSettings) -> int:
    """Run this node's worker until a signal says stop; raises StateRefused or OSError before it has begun."""
    app = make_app(settings)
    machine = RealMachine.of(settings)
    node = Node(settings, machine, app)
    add_tasks(app, node)

    def close() -> None:
        node.close()
        machine.close()

    def leave_in_time() -> None:
        threading.Thread(target=_leave, args=(close,), name="leave", daemon=True).start()

    stop_on_signals(leave_in_time)
    signals.setup_logging.connect(_keep_log)  # with a receiver for it, Celery sets up no log of its own
    node.start()
    try:
        return run_worker(app, settings.id)
    finally:
        close()


def _keep_log(**_: Any) -> None:
    pass


def _leave(close: Callable[[], None]) -> None:
    """End the process though Celery waits for a broker that hangs, or for a disk."""
    log.info("node stops, engines stay")
    time.sleep(STOP_S)
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(STOP_S / 4)
    os._exit(0)
