"""What all launches of a node share."""

import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llmgw.core.units import LaunchId
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress, ShardStatus
from workers.engines.listening import free_port
from workers.ports import Machine
from workers.settings import NodeSettings


class Fetches(Protocol):
    """Brings weights here."""

    def fetch(self, source: Source, progress: Callable[[Progress], object]) -> Path:
        """Return where they are; raises FetchFailed, and whatever `progress` raises."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """How often and how long, in seconds."""

    probe: float = 0.02
    """Between two looks at an engine that has just been started; every slower step below is taken later."""
    probe_timeout: float = 2.0
    alive: float = 2.0
    """Between two looks at an engine that serves."""
    doubt: float = 0.5
    """Between two looks at one that served and did not answer."""
    misses: int = 3
    """Looks without an answer, in a row, until it counts as loading again."""
    settle: float = 0.5
    """Routers take so long to hear that an engine drains."""
    busy: float = 0.1
    """Between two questions whether it has still requests."""
    kill_after: float = 10.0
    """From SIGTERM to SIGKILL."""
    log: float = 1.0
    """Between two looks at the size of a log."""
    progress: float = 0.5
    """Between two reports of how far a fetch is."""

    def loading(self, since: float) -> float:
        """Return the wait until the next look at an engine that has loaded for so long."""
        if since < 3:
            return self.probe
        if since < 30:
            return max(self.probe, 0.1)
        return 0.25 if since < 300 else 1.0


class PortBook:
    """Which launch has which port, so that none is handed out twice."""

    def __init__(self, host: str, ports: tuple[int, int]) -> None:
        self._host = host
        self._ports = ports
        self._held: dict[LaunchId, int] = {}
        self._lock = threading.Lock()

    def reserve(self, launch_id: LaunchId) -> int | None:
        """Choose a port that is free now; raises OSError when the host is none of this machine's."""
        # The search begins elsewhere for each launch: a port that was just given up may still have callers.
        start = zlib.crc32(launch_id.encode())
        with self._lock:
            taken = {port for holder, port in self._held.items() if holder != launch_id}
            port = free_port(self._host, self._ports, start, taken)
            if port is not None:
                self._held[launch_id] = port
            return port

    def hold(self, launch_id: LaunchId, port: int) -> None:
        """Keep the port of an engine that was found running."""
        with self._lock:
            self._held[launch_id] = port

    def release(self, launch_id: LaunchId) -> None:
        """Give the port back."""
        with self._lock:
            self._held.pop(launch_id, None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine, the node's settings, and the ways out."""

    machine: Machine
    settings: NodeSettings
    fetcher: Fetches
    push: Callable[[ShardStatus], None]
    findings_changed: Callable[[], None]
    ports: PortBook
    timing: Timing
