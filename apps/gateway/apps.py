"""Registers the gateway app, and has it told of all that the router must know."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.gateway"
    label = "gateway"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen to whatever changes the routing table, and to the ticks, after which Redis is looked at."""
        # Models can be imported only now that all apps are there.
        from apps.accounts.signals import keys_changed  # noqa: PLC0415
        from apps.catalog.signals import catalog_changed  # noqa: PLC0415
        from apps.gateway import publish  # noqa: PLC0415
        from apps.nodes.signals import nodes_changed, ticked  # noqa: PLC0415
        from apps.replicas.signals import routes_changed  # noqa: PLC0415

        for signal in (routes_changed, keys_changed, catalog_changed, nodes_changed):
            signal.connect(publish.request, dispatch_uid="gateway.publish")
        ticked.connect(publish.check, dispatch_uid="gateway.check")
