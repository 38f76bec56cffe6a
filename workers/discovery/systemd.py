"""Asks systemd how a service is."""

from llmgw.core.hardware.gpus import Service
from workers import tools
from workers.ports import Machine
from workers.settings import NodeSettings


def service(machine: Machine, settings: NodeSettings, unit: str, version: str | None = None) -> Service:
    """Return a unit's state: `active`, `inactive`, `failed`, `not-found`; None in it where systemd does not tell."""
    answer = tools.ask(machine, settings, "systemctl", "show", unit, "-p", "LoadState", "-p", "ActiveState")
    return Service(unit=unit, state=parse(answer.out) if answer.ok else None, version=version)


def parse(text: str) -> str | None:
    """Read `LoadState=` and `ActiveState=`."""
    told = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return "not-found" if told.get("LoadState") == "not-found" else told.get("ActiveState") or None
