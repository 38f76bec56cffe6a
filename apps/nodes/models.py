"""Tables of nodes, their devices, their moves, and of the reports that were taken or ignored."""

from django.db import models

from llmgw.core.world import DeviceKind, NodeState


class NodeRow(models.Model):
    """One machine."""

    name = models.CharField(max_length=63, unique=True)
    address = models.CharField(max_length=255)
    state = models.CharField(max_length=16, choices=[(s, s.value) for s in NodeState], default=NodeState.JOINING)
    state_since = models.DateTimeField()
    epoch = models.PositiveIntegerField(default=1)
    """Rises when the node is given up, or comes with another boot id or state folder; fences orders and reports."""
    instance = models.CharField(max_length=64, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    last_seq = models.BigIntegerField(default=0)
    """Highest sequence number seen of this instance."""
    registered_seq = models.BigIntegerField(default=0)
    """That of the last registration: an older one that comes late would undo it."""
    inventory_seq = models.BigIntegerField(default=0)
    """That of the last report which carried an inventory."""
    last_tick = models.BigIntegerField(default=0)
    """The last tick that it was heard to answer, as of the last change of its state."""
    last_heard_at = models.DateTimeField(null=True)
    """When the control plane last had a registration, a return or a report from it, by the control plane's clock."""
    digest_differs = models.PositiveIntegerField(default=0)
    """Sweeps in a row in which the node's digest was not ours."""
    cordoned = models.BooleanField(default=False)
    labels = models.JSONField(default=dict, blank=True)
    engines = models.JSONField(default=list, db_default=[])
    """Names of those that it can start."""
    disk_free = models.BigIntegerField(null=True)
    fabrics = models.JSONField(default=list, db_default=[])
    """The fabrics that it is attached to, as `Attachment`s."""
    findings = models.JSONField(default=list)
    """What its worker found odd about launches; what is wrong with the hardware stands in the inventory."""
    ailments = models.PositiveIntegerField(default=0, db_default=0)
    """How many findings about its hardware the inventory holds, for lists."""
    examination_seq = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        ordering = ("name",)
        verbose_name = "node"

    def __str__(self) -> str:
        return self.name


class NodeFactsRow(models.Model):
    """What a node told at length. Kept apart, since passes and reports read nodes often and this never."""

    node = models.OneToOneField(NodeRow, on_delete=models.CASCADE, primary_key=True, related_name="facts")
    inventory = models.JSONField(default=dict)
    """The last one, but for the devices, which have rows of their own."""
    examination = models.JSONField(null=True)
    """The doctor's last run."""

    def __str__(self) -> str:
        return f"facts of node {self.node_id}"


class DeviceRow(models.Model):
    """One device of a node, as last reported."""

    node = models.ForeignKey(NodeRow, on_delete=models.CASCADE, related_name="devices")
    device_id = models.CharField(max_length=100)
    kind = models.CharField(max_length=8, choices=[(k, k.value) for k in DeviceKind])
    device_class = models.CharField(max_length=64)
    memory = models.BigIntegerField()
    slots = models.PositiveIntegerField(default=1)
    unhealthy = models.CharField(max_length=500, blank=True)
    unhealthy_code = models.CharField(max_length=64, blank=True, db_default="")
    number = models.IntegerField(null=True)
    """The driver's index of a card; of a MIG instance 1000 + 100 × card + instance."""
    label = models.CharField(max_length=32, blank=True, db_default="")
    """What a person calls it: `3`, `3/mig1`."""
    card = models.CharField(max_length=100, blank=True, db_default="")
    """For a MIG instance the id of its card."""
    capability = models.CharField(max_length=16, blank=True, db_default="")
    """A card's compute capability: `9.0`."""
    nvlink = models.CharField(max_length=100, blank=True, db_default="")
    """The group of cards that reach each other by NVLink, named by its first card."""
    domain = models.CharField(max_length=100, blank=True, db_default="")
    """The NVLink domain over several nodes."""

    class Meta:
        ordering = ("id",)
        verbose_name = "device"
        constraints = (models.UniqueConstraint(fields=("node", "device_id"), name="device_once"),)

    def __str__(self) -> str:
        return self.device_id


class NodeTransitionRow(models.Model):
    """One move of a node."""

    node = models.ForeignKey(NodeRow, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    before = models.CharField(max_length=16)
    after = models.CharField(max_length=16)
    why = models.CharField(max_length=500)
    by = models.CharField(max_length=150)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.before} → {self.after}"


class ReportCountRow(models.Model):
    """How many reports of a node were taken, and how many ignored for which reason."""

    node_name = models.CharField(max_length=63)
    """Not a key: a report may name a node that nobody knows."""
    outcome = models.CharField(max_length=32)
    """`taken`, or why not: `repeated`, `stale-epoch`, `stale-seq`, `unreadable`, `unknown-node`, `other-instance`;
    `new-epoch` for a registration that was answered with another epoch."""
    count = models.PositiveBigIntegerField(default=0)
    last_at = models.DateTimeField()
    last_detail = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("node_name", "outcome"), name="report_count_once"),)

    def __str__(self) -> str:
        return f"{self.node_name} {self.outcome}: {self.count}"
