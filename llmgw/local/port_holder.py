"""Who holds a port that we cannot have, as far as the kernel tells us."""

from pathlib import Path

LISTENING = "0A"


def who_holds(port: int, proc: Path = Path("/proc")) -> str | None:
    """Name the process that listens on a TCP port: `python app.py (pid 123)`; None when it cannot be known."""
    wanted = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _inodes(proc / "net" / name, port)}
    if not wanted:
        return None
    for process in proc.glob("[0-9]*"):
        if _has_one_of(process, wanted):
            return f"{_command(process)} (pid {process.name})"
    return None


def _inodes(table: Path, port: int) -> list[str]:
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row[9] for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port]


def _has_one_of(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(link.readlink()) in sockets for link in (process / "fd").iterdir())
    except OSError:
        # Gone meanwhile, or another user's.
        return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "a process"
    return b" ".join(words).decode("utf-8", "replace")[:200]
