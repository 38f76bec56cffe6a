"""A node worker without a broker, to be killed by tests: orders as JSON lines in, statuses as JSON lines out."""

import os
import sys
from pathlib import Path

import msgspec
import structlog

from llmgw.core import wire
from workers.fetch import Fetcher
from workers.settings import NodeSettings
from workers.supervisor import Identity, StateRefused, Supervisor
from workers.system import RealMachine


def main(state: str, program: str, first: str, last: str) -> int:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    settings = NodeSettings(id="n1", state=Path(state), llama_server=program, engine_ports=(int(first), int(last)))
    machine = RealMachine(os.environ)
    try:
        identity = Identity.open(settings.state, machine)
    except StateRefused as no:
        tell({"refused": str(no)})
        return 3
    push = tell
    fetcher = Fetcher(settings)
    supervisor = Supervisor(
        machine=machine, settings=settings, identity=identity, fetcher=fetcher, push=push, findings_changed=lambda: None
    )
    supervisor.adopt()
    tell({"kept": supervisor.statuses(), "findings": supervisor.findings()})
    for line in sys.stdin:
        order = wire.order_from_wire(msgspec.json.decode(line))
        assert not isinstance(order, wire.Unreadable)
        answer, _ = supervisor.take(order)
        tell(answer)
    supervisor.close()
    return 0


def tell(what: object) -> None:
    os.write(1, msgspec.json.encode(what) + b"\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
