"""The audit table."""

from django.db import models


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

    class Meta:
        ordering = ("-id",)
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.verb} {self.object_id}"
