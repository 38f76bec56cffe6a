"""Registers the console app."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.console"
    label = "console"
    default_auto_field = "django.db.models.BigAutoField"
