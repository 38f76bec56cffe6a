"""What beat runs, in one table."""

from typing import Any, Final

HEARTBEAT: Final = "llmgw.nodes.heartbeat"
RECONCILE: Final = "llmgw.replicas.reconcile"
TIDY: Final = "llmgw.replicas.tidy"


def beat_schedule(heartbeat_s: float, reconcile_s: float) -> dict[str, dict[str, Any]]:
    """Return Celery's table; each entry expires before the next is due, so that a backlog never bursts."""
    return {
        "heartbeat": {"task": HEARTBEAT, "schedule": heartbeat_s, "options": {"expires": heartbeat_s}},
        "reconcile": {"task": RECONCILE, "schedule": reconcile_s, "options": {"expires": reconcile_s}},
        "tidy": {"task": TIDY, "schedule": 300.0, "options": {"expires": 300.0}},
    }
