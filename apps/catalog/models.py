"""Tables of declared models and their profiles."""

from django.db import models
from django.db.models import Q


class CatalogRow(models.Model):
    """The one row that whoever writes the catalog locks first, so that names stay unique over all entries."""

    def __str__(self) -> str:
        return "the catalog"


class ModelRow(models.Model):
    """A catalog entry. Retired, not deleted; declared again under its name, it is the same row again."""

    name = models.CharField(max_length=63)
    aliases = models.JSONField(default=list, blank=True)
    source_uri = models.CharField("source", max_length=1000)
    source_size = models.BigIntegerField("size in bytes", null=True, blank=True)
    source_sha256 = models.CharField("SHA-256", max_length=64, blank=True)
    replicas = models.PositiveIntegerField("replicas wanted", default=1)
    priority = models.IntegerField(default=0)
    labels = models.JSONField(default=dict, blank=True)
    facts = models.JSONField("what is known of it", null=True, blank=True)
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        ordering = ("name",)
        verbose_name = "model"
        constraints = (
            models.UniqueConstraint(fields=("name",), condition=Q(retired_at__isnull=True), name="model_name_once"),
        )

    def __str__(self) -> str:
        return self.name


class ProfileRow(models.Model):
    """One way to run a model; `position` is the order of preference."""

    model = models.ForeignKey(ModelRow, on_delete=models.CASCADE, related_name="profiles")
    position = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=63)
    engine = models.CharField(max_length=32)
    device_classes = models.JSONField(default=list)
    devices = models.PositiveIntegerField(default=1)
    tensor_parallel = models.PositiveIntegerField(default=1)
    pipeline_parallel = models.PositiveIntegerField(default=1)
    nodes = models.PositiveIntegerField(default=1)
    quantization = models.CharField(max_length=32, blank=True)
    context_length = models.PositiveIntegerField("context length in tokens", null=True, blank=True)
    memory = models.BigIntegerField("memory per device in bytes", null=True, blank=True)
    arguments = models.JSONField(default=list, blank=True)
    fabric = models.CharField(max_length=63, blank=True, db_default="")

    class Meta:
        ordering = ("position", "id")
        verbose_name = "profile"
        constraints = (models.UniqueConstraint(fields=("model", "name"), name="profile_name_once"),)

    def __str__(self) -> str:
        return f"{self.model_id}:{self.name}"
