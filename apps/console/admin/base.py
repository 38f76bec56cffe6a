"""What all pages share: they list and show rows; what changes a row is a verb of its app, never the admin itself."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from unfold.admin import ModelAdmin
from unfold.views import ChangeList as UnfoldChangeList

from apps.console import live

Verb = Callable[[HttpRequest, Any, str], str | None]
"""Acts on a row for a reason: returns what is to be said of it, or raises `Refused`."""


class Refused(Exception):
    """What was asked for was turned down, with its reason and cure."""


class ByName(UnfoldChangeList):  # type: ignore[misc]  # unfold has no types
    """A list whose links name the rows as operators do."""

    def url_for_result(self, result: Any) -> str:
        """Return the address of a row's page."""
        return str(self.model_admin.url_of(result))

    def get_results(self, request: HttpRequest) -> None:
        """Let the page's rows be given what the database does not know."""
        super().get_results(request)
        rows = list(self.result_list)  # type: ignore[has-type]  # Django sets it just before
        self.model_admin.complete(rows)
        self.result_list = rows
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count  # so that the head does not offer to show what is shown


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists rows and shows each on a page of ours; adds, changes and deletes nothing."""

    show_facets = ShowFacets.NEVER
    show_full_result_count = False
    list_per_page = 100
    list_fullwidth = True
    actions = None
    template = ""
    part = ""
    """The piece of the page that keeps itself fresh."""
    lookup = "pk"
    """The field that addresses a row."""

    # --- who may ------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody edits rows; verbs ask for their own permission."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes."""
        return False

    # --- lists --------------------------------------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """List with links by name."""
        return ByName

    def complete(self, rows: list[Any]) -> None:
        """Add to the rows of one list page what is not in their table."""

    def url_of(self, row: Any) -> str:
        """Return the address of a row's page."""
        meta = self.opts
        name = f"{self.admin_site.name}:{meta.app_label}_{meta.model_name}_change"
        return reverse(name, args=[admin.utils.quote(getattr(row, self.lookup))])

    # --- pages --------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Find a row by what addresses it."""
        is_number = object_id.isascii() and object_id.isdecimal() and len(object_id) < 19
        if not (is_number or (self.lookup == "name" and object_id.isprintable())):
            return None
        return self.page_rows(request).filter(**{self.lookup: object_id}).first()

    def page_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that have a page, with what it needs of other tables."""
        rows: QuerySet[Model] = self.get_queryset(request)
        return rows

    def seen(self, request: HttpRequest, object_id: str) -> Any:
        """Return a row that may be looked at; None when there is none."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a row's page, or the fresh part of it."""
        row = self.seen(request, object_id)
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return]
        facts = self.facts(request, row)
        return live.page(request, self.template, self.part, facts, lambda: self.frame(request, row))

    def facts(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the page says."""
        return {"row": row}

    def frame(self, request: HttpRequest, row: Any = None) -> dict[str, Any]:
        """Return what surrounds the page."""
        request.current_app = self.admin_site.name
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(row) if row is not None else str(self.opts.verbose_name),
            "original": row,
            "has_view_permission": True,
            "may": self.permissions(request),
        }

    def permissions(self, request: HttpRequest) -> dict[str, bool]:
        """Return what this person may do here, by word."""
        return {}

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Lead to the audit, which is the history of everything."""
        asked = unquote(object_id)
        return HttpResponseRedirect(f"{reverse('admin:audit_auditrow_changelist')}?object_id={asked}")

    # --- verbs --------------------------------------------------------------------------------------------------

    def verbs(self) -> dict[str, tuple[str, Verb]]:
        """Return what can be done to a row: word → (permission, what does it)."""
        return {}

    def get_urls(self) -> list[URLPattern]:
        """Give each verb an address below its row's."""
        wrap = self.admin_site.admin_view
        meta = self.opts
        own = [
            path(
                f"<path:object_id>/{word}/",
                wrap(self._act),
                {"word": word},
                name=f"{meta.app_label}_{meta.model_name}_{word}",
            )
            for word in self.verbs()
        ]
        return [*own, *super().get_urls()]

    def _act(self, request: HttpRequest, object_id: str, word: str) -> HttpResponse:
        """Carry a verb out, then show the row again with what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        permission, verb = self.verbs()[word]
        if not request.user.has_perm(permission):
            raise PermissionDenied
        row = self.seen(request, object_id)
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return]
        try:
            said = verb(request, row, request.POST.get("reason", "").strip())
        except Refused as no:
            messages.error(request, str(no))
        else:
            if said:
                messages.success(request, said)
        return HttpResponseRedirect(self.url_of(row))
