"""The node side: a Celery worker without Django and without a database."""
