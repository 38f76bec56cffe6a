"""Watches one running engine: sees its end at once, finds out when it serves and when not, and ends it when asked."""

import math
import os
import select
import signal
import threading
from pathlib import Path
from typing import Final, Protocol

import structlog

from llmgw.core.engines.base import Engine, Readiness
from llmgw.core.lifecycle import Happened
from llmgw.core.world import State
from workers.engines import listening, probe
from workers.engines.process import EngineProcess
from workers.supervisor import logfile
from workers.supervisor.journal import Journal
from workers.supervisor.surroundings import Surroundings

log = structlog.get_logger(__name__)

_NOW: Final = 0.0
_AFTER_A_BUG: Final = 1.0
_IDLE_LOOKS: Final = 2


class Watched(Protocol):
    """The launch whose engine this is."""

    @property
    def state(self) -> State:
        """Where it stands."""
        ...

    @property
    def journal(self) -> Journal:
        """What was ordered and done."""
        ...

    @property
    def log_file(self) -> Path:
        """What the engine prints."""
        ...

    def happen(self, happened: Happened, why: str = "") -> bool:
        """Move; False when the table forbids it."""
        ...

    def notice(self, oddity: str) -> None:
        """Keep, for people, what stands in the way of readiness; empty when nothing does."""
        ...

    def ended(self, watched: EngineProcess, *, is_overdue: bool = False) -> None:
        """Its process is no more; an overdue one was ended because it did not get ready in time."""
        ...


class Watch:
    """One thread's work for one engine: sleep until the engine ends, somebody wakes it, or something is due."""

    def __init__(self, launch: Watched, engine: Engine, process: EngineProcess, around: Surroundings) -> None:
        self._launch = launch
        self._engine = engine
        self._process = process
        self._around = around
        self._timing = around.timing
        self._guard = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_closed = False
        self._loading_since = self._monotonic()
        self._due = self._loading_since
        self._misses = 0
        self._idle = 0
        self._term_sent_at: float | None = None
        self._overdue_at = self._loading_since + self._time_to_load()
        self._is_overdue = False

    def _time_to_load(self) -> float:
        """Return how long it may still take until it first serves; for what has served once there is no limit."""
        limit, told = self._around.settings.load_timeout_s, self._launch.journal
        started = told.first(Happened.PROCESS_STARTED)
        if limit == 0 or started is None or told.first(Happened.PROBE_PASSED) is not None:
            return math.inf
        # An engine that was adopted has loaded under another worker, too.
        return limit - max(0.0, self._around.machine.now() - started)

    def _monotonic(self) -> float:
        return self._around.machine.monotonic()

    def wake(self) -> None:
        """Look again now: somebody else has moved the state."""
        with self._guard:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Leave the engine alone from now on."""
        self._is_closed = True
        self.wake()

    def run(self) -> None:
        """Watch until the engine has ended, or until `close`."""
        poll = select.poll()
        poll.register(self._process.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._is_closed:
            awake = {descriptor for descriptor, _ in poll.poll(self._milliseconds())}
            if self._process.fileno() in awake:
                self._let_go()
                self._launch.ended(self._process, is_overdue=self._is_overdue)
                return
            if self._wake in awake:
                os.eventfd_read(self._wake)
                self._due = _NOW
            self._act()
        self._let_go()
        self._process.close()

    def _let_go(self) -> None:
        with self._guard:
            os.close(self._wake)
            self._wake = -1

    def _milliseconds(self) -> float:
        return max(0.0, min(self._due - self._monotonic(), self._timing.log)) * 1000

    def _act(self) -> None:
        logfile.bound(self._launch.log_file, self._around.settings.engine_log_bytes)
        if self._is_closed or self._monotonic() < self._due:
            return
        try:
            wait = self._look()
        except Exception:
            # A bug of ours must not blind the node to an engine that runs.
            log.exception("watching broke", launch_id=self._launch.journal.launch_id)
            wait = _AFTER_A_BUG
        self._due = self._monotonic() + wait

    def _look(self) -> float:
        """Do what the state asks for, and return how long to wait until the next time."""
        state = self._launch.state
        if state is State.DRAINING:
            return self._drain()
        return self._end() if state is State.STOPPING or self._is_overdue else self._probe(state)

    # --- does it serve? -------------------------------------------------------------------------------------------

    def _probe(self, state: State) -> float:
        answer = self._answer(state)
        if answer is Readiness.READY:
            self._misses = 0
            self._overdue_at = math.inf
            self._launch.happen(Happened.PROBE_PASSED)  # forbidden, and no news, for what serves already
            return self._timing.alive
        if state is State.READY:
            self._misses += 1
            if self._misses < self._timing.misses:
                return self._timing.doubt
            self._loading_since = self._monotonic()
            self._launch.happen(Happened.PROBE_FAILED, f"{self._misses} looks in a row: {answer.value}")
        if self._monotonic() >= self._overdue_at:
            return self._give_up()
        return self._timing.loading(self._monotonic() - self._loading_since)

    def _answer(self, state: State) -> Readiness:
        told = self._launch.journal
        host, port, name = told.listen or "", told.port or 0, told.order.model
        answer = probe.readiness(self._engine, host, port, name, self._timing.probe_timeout)
        oddity = f"what answers on port {port} does not serve {name}" if answer is Readiness.FOREIGN else ""
        if answer is Readiness.READY and state is not State.READY and not self._is_ours(host, port):
            answer, oddity = Readiness.FOREIGN, f"port {port} is answered by a process that is not this launch's"
        self._launch.notice(oddity)
        return answer

    def _is_ours(self, host: str, port: int) -> bool:
        """Another launch may serve the same name: the one who listens must be of our process group."""
        return listening.all_held_by(host, port, self._process.group())

    def _give_up(self) -> float:
        log.warning("not ready in time, ended", launch_id=self._launch.journal.launch_id)
        self._is_overdue = True
        return _NOW

    # --- its end --------------------------------------------------------------------------------------------------

    def _drain(self) -> float:
        stop, now = self._launch.journal.stop, self._around.machine.now()
        if stop is None or now >= stop.until:
            return self._drained("the time to drain is over")
        if now < stop.asked_at + self._timing.settle:
            return stop.asked_at + self._timing.settle - now
        self._idle = self._idle + 1 if self._busy() == 0 else 0
        if self._idle >= _IDLE_LOOKS:
            return self._drained("no request is left")
        return min(self._timing.busy, stop.until - now)

    def _busy(self) -> int | None:
        told = self._launch.journal
        path = self._engine.busy_path
        return self._engine.busy(probe.ask(told.listen or "", told.port or 0, path, self._timing.probe_timeout))

    def _drained(self, why: str) -> float:
        self._launch.happen(Happened.STOP_ASKED, why)
        return _NOW

    def _end(self) -> float:
        now = self._monotonic()
        if self._term_sent_at is None:
            self._term_sent_at = now
            self._process.signal_group(signal.SIGTERM)
        left = self._term_sent_at + self._timing.kill_after - now
        if left <= 0:
            log.warning("does not end by SIGTERM, killed", launch_id=self._launch.journal.launch_id)
            self._process.signal_group(signal.SIGKILL)
            return self._timing.kill_after
        return left
