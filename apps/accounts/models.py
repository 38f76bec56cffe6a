"""Tables of secrets that are kept as hashes only."""

from django.conf import settings
from django.db import models


class SignInLinkRow(models.Model):
    """A link that signs one operator in, once."""

    sha256 = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"sign-in link of {self.user} until {self.expires_at:%H:%M:%S}"


class InferenceKeyRow(models.Model):
    """A key for `/v1/…` of the router. Cannot be used on the management API."""

    name = models.CharField(max_length=100, unique=True)
    prefix = models.CharField(max_length=16)
    """The first characters, to recognise it by."""
    sha256 = models.CharField(max_length=64, unique=True)
    allowed_models = models.JSONField(null=True, blank=True)
    """Served names that it may call; null allows all."""
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)
        verbose_name = "inference key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class ApiTokenRow(models.Model):
    """A token for the management API `/api/v1/…`. Cannot be used on the router."""

    name = models.CharField(max_length=100, unique=True)
    prefix = models.CharField(max_length=16)
    sha256 = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    """It may do what its owner may."""
    read_only = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
