"""Registers the replicas app, and has it told of all that a pass decides by."""

from functools import partial

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
        from apps.replicas.ids import new_id  # noqa: PLC0415

        for signal in (catalog_changed, nodes_changed, node_lost):
            signal.connect(listeners.look_again, dispatch_uid="replicas.look-again")
        # Held here: signals keep only weak references.
        self.welcome = partial(listeners.welcome, new_id)
        self.after_tick = partial(listeners.after_tick, new_id)
        node_returned.connect(self.welcome, dispatch_uid="replicas.welcome")
        ticked.connect(self.after_tick, dispatch_uid="replicas.after-tick")
