"""Registers the accounts app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.accounts"
    label = "accounts"
    default_auto_field = "django.db.models.BigAutoField"
