"""Registers the replicas app."""

from django.apps import AppConfig


class ReplicasConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.replicas"
    label = "replicas"
    default_auto_field = "django.db.models.BigAutoField"
