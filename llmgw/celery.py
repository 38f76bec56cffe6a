"""The control plane's Celery app."""

import os
import sys
from typing import Any

from celery import Celery, signals

from llmgw import broker, logs, telemetry
from llmgw.core import wire

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

from django.conf import settings

from llmgw.schedule import beat_schedule

app = Celery("llmgw", amqp=broker.AMQP_CLASS)
app.conf.update(
    broker.SETTINGS,
    broker_url=settings.REDIS_URL,
    task_default_queue=wire.CONTROL_QUEUE,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    # In memory: the table is fixed, and a file could be torn. The first ticks come at once after a start.
    beat_scheduler="celery.beat:Scheduler",
    beat_schedule=beat_schedule(settings.LLMGW_HEARTBEAT_S, settings.LLMGW_RECONCILE_S),
    beat_max_loop_interval=1,
)
app.autodiscover_tasks()


def process_name() -> str:
    """Tell beat and worker apart; both are started as `celery -A llmgw.celery …`."""
    return "beat" if "beat" in sys.argv[1:] else "control"


@signals.setup_logging.connect
def configure_logs(**_: Any) -> None:
    """Keep Celery from setting up a log of its own."""
    logs.configure(process_name())


@signals.worker_init.connect
@signals.beat_init.connect
def configure_tracing(**_: Any) -> None:
    """Trace what is sent and run from here on."""
    telemetry.configure(process_name())
