"""What is kept of the past, and what goes."""

from datetime import timedelta

from django.contrib.sessions.models import Session

from apps.replicas import actions
from apps.replicas.actions import retention
from apps.replicas.models import OrderRow, PassRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core.world import State


def past_attempts(world, count):
    """Give the slot as many failed attempts before its present one."""
    node = world.serve()
    replica = world.replica()
    moment = {"state_since": world.now, "created_at": world.now, "ended_at": world.now}
    ShardRow.objects.filter(replica=replica).update(attempt=count + 1)
    ReplicaRow.objects.update(attempt=count + 1)
    shards = ShardRow.objects.bulk_create(
        ShardRow(
            replica=replica,
            node=world.shard().node,
            launch_id=f"past-{number}",
            attempt=number,
            state=State.FAILED,
            failure={"failure_class": "crashed", "text": f"number {number}"},
            **moment,
        )
        for number in range(1, count + 1)
    )
    TransitionRow.objects.bulk_create(
        TransitionRow(replica=replica, shard=shard, at=world.now, before="loading", after="failed", happened="failed")
        for shard in shards
    )
    TransitionRow.objects.bulk_create(
        TransitionRow(
            replica=replica, attempt=number, at=world.now, before="loading", after="failed", happened="failed"
        )
        for number in range(1, count + 1)
    )
    return node


def test_the_last_fifty_attempts_and_the_first_failure_stay(world):
    past_attempts(world, 70)
    actions.tidy(world.now)
    kept = list(ShardRow.objects.order_by("attempt").values_list("attempt", flat=True))
    assert kept == [1, *range(22, 72)]
    assert len(kept) == retention.ATTEMPTS_KEPT + 1
    assert set(
        TransitionRow.objects.filter(shard__launch_id__startswith="past").values_list("shard__attempt", flat=True)
    ) == {1, *range(22, 71)}


def test_a_replicas_own_moves_go_with_its_attempts(world):
    past_attempts(world, 70)
    actions.tidy(world.now)
    own = TransitionRow.objects.filter(shard__isnull=True, happened="failed").order_by("attempt")
    assert list(own.values_list("attempt", flat=True)) == [*range(22, 71)]


def test_what_still_runs_is_kept_however_old_its_attempt(world):
    past_attempts(world, 70)
    ShardRow.objects.filter(launch_id="past-5").update(state=State.STOPPING, ended_at=None)
    actions.tidy(world.now)
    assert ShardRow.objects.filter(launch_id="past-5").exists()


def test_closed_orders_go_after_a_day_and_open_ones_stay(world):
    world.serve()
    world.passes()
    ShardRow.objects.update(state=State.READY)
    OrderRow.objects.filter(kind="hello").update(state="pending", answered_at=None)
    world.pass_by(timedelta(days=1, seconds=1).total_seconds())
    assert actions.tidy(world.now)["orders"] == 1
    assert list(OrderRow.objects.values_list("kind", flat=True)) == ["hello"]


def test_the_last_passes_stay(world, monkeypatch):
    monkeypatch.setattr(retention, "PASSES_KEPT", 3)
    PassRow.objects.bulk_create(PassRow(token=100 + i, started_at=world.now, duration_ms=1.0) for i in range(5))
    assert actions.tidy(world.now)["passes"] == 2
    assert list(PassRow.objects.values_list("token", flat=True)) == [104, 103, 102]
    assert actions.tidy(world.now)["passes"] == 0


def test_a_strays_end_is_kept_for_a_day(world):
    node = world.node()
    node.tell("foreign", State.LOADING)
    node.stop("foreign")
    ShardRow.objects.update(ended_at=world.now)
    assert actions.tidy(world.now)["strays"] == 0
    world.pass_by(timedelta(days=2).total_seconds())
    assert actions.tidy(world.now)["strays"] >= 1
    assert not ShardRow.objects.exists()


def flap(world, times):
    """Have the one replica's engine stop answering and come back so many times, with the slot's own moves."""
    replica, shard = world.replica(), world.shard()
    moves = [("probe-failed", "ready", "loading"), ("probe-passed", "loading", "ready")] * times
    TransitionRow.objects.bulk_create(
        TransitionRow(
            replica=replica, shard=whose, attempt=1, at=world.now, happened=happened, before=before, after=after
        )
        for happened, before, after in moves
        for whose in (shard, None)
    )


def probes(**whose):
    return list(TransitionRow.objects.filter(happened__startswith="probe", **whose).values_list("happened", flat=True))


def test_of_an_engine_that_comes_and_goes_its_first_success_and_the_last_week_stay(world):
    world.serve()
    whole = TransitionRow.objects.exclude(happened__startswith="probe").count()
    flap(world, 5)
    assert actions.tidy(world.now)["flaps"] == 0
    world.pass_by(timedelta(days=8).total_seconds())
    flap(world, 1)
    first = TransitionRow.objects.filter(happened="probe-passed", shard__isnull=False).earliest("id")
    assert actions.tidy(world.now)["flaps"] > 0
    for whose in ({"shard__isnull": False}, {"shard__isnull": True}):
        assert probes(**whose) == ["probe-passed", "probe-passed", "probe-failed", "probe-passed"]
    assert TransitionRow.objects.filter(pk=first.pk).exists()
    assert TransitionRow.objects.exclude(happened__startswith="probe").count() == whole


def test_a_slot_that_nobody_wants_goes_after_a_month_with_all_it_owns(world):
    past_attempts(world, 2)
    ReplicaRow.objects.update(gone_at=world.now)
    assert actions.tidy(world.now)["slots"] == 0
    world.pass_by(timedelta(days=31).total_seconds())
    assert actions.tidy(world.now)["slots"] > 0
    assert not ReplicaRow.objects.exists()
    assert not ShardRow.objects.exists()
    assert not TransitionRow.objects.exists()


def test_sessions_that_are_over_go(world):
    for key, until in (("over", world.now - timedelta(seconds=1)), ("open", world.now + timedelta(days=1))):
        Session.objects.create(session_key=key, session_data="", expire_date=until)
    assert actions.tidy(world.now)["sessions"] == 1
    assert Session.objects.get().session_key == "open"
