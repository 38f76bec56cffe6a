"""The door out: news of this node, in order, from one thread; while the broker is away only the newest is kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from llmgw import telemetry
from llmgw.core import wire
from llmgw.core.hardware.examination import Examination
from llmgw.core.hardware.findings import Finding
from llmgw.core.units import LaunchId, NodeName, OrderId
from llmgw.core.world import State
from workers.ports import Machine
from workers.supervisor.identity import Identity

log = structlog.get_logger(__name__)

MOST_SHARDS: Final = 50
"""Launches in one report, each with its last lines, so that no message grows large."""
MOST_ANSWERS: Final = 500
"""Answers kept for a broker that is away; an order whose answer went is sent again, and answered again."""
MOST_TOLD: Final = 2000
FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 1.0
FLUSH_S: Final = 1.0
LULL_S: Final = 0.02
"""So long news of a launch that is only on its way waits for what comes next: a start is then one report, not five."""
ON_ITS_WAY: Final = frozenset({State.PLACED, State.FETCHING, State.LAUNCHING})


class Sender(Protocol):
    """Hands a report to the broker, or raises `BrokerAway`."""

    def send(self, raw: wire.Json) -> None:
        """Send one report."""
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...


class BrokerAway(Exception):
    """The report was not taken, or nobody knows whether it was."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All there is to know of the node: what a registration holds."""

    address: str
    inventory: wire.Inventory
    shards: tuple[wire.ShardStatus, ...]
    labels: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """What one report is to say."""

    registrations: int = 0
    inventories: int = 0
    """How often each was asked for until now; 0 when it is not to be said."""
    shards: tuple[wire.ShardStatus, ...] = ()
    answers: tuple[wire.Answer, ...] = ()
    examination: Examination | None = None


class Outbox:
    """What is to be said and is not yet. A launch's newer status takes the place of its older one."""

    def __init__(self) -> None:
        self._shards: OrderedDict[LaunchId, wire.ShardStatus] = OrderedDict()
        self._answers: OrderedDict[OrderId, wire.Answer] = OrderedDict()
        self._told: OrderedDict[LaunchId, int] = OrderedDict()
        self._registrations = [0, 0]
        self._inventories = [0, 0]
        self._examination: Examination | None = None

    def add(self, shards: Iterable[wire.ShardStatus], answers: Iterable[wire.Answer]) -> None:
        """Take news; a status that is older than what was said or is to be said of its launch is dropped."""
        for status in shards:
            self._add_status(status)
        for answer in answers:
            self._answers.pop(answer.order_id, None)
            self._answers[answer.order_id] = answer
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)

    def _add_status(self, status: wire.ShardStatus) -> None:
        waiting = self._shards.get(status.launch_id)
        known = max(self._told.get(status.launch_id, 0), len(waiting.steps) if waiting else 0)
        if len(status.steps) >= known:
            self._shards.pop(status.launch_id, None)
            self._shards[status.launch_id] = status

    def want_registration(self) -> None:
        """Say everything, as soon as possible."""
        self._registrations[0] += 1

    def want_inventory(self) -> None:
        """Say what the machine is."""
        self._inventories[0] += 1

    def want_examination(self, examination: Examination) -> None:
        """Say what the doctor found; a later run replaces an earlier one that was not said."""
        self._examination = examination

    def next(self) -> Letter | None:
        """Return what is to be said next; it stays until `said`."""
        answers = tuple(self._answers.values())
        if self._registrations[0] > self._registrations[1]:
            return Letter(self._registrations[0], self._inventories[0], tuple(self._shards.values()), answers)
        if self._shards or answers:
            return Letter(shards=tuple(self._shards.values())[:MOST_SHARDS], answers=answers)
        if self._inventories[0] > self._inventories[1]:
            return Letter(inventories=self._inventories[0])
        return Letter(examination=self._examination) if self._examination else None

    def can_wait(self) -> bool:
        """Tell whether there are only launches that will soon have more to say."""
        states = [status.state for status in self._shards.values()]
        return self._registrations[0] == self._registrations[1] and bool(states) and ON_ITS_WAY.issuperset(states)

    def said(self, letter: Letter) -> None:
        """Cross off what was said; what has become newer meanwhile stays."""
        self._registrations[1] = max(self._registrations[1], letter.registrations)
        self._inventories[1] = max(self._inventories[1], letter.inventories)
        if letter.examination is self._examination:
            self._examination = None
        for status in letter.shards:
            self._tell(status)
            if self._shards.get(status.launch_id) is status:
                del self._shards[status.launch_id]
        for answer in letter.answers:
            if self._answers.get(answer.order_id) is answer:
                del self._answers[answer.order_id]

    def _tell(self, status: wire.ShardStatus) -> None:
        self._told.pop(status.launch_id, None)
        self._told[status.launch_id] = len(status.steps)
        while len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)


class Reporter:
    """Sends what is put into it from its own thread, which never gives up."""

    def __init__(
        self, node: str, *, identity: Identity, machine: Machine, sender: Sender, whole: Callable[[], Whole]
    ) -> None:
        self._node = NodeName(node)
        self._identity = identity
        self._machine = machine
        self._sender = sender
        self._whole = whole
        self._outbox = Outbox()
        self._traces: OrderedDict[LaunchId, str] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def push(self, *shards: wire.ShardStatus, answer: wire.Answer | None = None) -> None:
        """Take news of launches, or an answer to an order, and return at once."""
        with self._changed:
            self._outbox.add(shards, () if answer is None else (answer,))
            self._changed.notify()
        self._machine.checkpoint("report-queued")

    def register(self) -> None:
        """Have everything said."""
        with self._changed:
            self._outbox.want_registration()
            self._changed.notify()

    def inventory_changed(self) -> None:
        """Have the inventory said."""
        with self._changed:
            self._outbox.want_inventory()
            self._changed.notify()

    def examined(self, examination: Examination) -> None:
        """Have said what the doctor found."""
        with self._changed:
            self._outbox.want_examination(examination)
            self._changed.notify()

    def trace(self, launch_id: LaunchId, traceparent: str) -> None:
        """Remember which trace the news of a launch belongs to."""
        if traceparent:
            with self._changed:
                self._traces[launch_id] = traceparent
                while len(self._traces) > MOST_TOLD:
                    self._traces.popitem(last=False)

    def close(self) -> None:
        """Say what can be said in a second, and stop; what is lost is said again by the next registration."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(FLUSH_S)

    # --- in the thread

    def _run(self) -> None:
        wait = FIRST_RETRY_S
        while letter := self._next():
            if self._deliver(letter):
                wait = FIRST_RETRY_S
            elif self._closing.wait(wait):
                break
            else:
                wait = min(wait * 2, LONGEST_RETRY_S)
        self._sender.close()

    def _next(self) -> Letter | None:
        """Wait for something to say; None when there is nothing and we are to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._outbox.next() or self._closing.is_set())
            self._changed.wait_for(lambda: not self._outbox.can_wait() or self._closing.is_set(), LULL_S)
            return self._outbox.next()

    def _deliver(self, letter: Letter) -> bool:
        try:
            with telemetry.continue_trace(self._trace_of(letter)):
                self._sender.send(wire.to_wire(self._report(letter)))
        except BrokerAway as away:
            self._note_absence(away)
            return False
        except Exception:
            # Ours to blame, not the broker's: without this report the next ones still go out, and a digest that
            # differs has the control plane ask for everything.
            log.exception("report given up")
        self._machine.checkpoint("report-sent")
        with self._changed:
            self._outbox.said(letter)
        if self._is_away:
            self._is_away = False
            log.info("broker is back, reports go out")
        return True

    def _note_absence(self, away: BrokerAway) -> None:
        if not self._is_away:
            log.warning("broker away, reports wait", error=str(away))
        self._is_away = True

    def _trace_of(self, letter: Letter) -> str:
        traces = (self._traces.get(status.launch_id, "") for status in letter.shards)
        return next((trace for trace in traces if trace), "")

    def _report(self, letter: Letter) -> wire.Report:
        """Build the report at the moment of sending, so that its number says how new its content is."""
        whole = self._whole() if letter.registrations or letter.inventories else None
        head: dict[str, Any] = {
            "node": self._node,
            "instance": self._identity.instance,
            "boot_id": self._machine.boot_id(),
            "epoch": self._identity.epoch,
            "seq": self._identity.next_seq(),
            "sent_at": self._machine.now(),
        }
        if letter.examination is not None:
            return wire.DoctorReport(**head, examination=letter.examination)
        if whole is None:
            return wire.ShardReport(**head, shards=letter.shards, answers=letter.answers)
        if not letter.registrations:
            return wire.InventoryChanged(**head, inventory=whole.inventory)
        return wire.Registration(
            **head,
            address=whole.address,
            inventory=whole.inventory,
            shards=whole.shards,
            labels=whole.labels,
            answers=letter.answers,
            findings=whole.findings,
        )


class CelerySender:
    """Sends over one connection that is kept open, and makes another when that one has failed."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Connection | None = None
        self._producer: Producer | None = None

    def send(self, raw: wire.Json) -> None:
        """Hand one report to the broker."""
        connection = self._connection or self._connect()
        failures: tuple[type[BaseException], ...] = (
            OperationalError,
            *connection.connection_errors,
            *connection.channel_errors,
        )
        try:
            self._app.send_task(
                wire.REPORT_TASK,
                kwargs={"raw": raw},
                queue=wire.CONTROL_QUEUE,
                producer=self._producer,
                retry=False,
                kwargsrepr="",  # the report itself, a second time, for nobody to read
            )
        except failures as error:
            self.close()
            raise BrokerAway(str(error)) from error

    def close(self) -> None:
        """Close the connection, or what is left of it."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.collect()

    def _connect(self) -> Connection:
        connection = self._app.connection_for_write(
            transport_options={**self._app.conf.broker_transport_options, "socket_timeout": 1}
        )
        try:
            connection.ensure_connection(max_retries=0)
        except OperationalError as error:
            connection.collect()
            raise BrokerAway(str(error)) from error
        self._connection = connection
        self._producer = self._app.amqp.Producer(connection)
        return connection
