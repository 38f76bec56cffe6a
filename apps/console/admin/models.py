"""Models: the list, the form that declares one, the page that says what became of it, and its retirement."""

from collections.abc import Mapping
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from apps.audit import queries as audit
from apps.audit.models import AuditRow
from apps.catalog import actions
from apps.catalog import queries as catalog
from apps.catalog.actions import CREATED, UNCHANGED, Declared, Stale
from apps.catalog.models import ModelRow
from apps.console import examples
from apps.console.admin.base import ReadOnlyAdmin
from apps.console.admin.model_form import ProfileForms, Sheet
from apps.console.difference import Change, changes
from apps.console.foresight import Foreseen, foresee
from apps.console.request import clock, operator
from apps.console.templatetags.console import when
from apps.nodes.models import DeviceRow
from apps.replicas import queries
from apps.replicas.explain import Explanation, explain
from llmgw.core import validation
from llmgw.core.wanted import Model

ADD: Final = "catalog.add_modelrow"
CHANGE: Final = "catalog.change_modelrow"
DELETE: Final = "catalog.delete_modelrow"


@admin.register(ModelRow)
class ModelAdmin(ReadOnlyAdmin):
    """The catalog."""

    list_display = ("name", "ready", "sentence", "known_as", "engines", "priority", "changed")
    search_fields = ("name", "source_uri", "aliases")
    ordering = ("name",)
    lookup = "name"
    template = "console/model.html"
    part = "console/model_live.html"

    # --- who may ------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever has the permission adds; the verb writes."""
        return request.user.has_perm(ADD)

    def permissions(self, request: HttpRequest) -> dict[str, bool]:
        """Return who may edit and retire."""
        return {"change": request.user.has_perm(CHANGE), "delete": request.user.has_perm(DELETE)}

    # --- the list -----------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelRow]:
        """Declared models with profiles, replicas and shards: four queries, however many there are."""
        return queries.models()

    def page_rows(self, request: HttpRequest) -> QuerySet[ModelRow]:
        """Retired ones have pages, too."""
        return ModelRow.objects.prefetch_related("profiles").order_by("retired_at")

    @admin.display(description="ready")
    def ready(self, row: ModelRow) -> str:
        return f"{queries.count_ready(queries.replicas_of(row))}/{row.replicas}"

    @admin.display(description="state")
    def sentence(self, row: ModelRow) -> str:
        return queries.state_sentence(row.replicas, queries.replicas_of(row))

    @admin.display(description="aliases")
    def known_as(self, row: ModelRow) -> str:
        return ", ".join(row.aliases) or "–"

    @admin.display(description="runs by")
    def engines(self, row: ModelRow) -> str:
        return ", ".join(f"{each.engine} on {' or '.join(each.device_classes)}" for each in row.profiles.all())

    @admin.display(description="changed", ordering="changed_at")
    def changed(self, row: ModelRow) -> SafeString | str:
        return when(row.changed_at)

    # --- the page -----------------------------------------------------------------------------------------------

    def facts(self, request: HttpRequest, row: ModelRow) -> dict[str, Any]:
        """Gather what was asked for and what became of it."""
        replicas = queries.replicas_of(row) if row.retired_at is None else []
        told = explain(row.name, clock()) if row.retired_at is None else None
        return {
            "row": row,
            "explanation": told if isinstance(told, Explanation) else None,
            "replicas": replicas,
            "ready": queries.count_ready(replicas),
            "sentence": queries.state_sentence(row.replicas, replicas),
            "profiles": row.profiles.all(),
            "model": catalog.model_of(row),
            "curl": examples.curl(row.name),
            "entries": audit.latest(object_id=row.name, limit=5)
            if request.user.has_perm("audit.view_auditrow")
            else [],
        }

    # --- the form -----------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Edit at an address of its own: the row's page is for looking."""
        edit = path("<path:object_id>/edit/", self.admin_site.admin_view(self.edit_view), name="catalog_modelrow_edit")
        return [edit, *super().get_urls()]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Declare a model that is not there."""
        if not request.user.has_perm(ADD):
            raise PermissionDenied
        return self._form(request, None)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a model that is there."""
        if not request.user.has_perm(CHANGE):
            raise PermissionDenied
        row = self.seen(request, object_id)
        if row is None or row.retired_at is not None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return]
        return self._form(request, row)

    def _form(self, request: HttpRequest, row: ModelRow | None) -> HttpResponse:
        named = row.name if row else None
        if request.method != "POST":
            document = validation.model_to_document(catalog.model_of(row)) if row else None
            return self._show(request, row, Sheet.of(document, row.revision if row else None))
        if "_another" in request.POST:
            return self._show(request, row, Sheet.typed(_with_another(request.POST), named))
        sheet = Sheet.typed(request.POST, named)
        read = None if sheet.has_problems else sheet.read()
        if isinstance(read, Model):
            return (
                self._look(request, row, sheet, read)
                if "_look" in request.POST
                else self._save(request, row, sheet, read)
            )
        sheet.place(read or ())
        return self._show(request, row, sheet)

    def _look(self, request: HttpRequest, row: ModelRow | None, sheet: Sheet, model: Model) -> HttpResponse:
        """Say what the next pass would do, and save nothing."""
        seen = foresee(model, by=operator(request), now=clock())
        if isinstance(seen, Foreseen):
            return self._show(request, row, sheet, plan=seen)
        sheet.place(seen)
        return self._show(request, row, sheet)

    def _save(self, request: HttpRequest, row: ModelRow | None, sheet: Sheet, model: Model) -> HttpResponse:
        reason = sheet.model.cleaned_data["reason"]
        done = actions.declare_seen(model, seen=sheet.seen, by=operator(request), now=clock(), reason=reason)
        if isinstance(done, Declared):
            messages.success(request, f"{done.row.name} {_DONE.get(done.change, 'is changed')}")
            return HttpResponseRedirect(self.url_of(done.row))
        if isinstance(done, Stale):
            return self._show_stale(request, row, model, done)
        sheet.place(done)
        return self._show(request, row, sheet)

    def _show_stale(self, request: HttpRequest, row: ModelRow | None, model: Model, stale: Stale) -> HttpResponse:
        """Keep what was typed, show what others did meanwhile, and let it be saved knowingly."""
        data = request.POST.copy()
        data["revision"] = "" if stale.now is None else str(stale.now)
        present = catalog.find(stale.name)
        stored = validation.model_to_document(catalog.model_of(present)) if present else {}
        context = {
            "stale": stale,
            "meanwhile": _meanwhile(stale),
            "differs": changes(_complete(stored), _complete(validation.model_to_document(model))),
        }
        return self._show(request, row, Sheet.typed(data, row.name if row else None), **context)

    def _show(self, request: HttpRequest, row: ModelRow | None, sheet: Sheet, **context: Any) -> HttpResponse:
        frame = self.frame(request, row)
        title = f"Edit {row.name}" if row else "Add a model"
        classes = DeviceRow.objects.order_by("device_class").values_list("device_class", flat=True).distinct()
        told = {"title": title, "row": row, "sheet": sheet, "classes": list(classes), **context}
        return TemplateResponse(request, "console/model_form.html", {**frame, **told})

    # --- the end ------------------------------------------------------------------------------------------------

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Name what would stop, then retire the entry."""
        if not request.user.has_perm(DELETE):
            raise PermissionDenied
        row = self.seen(request, object_id)
        if row is None or row.retired_at is not None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return]
        if request.method == "POST":
            reason = request.POST.get("reason", "").strip()
            if actions.retire(row.name, by=operator(request), now=clock(), reason=reason):
                messages.success(request, f"{row.name} is retired; what runs of it is drained")
            return HttpResponseRedirect(reverse("admin:catalog_modelrow_changelist"))
        context = {"title": f"Retire {row.name}", "row": row, "replicas": queries.replicas_of(row)}
        return TemplateResponse(request, "console/model_retire.html", {**self.frame(request, row), **context})


_DONE: Final = {CREATED: "is declared; a pass looks for a place now", UNCHANGED: "is as it was: nothing was written"}


def _with_another(data: Any) -> Any:
    """Return what was typed, with one more profile."""
    typed = data.copy()
    count = int(ProfileForms(data, prefix="profiles").total_form_count())
    typed["profiles-TOTAL_FORMS"] = str(count + 1)
    for name, each in ProfileForms.form.base_fields.items():
        typed[f"profiles-{count}-{name}"] = "" if name == "name" else str(each.initial or "")
    typed[f"profiles-{count}-ORDER"] = str(count + 1)
    return typed


def _meanwhile(stale: Stale) -> list[tuple[AuditRow, tuple[Change, ...]]]:
    """Return what others wrote since: each revision is one entry of the audit."""
    count = max((stale.now or 0) - (stale.seen or 0), 1)
    rows = AuditRow.objects.filter(object_type="model", object_id=stale.name)[: min(count, 10)]
    return [(row, changes(_complete(row.before), _complete(row.after))) for row in rows]


def _complete(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Say what a document leaves out, so that a difference shows it; nothing stays nothing."""
    return {"aliases": [], "priority": 0, **document} if document else {}
