"""Registers the gateway app."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.gateway"
    label = "gateway"
    default_auto_field = "django.db.models.BigAutoField"
