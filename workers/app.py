"""The node's Celery app, without Django: what it reads, and how it holds on to a broker that comes and goes."""

import warnings
from typing import Final

from celery import Celery
from celery.exceptions import SecurityWarning
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


def run_worker(app: Celery, name: str) -> int:
    """Read orders and ticks until a signal says stop; return the exit code."""
    # Said to those who run as root; what matters is that nothing but JSON is accepted.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(
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
