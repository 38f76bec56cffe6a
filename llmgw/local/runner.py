"""Keeps a table of programs running: starts each when its needs are met, again when it dies, and ends all together."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from llmgw.local import identity
from llmgw.local.identity import Identity
from llmgw.local.log import Log
from llmgw.local.state import Refused, StateFolder

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
LIVED_WELL_S: Final = 60.0
PROBE_FIRST_S: Final = 0.02
PROBE_LATER_S: Final = 0.25
PATIENCE_S: Final = 8.0
"""How long a program may take to end before it is killed."""

_LAST_WORDS_S: Final = 1.0

Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Program:
    """One program of ours."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    needs: tuple[str, ...] = ()
    """Programs and steps that must be ready before it is started for the first time."""
    probe: Probe | None = None
    """Tells whether it is ready; without one it is as soon as it runs."""
    is_ended_last: bool = False
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Something done once, in a thread of its own."""

    name: str
    do: Callable[[threading.Event], Refused | None]
    """Is told when all is to end; what it refuses ends all."""
    needs: tuple[str, ...] = ()


class Runner:
    """Runs programs and steps until a signal comes or a step fails."""

    def __init__(self, programs: list[Program], steps: list[Step], *, state: StateFolder, log: Log) -> None:
        self._programs = programs
        self._steps = steps
        self._state = state
        self._log = log
        self._running: dict[str, asyncio.subprocess.Process] = {}
        names = [program.name for program in programs] + [step.name for step in steps]
        self._ready = {name: asyncio.Event() for name in names}
        self._stop_asked = asyncio.Event()
        self._stopping = threading.Event()
        self._result: int | Refused = 0

    async def run(self) -> int | Refused:
        """Run everything; return the exit code of `up`, or what a step has refused."""
        loop = asyncio.get_running_loop()
        # Under nohup a hang-up is of no concern.
        hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])):
            loop.add_signal_handler(number, self._on_signal, number)
        tasks = [asyncio.create_task(self._keep(program)) for program in self._programs]
        tasks += [asyncio.create_task(self._do(step)) for step in self._steps]
        await self._stop_asked.wait()
        await self._end_all()
        # What was said last is still to be passed on.
        _, late = await asyncio.wait(tasks, timeout=_LAST_WORDS_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self._result

    def _on_signal(self, number: int) -> None:
        if not self._stop_asked.is_set():
            self._log.say(f"{signal.Signals(number).name}: stopping; engines stay as they are, once more to kill")
            self._stop()
        else:
            self._log.say("killing", level="warning")
            for process in self._running.values():
                _kill(process)

    def _end_with(self, result: int | Refused) -> None:
        self._result = result
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._stop_asked.set()
        for waited_for in self._ready.values():  # nobody need wait any more, to find that all is to end
            waited_for.set()

    # --- steps

    async def _do(self, step: Step) -> None:
        await self._needed(step.needs)
        if self._stop_asked.is_set():
            return
        try:
            refused = await asyncio.to_thread(step.do, self._stopping)
        except Exception as failure:  # noqa: BLE001  # whatever it is, nothing works without this step: say it and end
            if not self._stopping.is_set():
                self._log.say(f"{step.name} failed: {failure}", level="error", exception=traceback.format_exc())
                self._end_with(1)
            return
        if refused is not None:
            self._end_with(refused)
            return
        self._ready[step.name].set()

    async def _needed(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._ready:
                await self._ready[name].wait()

    # --- programs

    async def _keep(self, program: Program) -> None:
        await self._needed(program.needs)
        wait = 0.0
        while not self._stop_asked.is_set():
            began = asyncio.get_running_loop().time()
            ended = await self._run_once(program)
            if self._stop_asked.is_set():
                return
            lived = asyncio.get_running_loop().time() - began
            wait = FIRST_WAIT_S if lived > LIVED_WELL_S or not wait else min(wait * 2, LONGEST_WAIT_S)
            self._log.say(f"{program.name} {ended} after {lived:.1f} s, starts again in {wait:.0f} s", level="error")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_asked.wait(), wait)

    async def _run_once(self, program: Program) -> str:
        """Run it to its end; return how it ended."""
        here, there = os.pipe()
        try:
            process = await _spawn(program, there)
        except OSError as no:
            os.close(here)
            return f"could not be started ({program.argv[0]}: {no.strerror})"
        finally:
            os.close(there)
        self._running[program.name] = process
        if self._stop_asked.is_set():  # it came while we started this
            process.terminate()
        self._record(program.name, identity.identify(process.pid))
        beside = [asyncio.create_task(work) for work in (self._listen(program, here), self._await_ready(program))]
        code = await process.wait()
        # Whoever it started may hold its output open for long.
        await asyncio.wait(beside[:1], timeout=_LAST_WORDS_S / 2)
        for task in beside:
            task.cancel()
        self._ready[program.name].clear()
        del self._running[program.name]
        self._record(program.name, None)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _record(self, name: str, known: Identity | None) -> None:
        """Write down which process runs as `name`, or that none does; where that cannot be, it is kept all the same."""
        file = self._state.record(name)
        try:
            if known:
                self._state.write_bytes(file, identity.to_json(known))
            else:
                file.unlink(missing_ok=True)
        except OSError as no:
            self._log.say(f"cannot write down what runs as {name}: {no.strerror}", level="warning")

    async def _listen(self, program: Program, output: int) -> None:
        async for line in _lines(output):
            self._log.pass_on(program.name, line)

    async def _await_ready(self, program: Program) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        wait = PROBE_FIRST_S
        while program.probe and not await _passes(program.probe):
            await asyncio.sleep(wait)  # another process is asked: nobody here can tell us
            wait = min(wait * 1.5, PROBE_LATER_S)
        self._ready[program.name].set()
        if program.probe:
            self._log.say(f"{program.name} is ready", seconds=round(loop.time() - began, 2))

    # --- the end

    async def _end_all(self) -> None:
        last = {program.name for program in self._programs if program.is_ended_last}
        await self._end([process for name, process in self._running.items() if name not in last])
        await self._end([process for name, process in self._running.items() if name in last])

    async def _end(self, processes: list[asyncio.subprocess.Process]) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        waits = [asyncio.create_task(process.wait()) for process in processes]
        if waits:
            await asyncio.wait(waits, timeout=PATIENCE_S)
        for process in processes:
            _kill(process)
        await asyncio.gather(*waits)


async def _spawn(program: Program, output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program.argv,
        env=dict(program.environment),
        cwd=program.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        # A pipe of our own: asyncio's would make `wait` wait for everybody who holds its other end.
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        # Ctrl-C on the terminal is for us alone: a process group of its own.
        process_group=0,
        preexec_fn=end_with_parent if sys.platform == "linux" else None,
    )


# Loaded before any fork: between fork and exec there is no loading.
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG: Final = 1
_OURSELVES: Final = os.getpid()


def end_with_parent() -> None:
    """Have the kernel end this child when `up` is killed; engines, its grandchildren, do not inherit that."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != _OURSELVES:  # killed already
        os._exit(1)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill what still runs, with the rest of its process group; engines are in groups of their own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _passes(probe: Probe) -> bool:
    try:
        return await asyncio.wait_for(probe(), timeout=2)
    except (OSError, TimeoutError, EOFError, ValueError):
        return False


async def _lines(output: int) -> AsyncIterator[bytes]:
    """Split what comes out of a pipe into lines of any length, the last one too if it has no end."""
    reader = asyncio.StreamReader()
    pipe = os.fdopen(output, "rb", 0)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    try:
        pending = b""
        while chunk := await reader.read(65536):
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                yield line
        if pending:
            yield pending
    finally:
        transport.close()
