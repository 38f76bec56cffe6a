"""Tables of replicas, shards, their moves, the outbox of orders, and reconcile passes."""

from django.db import models
from django.db.models import Q

from apps.catalog.models import ModelRow
from apps.nodes.models import NodeRow
from llmgw.core.units import ReplicaId, replica_id
from llmgw.core.world import State

STATES = [(s, s.value) for s in State]


class ReplicaRow(models.Model):
    """One slot of a model: it outlives its starts, and is archived when nobody wants it any more."""

    model = models.ForeignKey(ModelRow, on_delete=models.CASCADE, related_name="replica_rows")
    ordinal = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=STATES, default=State.QUEUED)
    state_since = models.DateTimeField()
    generation = models.PositiveIntegerField(default=0)
    """Rises with every write; what compare-and-set compares."""
    profile = models.CharField(max_length=63, blank=True)
    fingerprint = models.CharField(max_length=16, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0)
    """Starts after a failure, over the slot's whole life."""
    next_try_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    """When the present attempt first served."""
    why = models.CharField(max_length=500, blank=True)
    """Why it is in this state, in a sentence."""
    refusals = models.JSONField(default=list)
    """What the last pass that looked for a place found: `[{"node", "profile", "code", "text", "cure", "facts"}]`."""
    refusals_key = models.CharField(max_length=16, blank=True)
    """Digest of the refusals without what the clock alone changes: tells news without reading them."""
    created_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        ordering = ("model_id", "ordinal", "id")
        verbose_name = "replica"
        constraints = (
            models.UniqueConstraint(
                fields=("model", "ordinal"), condition=Q(gone_at__isnull=True), name="replica_slot_once"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> ReplicaId:
        """`<model>/<ordinal>`; costs a query unless the model was selected along."""
        return replica_id(self.model.name, self.ordinal)


class ShardRow(models.Model):
    """One launch on one node. Rows of earlier attempts are kept: they hold the failures."""

    replica = models.ForeignKey(ReplicaRow, on_delete=models.CASCADE, null=True, related_name="shards")
    """Null for a stray: a launch that a node has and nobody here ordered."""
    node = models.ForeignKey(NodeRow, on_delete=models.CASCADE, related_name="shards")
    launch_id = models.CharField(max_length=64, unique=True)
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField(default=0)
    devices = models.JSONField(default=list)
    profile = models.CharField(max_length=63, blank=True)
    state = models.CharField(max_length=16, choices=STATES)
    state_since = models.DateTimeField()
    seq = models.BigIntegerField(default=0)
    """Sequence number of the last report applied."""
    steps_seen = models.PositiveIntegerField(default=0)
    """How many of the node's steps are already in the transitions."""
    host = models.CharField(max_length=255, blank=True)
    port = models.PositiveIntegerField(null=True)
    pid = models.PositiveIntegerField(null=True)
    adopted = models.BooleanField(default=False)
    progress = models.JSONField(null=True)
    failure = models.JSONField(null=True)
    """`wire.Failure` of the end, if nobody asked for the end."""
    tail = models.JSONField(default=list)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("id",)
        verbose_name = "shard"
        indexes = (models.Index(fields=("replica", "attempt")), models.Index(fields=("state",)))

    def __str__(self) -> str:
        return self.launch_id


class TransitionRow(models.Model):
    """One move of a shard, or of a replica when `shard` is null."""

    replica = models.ForeignKey(ReplicaRow, on_delete=models.CASCADE, null=True, related_name="transitions")
    shard = models.ForeignKey(ShardRow, on_delete=models.CASCADE, null=True, related_name="transitions")
    attempt = models.PositiveIntegerField(default=0)
    at = models.DateTimeField()
    """When the control plane wrote it."""
    node_at = models.DateTimeField(null=True)
    """When the node saw it, by the node's clock; what durations are counted from."""
    happened = models.CharField(max_length=32)
    before = models.CharField(max_length=16)
    after = models.CharField(max_length=16)
    why = models.CharField(max_length=500, blank=True)
    by = models.CharField(max_length=150)

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=("replica", "attempt")),)

    def __str__(self) -> str:
        return f"{self.before} → {self.after}"


class OrderState(models.TextChoices):
    """Where an order stands in the outbox."""

    PENDING = "pending"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    EXPIRED = "expired"
    """Overtaken: the launch it is about has ended, or a later order says otherwise."""


class OrderRow(models.Model):
    """The outbox: an order is a row first, is sent on commit, and again until it is acknowledged or overtaken."""

    order_id = models.CharField(max_length=64, unique=True)
    node = models.ForeignKey(NodeRow, on_delete=models.CASCADE, related_name="orders")
    kind = models.CharField(max_length=16)
    launch_id = models.CharField(max_length=64, blank=True, db_index=True)
    payload = models.JSONField()
    """The order as JSON; its epoch is set anew at every sending."""
    state = models.CharField(max_length=16, choices=OrderState.choices, default=OrderState.PENDING)
    trace = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    sends = models.PositiveIntegerField(default=0)
    next_send_at = models.DateTimeField(null=True)
    answered_at = models.DateTimeField(null=True)
    answer = models.JSONField(null=True)

    class Meta:
        ordering = ("id",)
        verbose_name = "order"
        indexes = (models.Index(fields=("state", "next_send_at")),)

    def __str__(self) -> str:
        return f"{self.kind} {self.launch_id}"


class PassRow(models.Model):
    """One reconcile pass that did or refused something new."""

    token = models.PositiveBigIntegerField(unique=True)
    """The fencing token under which it wrote; rises with every pass, stored or not."""
    started_at = models.DateTimeField(db_index=True)
    duration_ms = models.FloatField()
    by = models.CharField(max_length=150)
    actions = models.JSONField(default=list)
    refusals = models.JSONField(default=list)
    lost_races = models.PositiveIntegerField(default=0)
    """Actions that were not applied since the row had moved meanwhile."""

    class Meta:
        ordering = ("-token",)
        verbose_name = "reconcile pass"
        verbose_name_plural = "reconcile passes"

    def __str__(self) -> str:
        return f"pass {self.token}"


class ReconcileRow(models.Model):
    """The one row that says whether a pass is wanted, who runs it, and under which token."""

    requested = models.PositiveBigIntegerField(default=0)
    """Rises in the transaction of every change that a pass should look at."""
    done = models.PositiveBigIntegerField(default=0)
    """`requested` as the last finished pass had read it before its snapshot."""
    token = models.PositiveBigIntegerField(default=0)
    holder = models.CharField(max_length=100, blank=True)
    held_until = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)
    """The moment that the last finished pass decided for."""
    finished_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"requested {self.requested}, done {self.done}, token {self.token}"
