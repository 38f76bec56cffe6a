"""One launch, from its order to its end: its state, its steps, and the thread that carries them out."""

import errno
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from llmgw.core import lifecycle
from llmgw.core.engines import ENGINES
from llmgw.core.engines.base import Command, LaunchFacts
from llmgw.core.engines.failures import classify, sentence
from llmgw.core.lifecycle import Happened
from llmgw.core.units import LaunchId, Seconds
from llmgw.core.wire import AnswerKind, Failure, Progress, ShardStatus, Step, StopOrder
from llmgw.core.world import State
from workers.discovery import cgroups
from workers.engines import process, programs
from workers.engines.environment import engine_environment
from workers.engines.probe import is_any
from workers.engines.process import End, EngineProcess, Fingerprint
from workers.fetch import FetchFailed
from workers.supervisor import logfile
from workers.supervisor.journal import Journal, LaunchFolder, Stop
from workers.supervisor.surroundings import Surroundings
from workers.supervisor.watch import Watch

log = structlog.get_logger(__name__)

LINES_OF_FAILURE: Final = 50
LINES_OF_STATUS: Final = 20
MOST_STEPS: Final = 200
"""From so many on, serving and not serving are told by the state alone: an engine that flaps makes no report longer."""
_FLAPS: Final = frozenset({Happened.PROBE_PASSED, Happened.PROBE_FAILED})
_UNSEEN: Final = End()
_UNSTARTED: Final = frozenset({State.PLACED, State.FETCHING, State.LAUNCHING})
# A power cut may take back what is not in here: the next start of the worker finds it out again.
_DURABLE: Final = lifecycle.AT_REST | lifecycle.GOING


def of_system(error: OSError) -> tuple[str, str]:
    """Return the class of failure that a system's refusal is, with its sentence."""
    code = "disk-full" if error.errno == errno.ENOSPC else "launch-failed"
    return code, sentence(code, str(error))


class GivenUp(Exception):
    """Nobody wants these weights any more."""


class CannotLaunch(Exception):
    """What stands between fetched weights and a process."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(sentence(code, detail))
        self.code = code


class Launch:
    """One launch. Its lock is held for every move, so that a journal, a status and the truth are the same."""

    def __init__(self, journal: Journal, folder: LaunchFolder, around: Surroundings) -> None:
        self._journal = journal
        self._folder = folder
        self._around = around
        self._lock = threading.RLock()
        self._engine = ENGINES.get(journal.order.engine)
        self._process: EngineProcess | None = None
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None
        self._adopted = False
        self._progress: Progress | None = None
        self._told_progress_at = 0.0
        self._is_closed = False
        self._oddity = ""
        self._log = log.bind(launch_id=journal.launch_id, replica=journal.order.replica, model=journal.order.model)

    # --- what is said of it ---------------------------------------------------------------------------------------

    @property
    def launch_id(self) -> LaunchId:
        return self._journal.launch_id

    @property
    def state(self) -> State:
        return self._journal.state

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def folder(self) -> LaunchFolder:
        return self._folder

    @property
    def log_file(self) -> Path:
        return self._folder.log

    @property
    def oddity(self) -> str:
        """What stands in the way of readiness, if that is odd."""
        return self._oddity

    def notice(self, oddity: str) -> None:
        """Keep it for the findings; what is new there, or gone from there, is told at once."""
        before, self._oddity = self._oddity, oddity
        if oddity and oddity != before:
            self._log.warning(oddity)
        if bool(oddity) != bool(before):
            self._around.findings_changed()

    def status(self) -> ShardStatus:
        """Say all there is to say."""
        with self._lock:
            told = self._journal
            return ShardStatus(
                launch_id=told.launch_id,
                replica=told.order.replica,
                attempt=told.order.attempt,
                state=told.state,
                steps=told.steps,
                rank=told.order.rank,
                devices=told.order.devices,
                host=self._address(),
                port=told.port,
                pid=self._process.pid if self._process else None,
                adopted=self._adopted,
                progress=self._progress if told.state is State.FETCHING else None,
                failure=told.failure,
                tail=self._tail(LINES_OF_STATUS),
            )

    def _tail(self, lines: int) -> tuple[str, ...]:
        return logfile.tail(self._folder.log, lines, self._engine.is_noise if self._engine else None)

    def _address(self) -> str | None:
        listen = self._journal.listen
        return self._around.settings.address if listen and is_any(listen) else listen

    # --- moves ----------------------------------------------------------------------------------------------------

    def happen(self, happened: Happened, why: str = "", **changes: Any) -> bool:
        """Move by the table, write it down, and push it; False when the table forbids it, which is no error."""
        with self._lock:
            after = lifecycle.after(self.state, happened)
            if isinstance(after, lifecycle.NotAllowed):
                return False
            self._log.info(happened.value, state=after.value, why=why)
            steps = self._journal.steps
            if len(steps) < MOST_STEPS or happened not in _FLAPS:
                steps = (*steps, Step(happened, self._around.machine.now(), why))
            self._change(state=after, steps=steps, **changes)
            self._around.push(self.status())
            return True

    def _change(self, **changes: Any) -> None:
        self._journal = msgspec.structs.replace(self._journal, **changes)
        try:
            self._folder.write_journal(self._journal, durable=self.state in _DURABLE)
        except OSError as error:
            # What runs is still watched and reported; only a restart of the worker would find an older journal.
            self._log.error("journal not written", error=str(error))

    def fail(self, code: str, text: str, end: End = _UNSEEN, *, happened: Happened = Happened.FAILED) -> None:
        """End it as failed, or, when its end was asked for anyway, as stopped."""
        with self._lock:
            self._around.ports.release(self.launch_id)
            if self.state in lifecycle.GOING:
                self.happen(Happened.EXITED, text)
                return
            who = f"{self._journal.order.replica} on {self._around.settings.id}"
            tail = self._tail(LINES_OF_FAILURE)
            self.happen(happened, code, failure=Failure(code, f"{who}: {text}", end.exit_code, end.signal, tail))

    # --- orders ---------------------------------------------------------------------------------------------------

    def ask_stop(self, order: StopOrder) -> AnswerKind:
        """Drain and end it; a later order may shorten the drain. One that has nothing running is stopped at once."""
        with self._lock:
            stop = self._journal.stop
            if self.state in lifecycle.AT_REST or (stop and order.order_id in stop.orders):
                return AnswerKind.REPEATED
            self._keep_stop(order, stop)
            self.happen(Happened.DRAIN_ASKED if order.drain_s > 0 else Happened.STOP_ASKED, order.why)
            if self._process is None:
                self.happen(Happened.EXITED, "nothing of it ran")
                self._around.ports.release(self.launch_id)
            if self._watch is not None:
                self._watch.wake()
            return AnswerKind.TAKEN

    def _keep_stop(self, order: StopOrder, before: Stop | None) -> None:
        now = self._around.machine.now()
        until = Seconds(now + max(order.drain_s, 0.0))
        if before is None:
            self._change(stop=Stop((order.order_id,), now, until))
        else:
            orders = (*before.orders, order.order_id)
            self._change(stop=msgspec.structs.replace(before, orders=orders, until=min(before.until, until)))

    # --- its thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Carry it out from where it is, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name=f"launch {self.launch_id}", daemon=True)
        self._thread.start()

    def adopt(self, found: EngineProcess) -> None:
        """Take over an engine that another worker has started."""
        with self._lock:
            self._process = found
            self._adopted = True
            if self._journal.port is not None:
                self._around.ports.hold(self.launch_id, self._journal.port)
            self.happen(Happened.PROCESS_STARTED, f"pid {found.pid}, found running")

    def vanish(self, detail: str) -> None:
        """Its process is gone and nobody saw how."""
        self.fail("vanished", sentence("vanished", detail))

    def close(self) -> None:
        """Stop caring; the engine runs on."""
        with self._lock:
            self._is_closed = True
            if self._watch is not None:
                self._watch.close()

    def join(self, timeout: float) -> None:
        """Wait for the thread after `close`; one that waits for a fetch is left behind."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        if self._process is None:
            try:
                self._begin()
            except Exception as error:
                # A bug of ours must not leave a launch that nobody carries on and that says it is on its way.
                log.exception("launch broke", launch_id=self.launch_id)
                self.fail("launch-failed", sentence("launch-failed", f"{type(error).__name__}: {error}"))
        watch = self._new_watch()
        if watch is not None:
            watch.run()

    def _new_watch(self) -> Watch | None:
        with self._lock:
            if self._process is None or self._engine is None or self._is_closed:
                return None
            self._watch = Watch(self, self._engine, self._process, self._around)
            return self._watch

    def ended(self, watched: EngineProcess, *, is_overdue: bool = False) -> None:
        """Its process has ended, by our hand if it was overdue: see what is left of it, and say how."""
        left = watched.end_leftovers()
        end = watched.end()
        watched.close()
        self.notice("")
        with self._lock:
            self._process = None
            self._watch = None
            if left:
                self._log.warning("ended what the engine left behind", processes=left)
            if self.state in lifecycle.GOING:
                self._around.ports.release(self.launch_id)
                self.happen(Happened.EXITED, end.text())
            else:
                self.fail(*(self._never_ready() if is_overdue else self._cause(end)), end, happened=Happened.EXITED)

    def _never_ready(self) -> tuple[str, str]:
        return "never-ready", sentence("never-ready", f"{self._around.settings.load_timeout_s} s")

    def _cause(self, end: End) -> tuple[str, str]:
        served = self._journal.first(Happened.PROBE_PASSED) is not None
        tail = self._tail(LINES_OF_FAILURE)
        if not served and end.exit_code in process.NEVER_RAN:
            return "launch-failed", sentence("launch-failed", tail[-1] if tail else end.text())
        return classify(tail, end.exit_code, end.signal, before_ready=not served)

    # --- from order to process ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.state not in _UNSTARTED:
            return
        self._told_progress_at = self._around.machine.monotonic()
        self.happen(Happened.FETCH_BEGUN)
        try:
            weights = str(self._around.fetcher.fetch(self._journal.order.source, self._on_progress))
        except GivenUp:
            return
        except FetchFailed as failed:
            self.fail(failed.code, failed.text)
            return
        with self._lock:
            if self.state not in _UNSTARTED or self._is_closed:
                return
            try:
                self._launch(weights)
            except CannotLaunch as cannot:
                self.fail(cannot.code, str(cannot))
            except OSError as error:
                self.fail(*of_system(error))

    def _on_progress(self, progress: Progress) -> None:
        with self._lock:
            if self._is_closed or self.state not in _UNSTARTED:
                raise GivenUp
            self._progress = progress
            now = self._around.machine.monotonic()
            if now - self._told_progress_at >= self._around.timing.progress:
                self._told_progress_at = now
                self._around.push(self.status())

    def _launch(self, weights: str) -> None:
        listen = self._around.settings.engine_host
        port = self._reserve_port()
        command = self._command(weights, listen, port)
        where: Mapping[str, Any] = {"listen": listen, "port": port, "argv": command.argv}
        if not self.happen(Happened.LAUNCH_BEGUN, f"port {port}", **where):
            self._change(**where)  # begun by a worker that died before there was a process
        self._spawn(command)

    def _reserve_port(self) -> int:
        settings = self._around.settings
        port = self._around.ports.reserve(self.launch_id)
        if port is None:
            first, last = settings.engine_ports
            raise CannotLaunch("port-in-use", f"every port from {first} to {last} on {settings.engine_host}")
        return port

    def _command(self, weights: str, host: str, port: int) -> Command:
        machine, settings, order = self._around.machine, self._around.settings, self._journal.order
        program = programs.find(order.engine, settings, machine)
        if self._engine is None or program is None:
            raise CannotLaunch("engine-missing", order.engine)
        threads = settings.cpu_threads or max(1, cgroups.cpus(machine) // 2)
        return self._engine.command(order, LaunchFacts(program, weights, host, port, threads))

    def _spawn(self, command: Command) -> None:
        machine = self._around.machine
        environment = engine_environment(machine.environment(), command.env, self.launch_id)
        child = process.spawn(command.argv, environment, self._folder.path, self._folder.log)
        machine.checkpoint("process-started")
        try:
            fingerprint = Fingerprint(
                launch_id=self.launch_id,
                pid=child.pid,
                pgid=child.pid,
                start_ticks=child.start_ticks,
                boot_id=machine.boot_id(),
                argv=command.argv,
            )
            self._folder.write_pid_file(fingerprint)
        except OSError:
            child.discard()
            raise
        machine.checkpoint("pid-file-written")
        self._process = child.release(fingerprint)
        self.happen(Happened.PROCESS_STARTED, f"pid {child.pid}")
