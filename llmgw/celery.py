"""The control plane's Celery app."""

import os
import sys
import warnings
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning

from llmgw import broker, logs, telemetry
from llmgw.core import wire

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
# Django's checks load every page of the console, for a process that shows none; `make check` runs them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

from django.conf import settings

from llmgw.schedule import beat_schedule

# Messages are JSON and tasks are ours: as root, in a container say, they do no more harm than any program.
warnings.filterwarnings("ignore", category=SecurityWarning)

IS_BEAT = "beat" in sys.argv[1:]
"""Beat and worker are both started as `celery -A llmgw.celery …`; beat sends by name, and needs no Django."""

app = Celery("llmgw", amqp=broker.AMQP_CLASS, fixups=[] if IS_BEAT else None)
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
if not IS_BEAT:
    app.autodiscover_tasks()


def process_name() -> str:
    """Say under which name this process logs and traces."""
    return "beat" if IS_BEAT else "control"


@signals.setup_logging.connect
def configure_logs(**_: Any) -> None:
    """Keep Celery from setting up a log of its own."""
    logs.configure(process_name())


@signals.worker_init.connect
@signals.beat_init.connect
def configure_tracing(**_: Any) -> None:
    """Trace what is sent and run from here on."""
    telemetry.configure(process_name())
