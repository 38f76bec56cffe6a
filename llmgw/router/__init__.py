"""The data plane: routes OpenAI requests to engines, without Django, Celery or a database."""
