"""Registers the replicas app, and has it told of all that a pass decides by."""

from django.apps import AppConfig


class ReplicasConfig(AppConfig):
    """Names the app for Django."""

    name = "apps.replicas"
    label = "replicas"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen to the catalog and to the nodes."""
        # Models can be imported only now that all apps are there.
        from apps.catalog.signals import catalog_changed  # noqa: PLC0415
        from apps.nodes.signals import node_lost, node_returned, nodes_changed, ticked  # noqa: PLC0415
        from apps.replicas import listeners  # noqa: PLC0415

        for signal in (catalog_changed, nodes_changed, node_lost):
            signal.connect(listeners.look_again, dispatch_uid="replicas.look-again")
        node_returned.connect(listeners.welcome, dispatch_uid="replicas.welcome")
        ticked.connect(listeners.after_tick, dispatch_uid="replicas.after-tick")
