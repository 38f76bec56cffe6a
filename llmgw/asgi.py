"""The web process."""

import os

from django.core.asgi import get_asgi_application

from llmgw import logs, telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

from llmgw import celery  # noqa: F401  # names the app that tasks are sent by

logs.configure("web")
telemetry.configure("web")  # before Django reads its middleware: tracing adds its own
application = get_asgi_application()
