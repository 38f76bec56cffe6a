"""Registers the catalog app."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.catalog"
    label = "catalog"
    default_auto_field = "django.db.models.BigAutoField"
