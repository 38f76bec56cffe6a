"""Registers the audit app."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.audit"
    label = "audit"
    default_auto_field = "django.db.models.BigAutoField"
