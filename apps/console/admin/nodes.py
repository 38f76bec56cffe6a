"""Nodes: the list, and the page that says what a machine is, what it does and what is wrong with it."""

from typing import Any, Final

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from apps.console import look, machine
from apps.console.admin.base import ReadOnlyAdmin, Refused, Verb
from apps.console.request import clock, operator
from apps.console.templatetags.console import seconds, state
from apps.nodes import actions, heartbeats, queries
from apps.nodes.actions import NotFound, NotLost
from apps.nodes.models import NodeRow, ReportCountRow
from apps.replicas import actions as replicas
from apps.replicas.models import OrderState, ShardRow
from llmgw.core.hardware.examination import Examination
from llmgw.core.lifecycle import LIVE
from llmgw.core.wire import Inventory
from llmgw.core.world import NodeState

CHANGE: Final = "nodes.change_noderow"
FORGET: Final = "nodes.delete_noderow"
MOST_MOVES: Final = 20
MOST_NAMED: Final = 4


class WordFilter(admin.SimpleListFilter):
    """By the state word that operators read."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer all words."""
        return [(word, word) for word in (*NodeState, "cordoned")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[NodeRow]) -> QuerySet[NodeRow]:
        """Narrow to one word."""
        asked = self.value()
        if asked == "cordoned":
            return queryset.filter(cordoned=True)
        return queryset.filter(state=asked) if asked in set(NodeState) else queryset


@admin.register(NodeRow)
class NodeAdmin(ReadOnlyAdmin):
    """Every machine that has joined."""

    list_display = ("name", "word", "heard", "devices", "running", "problems", "address")
    list_filter = (WordFilter,)
    search_fields = ("name", "address")
    ordering = ("name",)
    lookup = "name"
    template = "console/node.html"
    part = "console/node_live.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[NodeRow]:
        """Fetch devices along, and what runs: five queries, however many nodes there are."""
        alive = ShardRow.objects.filter(state__in=LIVE).select_related("replica__model").order_by("id")
        return NodeRow.objects.prefetch_related("devices", Prefetch("shards", alive, to_attr="alive"))

    def complete(self, rows: list[NodeRow]) -> None:
        """Ask Redis once who was heard when."""
        heard = heartbeats.last_heard(clock())
        for row in rows:
            row.heard_ago = heard.get(row.name)  # type: ignore[attr-defined]  # for the column below

    @admin.display(description="state")
    def word(self, row: NodeRow) -> SafeString:
        return state(queries.state_word(row))

    @admin.display(description="last heard")
    def heard(self, row: NodeRow) -> str:
        ago = getattr(row, "heard_ago", None)
        return "–" if ago is None else f"{seconds(round(ago))} ago"

    @admin.display(description="devices")
    def devices(self, row: NodeRow) -> str:
        return queries.devices_in_words(row)

    @admin.display(description="running")
    def running(self, row: NodeRow) -> str:
        replicas = [shard.replica for shard in getattr(row, "alive", ()) if shard.replica]
        shown = [(look.replica_url(each.pk), each.name) for each in replicas[:MOST_NAMED]]
        told = format_html_join(", ", '<a href="{}">{}</a>', shown)
        return f"{told} …" if len(replicas) > MOST_NAMED else told or "–"

    @admin.display(description="problems")
    def problems(self, row: NodeRow) -> str:
        sick = sum(bool(device.unhealthy) for device in row.devices.all())
        found = row.ailments + len(row.findings)
        told = [f"{sick} not placeable" if sick else "", f"{found} found" if found else ""]
        return ", ".join(part for part in told if part) or "–"

    def facts(self, request: HttpRequest, row: NodeRow) -> dict[str, Any]:
        """Gather all that is known of the node."""
        alive = list(getattr(row, "alive", ()))
        inventory = machine.inventory_of(row)
        examination = queries.examination_of(row)
        return {
            **_hardware(row, inventory, examination, alive),
            "row": row,
            "word": queries.state_word(row),
            "heard_ago": heartbeats.last_heard(clock()).get(row.name),
            "alive": alive,
            "moves": row.transitions.order_by("-id")[:MOST_MOVES],
            "counts": ReportCountRow.objects.filter(node_name=row.name).order_by("-count"),
            "orders": row.orders.filter(state__in=(OrderState.PENDING, OrderState.SENT)).order_by("id")[:MOST_MOVES],
        }

    def permissions(self, request: HttpRequest) -> dict[str, bool]:
        """Return who may cordon and forget."""
        return {"change": request.user.has_perm(CHANGE), "forget": request.user.has_perm(FORGET)}

    def verbs(self) -> dict[str, tuple[str, Verb]]:
        """Cordon, uncordon, examine, forget."""
        return {
            "cordon": (CHANGE, cordon),
            "uncordon": (CHANGE, uncordon),
            "examine": (CHANGE, examine),
            "forget": (FORGET, forget),
        }


def _hardware(
    row: NodeRow, inventory: Inventory | None, examination: Examination | None, alive: list[ShardRow]
) -> dict[str, Any]:
    return {
        "inventory": inventory,
        "devices": machine.device_lines(row.devices.all(), alive, inventory.gpus if inventory else ()),
        "ports": machine.port_lines(inventory) if inventory else [],
        "fabrics": machine.fabric_lines(inventory) if inventory else [],
        "proposals": inventory.proposals if inventory else (),
        "findings": machine.findings_of(row, inventory),
        "problems": inventory.problems if inventory else (),
        "engines": sorted(inventory.engines.items()) if inventory else [],
        "doctor": machine.doctor_of(examination),
    }


def examine(request: HttpRequest, row: NodeRow, reason: str) -> str:
    """Have its doctor run."""
    _checked(replicas.examine(row.name, by=operator(request), now=clock(), reason=reason))
    return f"the doctor of {row.name} is to run now; what it finds shows here in a few seconds"


def cordon(request: HttpRequest, row: NodeRow, reason: str) -> str:
    """Keep new work away."""
    _checked(actions.cordon(row.name, by=operator(request), now=clock(), reason=reason))
    return f"{row.name} takes nothing new; what runs there goes on"


def uncordon(request: HttpRequest, row: NodeRow, reason: str) -> str:
    """Let new work come again."""
    _checked(actions.uncordon(row.name, by=operator(request), now=clock(), reason=reason))
    return f"{row.name} takes new work again"


def forget(request: HttpRequest, row: NodeRow, reason: str) -> str:
    """Delete a lost node."""
    _checked(actions.forget(row.name, by=operator(request), now=clock(), reason=reason))
    return f"{row.name} is forgotten"


def _checked(done: NodeRow | NotFound | NotLost | None) -> None:
    if isinstance(done, NotFound | NotLost):
        raise Refused(f"{done.text()} – {done.cure()}")
