"""Registers the nodes app."""

from django.apps import AppConfig


class NodesConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.nodes"
    label = "nodes"
    default_auto_field = "django.db.models.BigAutoField"
