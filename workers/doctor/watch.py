"""Runs the doctor in the worker: a while after its start, then now and then, and when it is ordered."""

import threading
from collections.abc import Callable
from typing import Final

import structlog

from llmgw.core.hardware.examination import Examination
from llmgw.core.wire import Inventory
from workers.doctor import kept
from workers.doctor.environments import with_environments
from workers.doctor.run import examine, patient_of
from workers.ports import Machine
from workers.settings import NodeSettings

log = structlog.get_logger(__name__)

FIRST_S: Final = 5.0
"""After the start, so that it is in the way of nothing that has to begin."""


class DoctorWatch:
    """Examines the node in a thread of its own; what it finds is handed on."""

    def __init__(
        self,
        machine: Machine,
        settings: NodeSettings,
        inventory: Callable[[], Inventory | None],
        told: Callable[[Examination], None],
        *,
        first_s: float = FIRST_S,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._inventory = inventory
        self._told = told
        self._first_s = first_s
        self._asked = threading.Event()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="doctor", daemon=True).start()

    def ask(self) -> None:
        """Have it run as soon as it can; asked while it waits to begin, it runs once."""
        self._asked.set()

    def stop(self) -> None:
        """Run no more."""
        self._stopped.set()
        self._asked.set()

    def examine(self) -> Examination | None:
        """Run once; None before the machine was looked at for the first time."""
        inventory = self._inventory()
        if inventory is None:
            return None
        before = kept.read(self._machine, self._settings.state)
        patient = patient_of(
            self._machine,
            self._settings,
            inventory,
            earlier=before.counters if before else None,
            earlier_at=before.at if before else None,
        )
        told = with_environments(examine(patient), inventory)
        kept.write(self._machine, self._settings.state, patient.now, patient.counters)
        return told

    def _run(self) -> None:
        every = self._settings.doctor_s
        wait: float | None = min(self._first_s, every) if every else None
        while not self._stopped.is_set():
            self._asked.wait(wait)
            self._asked.clear()
            if self._stopped.is_set():
                return
            wait = self._try()

    def _try(self) -> float | None:
        """Examine and hand on; return how long to wait for the next time, None for an order."""
        try:
            told = self.examine()
            if told is None:
                return self._first_s
            self._told(told)
        except Exception:
            # What nobody has thought of must not end all examinations for the worker's life.
            log.exception("doctor failed")
        return self._settings.doctor_s or None
