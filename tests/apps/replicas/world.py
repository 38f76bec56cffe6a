"""A control plane in one process: a clock, ids that count, and nodes that report whatever a test wants."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple

from apps.audit.actions import Actor
from apps.catalog import actions as catalog
from apps.replicas import actions, queries, reconcile
from apps.replicas.models import OrderRow, ReplicaRow, ShardRow
from llmgw.core import wire
from llmgw.core.lifecycle import Happened
from llmgw.core.plan import Plan, plan
from llmgw.core.units import NodeName, OrderId, Seconds
from llmgw.core.world import State
from tests.builders import NOW, a_model, a_status, an_inventory

ALICE = Actor("alice", "cli")
START = datetime.fromtimestamp(NOW, UTC)
WAY = (Happened.FETCH_BEGUN, Happened.LAUNCH_BEGUN, Happened.PROCESS_STARTED, Happened.PROBE_PASSED)
ON_THE_WAY = dict(zip((State.FETCHING, State.LAUNCHING, State.LOADING, State.READY), range(1, 5), strict=True))


class Begun(NamedTuple):
    """A pass of which nothing is carried out yet."""

    plan: Plan
    under: actions.Pass


class World:
    """The control plane, and a clock that stands still until a test moves it."""

    def __init__(self):
        self.now = START
        self._ids = count(1)

    def clock(self):
        return self.now

    def pass_by(self, seconds):
        self.now += timedelta(seconds=seconds)

    def new_id(self):
        return f"id-{next(self._ids)}"

    def declare(self, *models):
        done, *_ = catalog.declare_all(models or (a_model(),), by=ALICE, now=self.now)
        assert isinstance(done, catalog.Declared), done
        return done.row

    def passes(self):
        return reconcile.run(by=ALICE, clock=self.clock, ids=self.new_id)

    def ask_for_pass(self):
        actions.request_pass()
        return self.passes()

    def begin_pass(self, holder="somebody"):
        """Take the turn, look and plan, and leave the rest to the test."""
        turn = actions.take(holder, self.now)
        assert turn, "no pass is wanted, or somebody else is at it"
        view = queries.view()
        decided = plan(view.snapshot, Seconds(self.now.timestamp()))
        return Begun(decided, actions.Pass(turn, view, f"pass {turn.token}", self.now, self.clock, self.new_id))

    def report(self, report):
        return actions.record_report(report, now=self.now, new_id=self.new_id)

    def node(self, name="n1", **more):
        node = Teller(self, name, **more)
        node.join()
        return node

    def replica(self, name="smollm2/1"):
        model, _, ordinal = name.rpartition("/")
        return ReplicaRow.objects.select_related("model").get(
            model__name=model, ordinal=int(ordinal), gone_at__isnull=True
        )

    def shard(self, name="smollm2/1"):
        replica = self.replica(name)
        return replica.shards.select_related("node").get(attempt=replica.attempt)

    def serve(self, node=None, *models):
        """Declare, place and start until it serves."""
        node = node or self.node()
        self.declare(*models)
        self.passes()
        for shard in ShardRow.objects.filter(state=State.PLACED, node__name=node.name):
            node.tell(shard.launch_id, State.READY)
        return node


class Teller:
    """A node, as far as the control plane can see: what it reports."""

    def __init__(self, world, name="n1", *, instance=None, boot_id="boot-1", **inventory):
        self.world = world
        self.name = name
        self.instance = instance or f"folder-of-{name}"
        self.boot_id = boot_id
        self.epoch = 0
        self.session = 1
        self.told = 0
        self.inventory = an_inventory(**inventory)

    @property
    def seq(self):
        return self.session << 32 | self.told

    def head(self, **more):
        self.told += 1
        told = {
            "node": NodeName(self.name),
            "instance": self.instance,
            "boot_id": self.boot_id,
            "epoch": self.epoch,
            "seq": self.seq,
            "sent_at": Seconds(self.world.now.timestamp()),
        }
        return {**told, **more}

    def registration(self, *shards, answers=(), **more):
        return wire.Registration(
            address="127.0.0.1",
            inventory=self.inventory,
            shards=tuple(shards),
            answers=tuple(answers),
            **self.head(**more),
        )

    def shard_report(self, *shards, answers=(), **more):
        return wire.ShardReport(shards=tuple(shards), answers=tuple(answers), **self.head(**more))

    def join(self, *shards):
        """Register; if that was under another epoch than it has here, take the right one and register again."""
        outcome = self.world.report(self.registration(*shards))
        if outcome == "new-epoch":
            self.epoch = self.hellos()[-1].node.epoch
            outcome = self.world.report(self.registration(*shards))
        assert outcome == "taken", outcome

    def hellos(self):
        return list(OrderRow.objects.filter(kind="hello", node__name=self.name).select_related("node"))

    def status(self, launch_id, state=State.READY, *more_steps, **more):
        steps = [wire.Step(each, Seconds(NOW + at)) for at, each in enumerate(WAY[: ON_THE_WAY.get(state, 4)])]
        steps += [each if isinstance(each, wire.Step) else wire.Step(each, Seconds(NOW + 10)) for each in more_steps]
        shard = ShardRow.objects.filter(launch_id=launch_id).first()
        return a_status(launch_id, state=state, steps=steps, attempt=shard.attempt if shard else 1, **more)

    def tell(self, launch_id, state=State.READY, *more_steps, answer=True, **more):
        """Report how a launch is, with the answer to its order."""
        order = OrderRow.objects.filter(launch_id=launch_id, kind="launch").first()
        answers = [wire.Answer(OrderId(order.order_id), wire.AnswerKind.TAKEN)] if order and answer else []
        return self.world.report(self.shard_report(self.status(launch_id, state, *more_steps, **more), answers=answers))

    def fail(self, launch_id, text="out of memory"):
        failure = wire.Failure("out-of-memory", text, exit_code=1, tail=("loading", "failed to allocate"))
        return self.tell(launch_id, State.FAILED, Happened.FAILED, failure=failure)

    def stop(self, launch_id):
        return self.tell(launch_id, State.STOPPED, Happened.EXITED)
