"""The audit table, which only grows."""

from typing import Any, NoReturn

from django.db import models


class AuditOnlyGrows(TypeError):
    """Somebody tried to change or delete what is kept for ever."""

    def __init__(self) -> None:
        super().__init__("audit entries are written once: they are never changed and never deleted")


class AuditRows(models.QuerySet["AuditRow"]):
    """Reads and adds; everything else is refused."""

    def update(self, **values: Any) -> NoReturn:
        raise AuditOnlyGrows

    def delete(self) -> NoReturn:
        raise AuditOnlyGrows

    def bulk_update(self, *rows: Any, **options: Any) -> NoReturn:
        raise AuditOnlyGrows


class AuditRow(models.Model):
    """One thing that somebody did; never changed, never deleted by the product."""

    at = models.DateTimeField(db_index=True)
    actor = models.CharField(max_length=150, db_index=True)
    door = models.CharField(max_length=20)
    """console, api, cli, beat, node or system."""
    address = models.CharField(max_length=64, blank=True)
    verb = models.CharField(max_length=64, db_index=True)
    """`model.declare`, `replica.drain`, …"""
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=200, db_index=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500, blank=True)

    objects = AuditRows.as_manager()

    class Meta:
        ordering = ("-id",)
        base_manager_name = "objects"
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.verb} {self.object_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new row; one that is there already is left as it is."""
        if not self._state.adding:
            raise AuditOnlyGrows
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AuditOnlyGrows
