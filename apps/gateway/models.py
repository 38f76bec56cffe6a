"""The table that remembers what was last published."""

from django.db import models


class PublicationRow(models.Model):
    """The one row with the routing table's last revision and content."""

    revision = models.PositiveBigIntegerField(default=0)
    content = models.JSONField(default=dict)
    published_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"revision {self.revision}"
