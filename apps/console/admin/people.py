"""People and roles: Django's own pages, in our looks, with an audit entry for every change."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from apps.audit import actions as audit
from apps.console.request import clock, operator


class Audited(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Writes into our audit what Django would write into its own log."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record who was added."""
        return self._record(request, obj, "create", message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record who was changed, and which fields."""
        return self._record(request, obj, "change", message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Record who was deleted."""
        return [self._record(request, obj, "delete", []) for obj in queryset]

    def _record(self, request: HttpRequest, obj: Any, verb: str, message: Any) -> Any:
        kind = str(self.opts.model_name)
        told = {"told": message} if message else None
        return audit.record(operator(request), f"{kind}.{verb}", kind, str(obj), clock(), after=told)


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, Audited):  # type: ignore[type-arg]  # cannot be given one at run time
    """People who may sign in."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, Audited):
    """Sets of permissions."""
