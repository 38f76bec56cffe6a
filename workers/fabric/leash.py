"""Runs a program that must not outlive whoever asked for it: `python -m workers.fabric.leash PARENT PROGRAM …`.

The kernel tells this process when its parent has died, however that came about; it then ends its whole process group,
and so the program with all its children. The program in turn is killed by the kernel if this process is.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2)."""
_NOT_STARTED: Final = 127


def main(argv: Sequence[str]) -> int:
    """Run the program and return its exit code, 128 + N where signal N ended it."""
    parent, program = int(argv[0]), argv[1:]
    if os.getpgrp() != os.getpid():  # whoever asked is not to be ended with us
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, _end_all)
    _ask_for(signal.SIGTERM)
    if os.getppid() != parent:  # it died before the kernel knew that we want to be told
        return _NOT_STARTED
    here = os.getpid()
    child = os.fork()
    if child == 0:
        _become(program, here)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(program: Sequence[str], parent: int) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _ask_for(signal.SIGKILL)
    if os.getppid() == parent:
        try:
            os.execv(program[0], list(program))  # noqa: S606 – no shell is wanted
        except OSError as error:
            sys.stderr.write(f"{program[0]}: cannot execute: {error.strerror}\n")
            sys.stderr.flush()
    os._exit(_NOT_STARTED)


def _ask_for(signal_number: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def _end_all(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
