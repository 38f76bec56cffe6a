"""Runs outside tools as children: each with a deadline and bounded output, none twice while the kernel holds the first.

A tool that asks a broken driver can end up where no signal reaches it. It is left there and remembered: until it has
gone, the same tool is not started again, so that never more than one of them waits.
"""

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from llmgw.core.units import Seconds, moment
from workers.ports import ToolResult
from workers.tools import name_of

MOST_BYTES: Final = 16 * 1024 * 1024
"""Of each of a tool's two outputs; what it prints beyond is dropped."""
_CHUNK: Final = 65536
_AFTER_KILL_S: Final = 1.0
_SECRET: Final = re.compile(r"LLMGW_NODE_|.*(?:TOKEN|PASSWORD|SECRET|CREDENTIAL|API_?KEY)", re.IGNORECASE)
"""Variables for the worker itself: its settings, with the password of its queue, and all that sounds secret."""
_LAST_WORDS_S: Final = 0.1
"""What is still in the pipes of a tool that has ended is read for so long: its children may go on printing."""

Child = subprocess.Popen[bytes]


class Children:
    """The tools that were started and have not ended. Every method may be called from any thread."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        most_bytes: int = MOST_BYTES,
        kill: Callable[[int, int], None] = os.killpg,
    ) -> None:
        """Take the worker's environment, which tools get without its secrets, and what ends a process group."""
        shown = {name: value for name, value in environment.items() if not _SECRET.match(name)}
        self._environment = {**shown, "LC_ALL": "C"}  # parsers know the English words
        self._most_bytes = most_bytes
        self._kill = kill
        self._lock = threading.Lock()
        self._running: set[Child] = set()
        self._held: dict[str, tuple[Child, Seconds]] = {}

    def run(self, argv: Sequence[str], timeout: float, now: Seconds) -> ToolResult:
        """Run a tool with empty input and return what it printed and how it ended."""
        since = self._held_since(name_of(argv))
        if since is not None:
            return ToolResult(None, problem=f"held up since {moment(since)}")
        try:
            tool = self._start(argv)
        except FileNotFoundError:
            return ToolResult(None, problem="not found")
        except OSError as error:
            return ToolResult(None, problem=f"not allowed: {error.strerror}")
        try:
            return self._hear_out(tool, timeout, name_of(argv), now)
        except BaseException:  # a person's ^C, mostly: the tool would go on without anybody to end it
            self._end(tool)
            with suppress(subprocess.TimeoutExpired):
                tool.wait(_AFTER_KILL_S)
            raise
        finally:
            self._let_go(tool)

    def end_all(self) -> None:
        """End the tools that run now; for a process that is about to end itself."""
        with self._lock:
            running = [tool for tool in self._running if tool.returncode is None]
        for tool in running:
            self._end(tool)

    def _held_since(self, name: str) -> Seconds | None:
        with self._lock:
            held = self._held.get(name)
            if held is None or held[0].poll() is not None:
                self._held.pop(name, None)
                return None
            return held[1]

    def _start(self, argv: Sequence[str]) -> Child:
        tool = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # so that its children end with it
        )
        with self._lock:
            self._running.add(tool)
        return tool

    def _hear_out(self, tool: Child, timeout: float, name: str, now: Seconds) -> ToolResult:
        with _Ears(tool, self._most_bytes) as ears:
            if ears.listen(time.monotonic() + timeout):
                return ToolResult(tool.wait(), *ears.texts())
            self._end(tool)
            if ears.listen(time.monotonic() + _AFTER_KILL_S):
                tool.wait()
            else:
                self._remember(name, tool, now)
            return ToolResult(None, *ears.texts(), problem=f"no answer within {timeout:g} s")

    def _remember(self, name: str, tool: Child, now: Seconds) -> None:
        with self._lock:
            self._held[name] = (tool, now)

    def _end(self, tool: Child) -> None:
        with suppress(ProcessLookupError, PermissionError):
            self._kill(tool.pid, signal.SIGKILL)

    def _let_go(self, tool: Child) -> None:
        with self._lock:
            self._running.discard(tool)
        for pipe in (tool.stdout, tool.stderr):
            if pipe:
                pipe.close()


class _Ears:
    """Takes in what a tool prints, until it has ended; a child of it that keeps its output open is not waited for."""

    def __init__(self, tool: Child, most_bytes: int) -> None:
        self._tool = tool
        self._most_bytes = most_bytes
        self._end = os.pidfd_open(tool.pid)
        self._heard: dict[int, bytearray] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        self._selector.register(self._end, selectors.EVENT_READ)
        for pipe in (self._tool.stdout, self._tool.stderr):
            if pipe:
                self._heard[pipe.fileno()] = bytearray()
                self._selector.register(pipe, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        os.close(self._end)

    def listen(self, deadline: float) -> bool:
        """Listen until the tool has ended and all is read, or until the deadline; tell whether it has ended."""
        has_ended = False
        while True:
            ready = [key.fd for key, _ in self._selector.select(0 if has_ended else max(0.0, _left(deadline)))]
            pipes = [fd for fd in ready if fd != self._end]
            for fd in pipes:
                self._take(fd)
            if self._end in ready and not has_ended:
                has_ended, deadline = True, min(deadline, time.monotonic() + _LAST_WORDS_S)
            if (has_ended and not pipes) or _left(deadline) <= 0:
                return has_ended

    def texts(self) -> tuple[str, str]:
        """Return both outputs; wrong bytes are replaced."""
        out, err = (bytes(said).decode("utf-8", errors="replace") for said in self._heard.values())
        return out.replace("\r\n", "\n"), err.replace("\r\n", "\n")

    def _take(self, fd: int) -> None:
        data = os.read(fd, _CHUNK)
        heard = self._heard[fd]
        heard += data[: self._most_bytes - len(heard)]
        if not data:
            self._selector.unregister(fd)


def _left(deadline: float) -> float:
    return deadline - time.monotonic()
