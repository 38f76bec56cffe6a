"""Registers the console app, and its admin site in place of Django's."""

from django.apps import AppConfig
from django.contrib.admin import apps as admin


class ConsoleConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.console"
    label = "console"
    default = True
    default_auto_field = "django.db.models.BigAutoField"


class ConsoleSiteConfig(admin.AdminConfig):
    """Has Django's admin use our site; named in the settings."""

    default = False
    default_site = "apps.console.site.ConsoleSite"
