"""Inference keys and API tokens: made and shown once, revoked, never read again."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from apps.accounts import actions, queries
from apps.accounts.actions import NameTaken
from apps.accounts.models import ApiTokenRow, InferenceKeyRow
from apps.catalog import queries as catalog
from apps.console.admin.base import ReadOnlyAdmin, Refused, Verb
from apps.console.request import clock, operator
from apps.console.templatetags.console import state, when

LONGEST_DAYS: Final = 3650


class SecretForm(forms.Form):
    """What every secret is made with."""

    name = forms.CharField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget,
        help_text="Says whose it is: team-search, ci-nightly. It stays in the audit for ever.",
    )
    days = forms.IntegerField(
        label="valid for days",
        required=False,
        min_value=1,
        max_value=LONGEST_DAYS,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Empty: until it is revoked.",
    )

    def expires_at(self, now: datetime) -> datetime | None:
        """Return when it ends."""
        days = self.cleaned_data["days"]
        return now + timedelta(days=days) if days else None


class KeyForm(SecretForm):
    """An inference key."""

    models = forms.CharField(
        label="models that it may call",
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="Names or aliases, with commas between them. Empty: all of them.",
    )

    def clean_models(self) -> list[str] | None:
        """Read the names; one that nobody serves is most likely mistyped."""
        asked = [name.strip() for name in self.cleaned_data["models"].split(",") if name.strip()]
        unknown = sorted(set(asked) - set(catalog.names_taken(catalog.declared())))
        if unknown:
            raise forms.ValidationError(
                f"nothing is served as {', '.join(unknown)} – correct it, or add the model first"
            )
        return asked or None


class TokenForm(SecretForm):
    """A token of the management API."""

    days = forms.IntegerField(
        label="valid for days",
        required=False,
        initial=90,
        min_value=1,
        max_value=LONGEST_DAYS,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Empty: until it is revoked.",
    )
    read_only = forms.BooleanField(
        label="may only read",
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="Refused for whatever changes something.",
    )


class SecretAdmin(ReadOnlyAdmin):
    """What keys and tokens have in common."""

    ordering = ("name",)
    search_fields = ("name", "prefix")
    lookup = "name"
    template = "console/secret.html"
    part = "console/secret_live.html"
    form_class: type[SecretForm] = SecretForm
    use = ""
    """How the secret is used, with `{secret}` where it goes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever has the permission makes one."""
        return request.user.has_perm(f"accounts.add_{self.opts.model_name}")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Ask for what is needed, then show the secret: this once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.form_class(request.POST or None)
        if request.method == "POST" and form.is_valid():
            made = self.make(request, form, clock())
            if not isinstance(made, NameTaken):
                return self._shown_once(request, *made)
            form.add_error("name", f"{made.text()} – {made.cure()}")
        context = {**self.frame(request), "title": f"Add {self.opts.verbose_name}", "form": form}
        return TemplateResponse(request, "console/secret_add.html", context)

    def make(self, request: HttpRequest, form: Any, now: datetime) -> tuple[Any, str] | NameTaken:
        """Make one."""
        raise NotImplementedError

    def _shown_once(self, request: HttpRequest, row: Any, secret: str) -> HttpResponse:
        use = self.use.format(secret=secret, address=request.build_absolute_uri("/").rstrip("/"))
        context = {**self.frame(request, row), "row": row, "secret": secret, "use": use, "url": self.url_of(row)}
        response = TemplateResponse(request, "console/secret_made.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description="state")
    def word(self, row: Any) -> SafeString:
        return state(queries.state_word(row, clock()))

    @admin.display(description="begins with")
    def begins(self, row: Any) -> str:
        return f"{row.prefix}…"

    @admin.display(description="made", ordering="created_at")
    def made(self, row: Any) -> SafeString | str:
        return when(row.created_at)

    @admin.display(description="expires", ordering="expires_at")
    def ends(self, row: Any) -> SafeString | str:
        return when(row.expires_at) if row.expires_at else "never"

    def permissions(self, request: HttpRequest) -> dict[str, bool]:
        """Return who may revoke."""
        return {"revoke": request.user.has_perm(self._revoking)}

    @property
    def _revoking(self) -> str:
        return f"accounts.delete_{self.opts.model_name}"

    def verbs(self) -> dict[str, tuple[str, Verb]]:
        """Revoke."""
        return {"revoke": (self._revoking, self.revoke)}

    def revoke(self, request: HttpRequest, row: Any, reason: str) -> str:
        """Let nobody in by it any more."""
        if not self.revoking(row.name, by=operator(request), now=clock(), reason=reason):
            raise Refused(f"{row.name} is revoked already")
        return f"{row.name} is revoked"

    revoking: Callable[..., bool]


@admin.register(InferenceKeyRow)
class KeyAdmin(SecretAdmin):
    """Keys of the router."""

    list_display = ("name", "begins", "word", "allowed", "made", "ends")
    form_class = KeyForm
    revoking = staticmethod(actions.revoke_inference_key)

    @admin.display(description="models")
    def allowed(self, row: InferenceKeyRow) -> str:
        return "all" if row.allowed_models is None else ", ".join(row.allowed_models) or "none"

    def facts(self, request: HttpRequest, row: InferenceKeyRow) -> dict[str, Any]:
        """Say all but the key."""
        facts = {"models that it may call": self.allowed(row)}
        return {"row": row, "word": queries.state_word(row, clock()), "extra": facts}

    def make(self, request: HttpRequest, form: Any, now: datetime) -> tuple[InferenceKeyRow, str] | NameTaken:
        """Make a key."""
        told = form.cleaned_data
        return actions.create_inference_key(
            told["name"], models=told["models"], expires_at=form.expires_at(now), by=operator(request), now=now
        )


@admin.register(ApiTokenRow)
class TokenAdmin(SecretAdmin):
    """Tokens of the management API; each may do what its owner may."""

    list_display = ("name", "begins", "word", "owner", "rights", "made", "ends", "used")
    list_select_related = ("user",)
    form_class = TokenForm
    use = 'curl -H "Authorization: Bearer {secret}" {address}/api/v1/whoami'
    revoking = staticmethod(actions.revoke_api_token)

    def page_rows(self, request: HttpRequest) -> QuerySet[ApiTokenRow]:
        """Fetch the owner along."""
        return ApiTokenRow.objects.select_related("user")

    @admin.display(description="owner", ordering="user__username")
    def owner(self, row: ApiTokenRow) -> str:
        return str(row.user.get_username())

    @admin.display(description="may")
    def rights(self, row: ApiTokenRow) -> str:
        return "read" if row.read_only else "what its owner may"

    @admin.display(description="last used", ordering="last_used_at")
    def used(self, row: ApiTokenRow) -> SafeString | str:
        return when(row.last_used_at) if row.last_used_at else "never"

    def facts(self, request: HttpRequest, row: ApiTokenRow) -> dict[str, Any]:
        """Say all but the token."""
        facts = {"owner": self.owner(row), "may": self.rights(row), "last used": self.used(row)}
        return {"row": row, "word": queries.state_word(row, clock()), "extra": facts}

    def make(self, request: HttpRequest, form: Any, now: datetime) -> tuple[ApiTokenRow, str] | NameTaken:
        """Make a token that belongs to whoever makes it."""
        if not isinstance(request.user, User):
            raise PermissionDenied
        told = form.cleaned_data
        return actions.create_api_token(
            told["name"],
            user=request.user,
            read_only=told["read_only"],
            expires_at=form.expires_at(now),
            by=operator(request),
            now=now,
        )
