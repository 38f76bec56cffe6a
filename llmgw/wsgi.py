"""The web process, for servers that speak WSGI only."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
application = get_wsgi_application()
