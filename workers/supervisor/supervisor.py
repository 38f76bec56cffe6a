"""All launches of this node: takes orders for them, and says how they are."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from llmgw.core import lifecycle
from llmgw.core.hardware.findings import Finding
from llmgw.core.lifecycle import Happened
from llmgw.core.units import LaunchId, ReplicaId
from llmgw.core.wire import (
    Answer,
    AnswerKind,
    AnyOrder,
    ExamineOrder,
    ForgetOrder,
    HelloOrder,
    LaunchOrder,
    OrderRefusal,
    ShardStatus,
    Step,
    StopOrder,
    digest,
)
from llmgw.core.world import State
from workers.engines import process
from workers.ports import Machine
from workers.settings import NodeSettings
from workers.supervisor import adoption
from workers.supervisor.identity import Identity
from workers.supervisor.journal import Journal, LaunchFolder, Tombstones, Unusable, is_safe_name
from workers.supervisor.launch import Launch, of_system
from workers.supervisor.surroundings import Fetches, PortBook, Surroundings, Timing

log = structlog.get_logger(__name__)

Reply = tuple[Answer, ShardStatus | None]
_JOIN_S: Final = 2.0
_TIMING: Final = Timing()


class Supervisor:
    """Call `adopt` once before all else. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        machine: Machine,
        settings: NodeSettings,
        identity: Identity,
        fetcher: Fetches,
        push: Callable[[ShardStatus], None],
        findings_changed: Callable[[], None],
        timing: Timing = _TIMING,
    ) -> None:
        """Neither call may wait: `push` with every change, in order for each launch, `findings_changed` when odd."""
        ports = PortBook(settings.engine_host, settings.engine_ports)
        self._around = Surroundings(machine, settings, fetcher, push, findings_changed, ports, timing)
        self._identity = identity
        self._launches: dict[LaunchId, Launch] = {}
        self._tombstones = Tombstones(settings.state / "tombstones")
        self._findings: list[Finding] = []
        self._lock = threading.Lock()

    @property
    def _folders(self) -> Path:
        return self._around.settings.state / "launches"

    # --- at the start of the worker -------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over what an earlier worker has begun; what cannot be taken over safely becomes a finding."""
        self._tombstones.read(self._around.machine.now())
        leaders = process.leaders_by_launch(self._folders)
        names = self._around.machine.names_in(self._folders)
        for name in names:
            self._take_up(LaunchFolder(self._folders / name), leaders)
        for launch in self._launches.values():
            if launch.state not in lifecycle.AT_REST:
                launch.start()
        for found in adoption.without_folder(leaders, names):
            self._find(found)

    def _take_up(self, folder: LaunchFolder, leaders: dict[str, int]) -> None:
        journal = folder.read_journal()
        if journal is None:
            folder.delete()  # the worker died before it had promised anything
            return
        if isinstance(journal, Unusable):
            self._find(adoption.torn_journal(folder, journal))
            return
        launch = Launch(journal, folder, self._around)
        self._launches[launch.launch_id] = launch
        if launch.state not in lifecycle.AT_REST:
            found = adoption.take_up(launch, leaders, self._around.machine.boot_id())
            if found is not None:
                self._find(found)

    def _find(self, finding: Finding) -> None:
        log.warning(finding.text, code=finding.code, launch_id=finding.launch_id)
        self._findings.append(finding)

    def close(self) -> None:
        """Stop the threads and leave the engines; another worker adopts them."""
        launches = tuple(self._launches.values())
        for launch in launches:
            launch.close()
        deadline = self._around.machine.monotonic() + _JOIN_S
        for launch in launches:
            launch.join(max(0.0, deadline - self._around.machine.monotonic()))

    # --- what is said of the node's launches ----------------------------------------------------------------------

    def statuses(self) -> tuple[ShardStatus, ...]:
        """Say of every launch that is kept all there is to say."""
        return tuple(launch.status() for launch in tuple(self._launches.values()))

    def findings(self) -> tuple[Finding, ...]:
        """Return what was found odd: at the start of this worker, and now."""
        odd = tuple(
            Finding("probe.foreign", launch.oddity, launch.launch_id)
            for launch in tuple(self._launches.values())
            if launch.oddity and launch.state not in lifecycle.AT_REST
        )
        return (*self._findings, *odd)

    def digest(self) -> str:
        """Condense the live launches; asks nobody and waits for nothing."""
        launches = tuple(self._launches.values())
        return digest((launch.launch_id, launch.state.value) for launch in launches if launch.state in lifecycle.LIVE)

    # --- orders ---------------------------------------------------------------------------------------------------

    def take(self, order: AnyOrder) -> Reply:
        """Take an order, once; raises OSError when it could not be written down, and then nothing was promised.

        A launch that could not be is refused: to try elsewhere or later is the control plane's.
        """
        no = self._refuse(order)
        if no is not None:
            return no, None
        match order:
            case LaunchOrder():
                return self._launch(order)
            case StopOrder():
                return self._stop(order)
            case ForgetOrder():
                return self._forget(order)
            case HelloOrder() | ExamineOrder():  # what is to be done for them is not about launches
                return _answer(order), None

    def _refuse(self, order: AnyOrder) -> Answer | None:
        settings, known = self._around.settings, self._identity.epoch
        if order.node != settings.id:
            return _refused(
                order, OrderRefusal.OTHER_NODE, f"this is node {settings.id}, the order is for {order.node}"
            )
        if order.instance not in ("", self._identity.instance):
            return _refused(order, OrderRefusal.OTHER_INSTANCE, "the order is for another state folder of this name")
        if not self._identity.accept_epoch(order.epoch):
            return _refused(
                order, OrderRefusal.STALE_EPOCH, f"this node is in epoch {known}, the order in {order.epoch}"
            )
        launch_id = getattr(order, "launch_id", "-")
        if launch_id != "-" and not is_safe_name(launch_id):
            return _refused(order, OrderRefusal.INVALID, "the launch id cannot name a folder")
        return None

    def _launch(self, order: LaunchOrder) -> Reply:
        with self._lock:
            known = self._launches.get(order.launch_id)
            if known is not None:
                return _answer(order, AnswerKind.REPEATED), known.status()
            if order.launch_id in self._tombstones:
                return _refused(order, OrderRefusal.OVERTAKEN, "this launch was stopped before, or is over"), None
            folder = LaunchFolder(self._folders / order.launch_id)
            self._around.machine.checkpoint("order-taken")
            journal = Journal(order=order)
            try:
                folder.create(journal)
            except OSError as error:
                folder.delete()
                _, why = of_system(error)
                return _refused(order, OrderRefusal.NOT_KEPT, f"cannot be written down here: {why}"), None
            self._around.machine.checkpoint("journal-written")
            launch = self._launches[order.launch_id] = Launch(journal, folder, self._around)
        status = launch.status()
        launch.start()
        return _answer(order), status

    def _stop(self, order: StopOrder) -> Reply:
        with self._lock:
            launch = self._launches.get(order.launch_id)
            if launch is None:
                kind = AnswerKind.REPEATED if order.launch_id in self._tombstones else AnswerKind.TAKEN
                self._tombstones.add(order.launch_id, self._around.machine.now())
                return _answer(order, kind), self._never_ran(order)
        kind = launch.ask_stop(order)
        return _answer(order, kind), launch.status()

    def _never_ran(self, order: StopOrder) -> ShardStatus:
        now = self._around.machine.now()
        return ShardStatus(
            launch_id=order.launch_id,
            replica=ReplicaId(""),
            attempt=0,
            state=State.STOPPED,
            steps=(
                Step(Happened.STOP_ASKED, now, order.why),
                Step(Happened.EXITED, now, "nothing of this launch is known here"),
            ),
        )

    def _forget(self, order: ForgetOrder) -> Reply:
        with self._lock:
            launch = self._launches.get(order.launch_id)
            if launch is not None and launch.state not in lifecycle.AT_REST:
                text = f"launch {order.launch_id} is {launch.state.value}, only what is at rest can be forgotten"
                return _refused(order, OrderRefusal.INVALID, text), launch.status()
            kind = AnswerKind.TAKEN if order.launch_id not in self._tombstones else AnswerKind.REPEATED
            if launch is not None:
                launch.folder.delete_logs()  # first: on a full disk the tombstone needs their place
            self._tombstones.add(order.launch_id, self._around.machine.now())
            if launch is not None:
                del self._launches[order.launch_id]
                launch.folder.delete()
            return _answer(order, kind), None


def _answer(order: AnyOrder, kind: AnswerKind = AnswerKind.TAKEN) -> Answer:
    return Answer(order.order_id, kind)


def _refused(order: AnyOrder, code: OrderRefusal, text: str) -> Answer:
    return Answer(order.order_id, AnswerKind.REFUSED, code, text)
