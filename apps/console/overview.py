"""What the first page says: is it all right, what needs somebody, and what happened lately."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from apps.catalog.models import ModelRow
from apps.console import look, pulse
from apps.console.pulse import Pulse
from apps.nodes import queries as nodes
from apps.nodes.models import NodeRow, NodeTransitionRow
from apps.replicas import queries as replicas
from apps.replicas.models import OrderRow, OrderState, ReplicaRow, TransitionRow
from llmgw.core.lifecycle import state_word
from llmgw.core.refusals import DeviceUnhealthy, NodeCordoned, NodeLost, NodeNotJoined, NodeUnreachable, Refusal
from llmgw.core.units import NodeName
from llmgw.core.world import NodeState, State

MOST_ITEMS: Final = 30
MOST_MOVES: Final = 15
LATE_SENDS: Final = 3
"""An order that was sent so often and is not answered is worth a look."""
JOINING_LONG: Final = timedelta(seconds=60)

_NODE_REFUSALS: Final[Mapping[str, Callable[[NodeName], Refusal]]] = MappingProxyType(
    {"joining": NodeNotJoined, "cordoned": NodeCordoned, "unreachable": NodeUnreachable, "lost": NodeLost}
)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that needs somebody."""

    tone: str
    """`bad` before `warn`."""
    what: str
    url: str
    word: str
    text: str
    cure: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class NodeChip:
    """A node in the map of the fleet."""

    name: str
    url: str
    word: str

    @property
    def tone(self) -> str:
        """Return the tone of its state."""
        return look.tone(self.word)

    @property
    def sign(self) -> str:
        """Return the sign of its state."""
        return look.sign(self.word)


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model in a line."""

    name: str
    url: str
    ready: int
    wanted: int
    sentence: str

    @property
    def tone(self) -> str:
        """Return how it is to be looked at."""
        if self.ready >= self.wanted:
            return "good"
        return "warn" if self.ready else "bad"


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that happened."""

    at: datetime
    what: str
    url: str
    before: str
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page; parts that this person may not look at are None."""

    pulse: Pulse
    nodes: tuple[NodeChip, ...] | None
    node_states: tuple[tuple[str, int], ...]
    models: tuple[ModelLine, ...] | None
    ready: int
    wanted: int
    items: tuple[Item, ...]
    moves: tuple[Move, ...]

    @property
    def verdict(self) -> str:
        """Say in a few words whether it is all right."""
        if self.pulse.troubles:
            return "not known"
        count = len(self.items)
        return "all right" if not count else f"{count} {'thing needs' if count == 1 else 'things need'} a look"

    @property
    def tone(self) -> str:
        """Return the tone of the verdict: never good while something is silent."""
        if self.pulse.troubles:
            return "bad"
        return self.items[0].tone if self.items else "good"


def gather(user: AbstractBaseUser | AnonymousUser, now: datetime) -> Overview:
    """Gather what this person may see, in a fixed number of queries."""
    sees_nodes = _may(user, "nodes.view_noderow")
    sees_replicas = _may(user, "replicas.view_replicarow")
    node_rows = list(nodes.known()) if sees_nodes else []
    model_rows = list(replicas.models()) if _may(user, "catalog.view_modelrow") and sees_replicas else None
    lines = None if model_rows is None else [_line(row) for row in model_rows]
    items = [*_of_nodes(node_rows, now), *(_of_replicas() if sees_replicas else ()), *_of_orders(user)]
    return Overview(
        pulse=pulse.take(now),
        nodes=tuple(_chip(row) for row in node_rows) if sees_nodes else None,
        node_states=tuple(Counter(nodes.state_word(row) for row in node_rows).most_common()),
        models=None if lines is None else tuple(sorted(lines, key=lambda line: (line.tone == "good", line.name))),
        ready=sum(line.ready for line in lines or ()),
        wanted=sum(line.wanted for line in lines or ()),
        items=tuple(sorted(items, key=lambda item: item.tone)),
        moves=tuple(_moves(sees_nodes=sees_nodes, sees_replicas=sees_replicas)),
    )


def _may(user: AbstractBaseUser | AnonymousUser, permission: str) -> bool:
    return bool(getattr(user, "has_perm", lambda _: False)(permission))


def _chip(row: NodeRow) -> NodeChip:
    return NodeChip(row.name, look.node_url(row.name), nodes.state_word(row))


def _line(row: ModelRow) -> ModelLine:
    present = replicas.replicas_of(row)
    ready = replicas.count_ready(present)
    return ModelLine(
        row.name, look.model_url(row.name), ready, row.replicas, replicas.state_sentence(row.replicas, present)
    )


# --- what needs somebody ------------------------------------------------------------------------------------------


def _of_nodes(rows: Sequence[NodeRow], now: datetime) -> Iterator[Item]:
    for row in rows:
        url = look.node_url(row.name)
        word = nodes.state_word(row)
        joins = word == NodeState.JOINING and now - row.state_since < JOINING_LONG
        if word != NodeState.READY and not joins:
            no = _NODE_REFUSALS[word](NodeName(row.name))
            yield Item(look.tone(word), row.name, url, word, no.text(), no.cure(), row.state_since)
        for device in row.devices.all():
            if device.unhealthy:
                sick = DeviceUnhealthy(device.device_id, device.unhealthy, device.unhealthy_code, device.label)
                yield Item("bad", row.name, url, "unhealthy", sick.text(), sick.cure(), None)
        for finding in row.findings:
            yield Item(
                "warn", row.name, url, str(finding.get("code", "finding")), str(finding.get("text", "")), "", None
            )


def _of_replicas() -> Iterator[Item]:
    troubled = replicas.shown().filter(state__in=(State.QUEUED, State.FAILED, State.LOST))
    for row in troubled:
        word = state_word(State(row.state), row.failures)
        url = look.replica_url(row.pk)
        failure = next((shard.failure for shard in replicas.shards_of(row) if shard.failure), None)
        if row.refusals:
            yield Item(_tone_of(row), row.name, url, word, *_in_one_sentence(row), row.state_since)
        elif failure or row.state != State.QUEUED:
            text = str((failure or {}).get("text") or row.why)
            yield Item(_tone_of(row), row.name, url, word, text, "", row.state_since)


def _tone_of(row: ReplicaRow) -> str:
    return "warn" if row.state == State.QUEUED else "bad"


def _in_one_sentence(row: ReplicaRow) -> tuple[str, str]:
    """Say why there is no place, most frequent reason first, and what would cure that one."""
    groups = replicas.grouped(row.refusals)
    if len(groups) == 1 and len(groups[0]["nodes"]) <= 1:
        at = f"{groups[0]['nodes'][0]}: " if groups[0]["nodes"] else ""
        return f"{at}{groups[0]['text']}", str(groups[0]["cure"])
    told = ", ".join(f"{group['count']} × {group['code']}" for group in groups)
    return f"no place: {told}", str(groups[0]["cure"])


def _of_orders(user: AbstractBaseUser | AnonymousUser) -> Iterator[Item]:
    if not _may(user, "replicas.view_orderrow"):
        return
    late = OrderRow.objects.filter(state__in=(OrderState.PENDING, OrderState.SENT), sends__gte=LATE_SENDS)
    for order in late.select_related("node")[:MOST_ITEMS]:
        text = f"its order to {order.kind} was sent {order.sends} times and is not answered"
        url = look.node_url(order.node.name)
        yield Item("warn", order.node.name, url, "silent", text, "look at the worker's log there", order.created_at)


# --- what happened ------------------------------------------------------------------------------------------------


def _moves(*, sees_nodes: bool, sees_replicas: bool) -> list[Move]:
    found = [*(_node_moves() if sees_nodes else ()), *(_replica_moves() if sees_replicas else ())]
    return sorted(found, key=lambda move: move.at, reverse=True)[:MOST_MOVES]


def _node_moves() -> Iterator[Move]:
    rows = NodeTransitionRow.objects.select_related("node").order_by("-id")
    for row in rows[:MOST_MOVES]:
        yield Move(row.at, row.node.name, look.node_url(row.node.name), row.before, row.after, row.why)


def _replica_moves() -> Iterator[Move]:
    rows = TransitionRow.objects.filter(shard__isnull=True, replica__isnull=False).order_by("-id")
    for row in rows.select_related("replica__model")[:MOST_MOVES]:
        if row.replica is None:
            continue  # the query has none of these
        yield Move(row.at, row.replica.name, look.replica_url(row.replica.pk), row.before, row.after, row.why)
