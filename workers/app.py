"""The node's Celery app, without Django: what it reads, and how it holds on to a broker that comes and goes."""

import signal
import warnings
from collections.abc import Callable
from typing import Any, Final

from celery import Celery
from celery.apps.worker import Worker
from celery.exceptions import SecurityWarning
from celery.worker import state
from kombu import Exchange, Queue
from kombu.common import Broadcast

from llmgw import broker
from llmgw.core import wire
from workers.settings import NodeSettings

THREADS: Final = 8
"""Tasks are short; one that hangs on a disk must not hold up the others."""


def make_app(settings: NodeSettings) -> Celery:
    """Return the app that reads this node's orders and everybody's ticks."""
    app = Celery("llmgw.node", amqp=broker.AMQP_CLASS, fixups=[])  # no fixups: those load Django where it is named
    orders = wire.node_queue(settings.id)
    app.conf.update(
        broker.SETTINGS,
        broker_transport_options={
            **broker.SETTINGS["broker_transport_options"],
            # A connection that has silently gone is noticed within five of these: before the node counts as lost.
            "health_check_interval": 2,
        },
        broker_url=settings.redis_url,
        task_default_queue=orders,
        task_queues=(
            Queue(orders, Exchange(orders), routing_key=orders),
            # A name that stays, so that no restart leaves a queue behind.
            Broadcast(wire.TICK_EXCHANGE, queue=f"ticks.{settings.id}", routing_key=wire.TICK_ROUTING_KEY),
        ),
        # An order is known by its id and sent again until it is answered: one that was taken need not come twice.
        task_acks_late=False,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,
    )
    return app


class NodeWorker(Worker):
    """Celery's worker with two signals that mean stop, and none that restarts it or ends tasks half way."""

    def install_platform_tweaks(self, worker: Any) -> None:
        """Install no signal handlers: `stop_on_signals` has."""


def stop_on_signals(then: Callable[[], None]) -> None:
    """From here on, SIGTERM and Ctrl-C let the worker finish its tasks and end; `then` is called as well."""

    def stop(*_: object) -> None:
        state.should_stop = 0  # type: ignore[assignment]  # the exit code, says Celery
        then()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def run_worker(app: Celery, name: str) -> int:
    """Read orders and ticks until a signal says stop; return the exit code."""
    # Said to those who run as root; what matters is that nothing but JSON is accepted.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = NodeWorker(
        app=app,
        hostname=f"{name}@llmgw",
        pool="threads",
        concurrency=THREADS,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
