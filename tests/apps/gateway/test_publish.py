"""The routing table: what is in it, when it is published, and that Redis never keeps an old one."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from django.core.management import call_command
from django.db import connection, transaction

from apps.accounts import actions as accounts
from apps.audit.actions import SYSTEM
from apps.catalog import actions as catalog
from apps.catalog.models import ModelRow
from apps.gateway import publish, queries
from apps.gateway.models import PublicationRow
from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow
from apps.nodes.redis import client
from apps.nodes.signals import ticked
from apps.replicas.models import ReplicaRow, ShardRow
from apps.replicas.signals import routes_changed
from llmgw.core import wire
from llmgw.core.routing import Endpoint, Key, Route, Table, decode, encode
from llmgw.core.units import ModelName
from llmgw.core.wanted import Model, Profile, Source
from llmgw.core.world import NodeState, State

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
CREATED = int(NOON.timestamp())


def declare(name="smollm2", **told):
    model = Model(ModelName(name), Source("file:///models/a.gguf"), (Profile("cpu", "llamacpp"),), **told)
    catalog.declare(model, by=SYSTEM, now=NOON)
    return ModelRow.objects.get(name=name)


def a_node(name="gpu07", state=NodeState.READY):
    return NodeRow.objects.create(name=name, address="127.0.0.1", state=state, state_since=NOON)


def a_shard(model, node, ordinal=1, state=State.READY, **told):
    known = {"state_since": NOON, "created_at": NOON}
    replica, _ = ReplicaRow.objects.get_or_create(
        model=model, ordinal=ordinal, defaults={"state": state, "attempt": 1, **known}
    )
    launch = {"launch_id": f"launch-{ordinal}", "attempt": 1, "host": "127.0.0.2", "port": 9000 + ordinal, **told}
    return ShardRow.objects.create(replica=replica, node=node, state=state, **known, **launch)


def an_endpoint(ordinal=1, model="smollm2"):
    return Endpoint(f"{model}/{ordinal}", f"launch-{ordinal}", "127.0.0.2", 9000 + ordinal)


def in_redis():
    raw = client().get(wire.ROUTES_KEY)
    return decode(raw) if isinstance(raw, bytes) else None


# --- what is in it


def test_a_ready_replica_is_reached_by_its_name_and_aliases():
    a_shard(declare(aliases=("small",)), a_node())
    route = Route("smollm2", (an_endpoint(),), CREATED)
    assert publish.publish().routes == {"smollm2": route, "small": route}


def test_a_model_without_a_ready_replica_is_known_and_has_no_endpoint():
    a_shard(declare(), a_node(), state=State.LOADING)
    assert publish.publish().routes == {"smollm2": Route("smollm2", (), CREATED)}


def test_several_replicas_in_the_order_of_their_ordinals():
    model, node = declare(replicas=3), a_node()
    for ordinal in (3, 1, 2):
        a_shard(model, node, ordinal)
    assert publish.publish().routes["smollm2"].endpoints == tuple(an_endpoint(ordinal) for ordinal in (1, 2, 3))


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (NodeState.READY, True),
        (NodeState.UNREACHABLE, True),
        (NodeState.LOST, False),
        (NodeState.JOINING, False),
    ],
)
def test_a_node_that_is_only_unreachable_is_still_asked(state, asked):
    a_shard(declare(), a_node(state=state))
    assert bool(publish.publish().routes["smollm2"].endpoints) is asked


def test_only_the_present_attempt_of_a_replica_that_is_there_is_asked():
    model, node = declare(), a_node()
    a_shard(model, node, attempt=2, launch_id="of-another-attempt")
    a_shard(model, node, 2, launch_id="of-one-that-is-gone")
    ReplicaRow.objects.filter(ordinal=2).update(gone_at=NOON)
    a_shard(model, node, 3, launch_id="not-yet-all-of-it")
    ReplicaRow.objects.filter(ordinal=3).update(state=State.LOADING)
    a_shard(model, node, 4, launch_id="second-rank", rank=1)
    a_shard(model, node, 5, launch_id="without-a-port", port=None)
    assert publish.publish().routes["smollm2"].endpoints == ()


def test_the_nodes_address_stands_in_for_a_host_that_was_not_told():
    a_shard(declare(), a_node(), host="")
    assert [each.host for each in publish.publish().routes["smollm2"].endpoints] == ["127.0.0.1"]


def test_a_retired_model_is_unknown():
    a_shard(declare(), a_node())
    catalog.retire("smollm2", by=SYSTEM, now=NOON)
    assert publish.publish().routes == {}


def test_keys_are_in_it_as_hashes_until_they_are_revoked():
    until = NOON + timedelta(days=1)
    made = accounts.create_inference_key("web", models=["smollm2"], expires_at=until, by=SYSTEM, now=NOON)
    assert isinstance(made, tuple)
    key = Key("web", ("smollm2",), until.timestamp())
    assert publish.publish().keys == {made[0].sha256: key}
    accounts.revoke_inference_key("web", by=SYSTEM, now=NOON)
    assert publish.publish().keys == {}


def test_the_setting_that_lets_everybody_in(settings):
    assert publish.publish().open is False
    settings.LLMGW_ROUTER_OPEN = True
    assert publish.publish().open is True


# --- when it is published


def test_the_revision_rises_with_the_content_only():
    first = publish.publish()
    assert publish.publish().revision == first.revision == 1
    declare()
    assert publish.publish().revision == 2


@pytest.mark.parametrize("kept", [{}, {"aliases": ("b", "a"), "replicas": 2}])
def test_content_that_went_through_the_database_is_the_same(kept):
    a_shard(declare(**kept), a_node())
    accounts.create_inference_key("web", models=["smollm2"], expires_at=NOON, by=SYSTEM, now=NOON)
    revision = publish.publish().revision
    assert publish.publish().revision == revision
    assert queries.published() == publish.publish() == in_redis()


def edit_model():
    declare(replicas=2)


def make_key():
    accounts.create_inference_key("other", by=SYSTEM, now=NOON)


def lose_node():
    nodes.mark("gpu07", NodeState.READY, NodeState.LOST, why="silent", by=SYSTEM, now=NOON)


def stop_shard():
    with transaction.atomic():
        ShardRow.objects.update(state=State.DRAINING)
        routes_changed.send(ShardRow)


@pytest.mark.parametrize("change", [lambda: declare(aliases=("a",)), make_key, lose_node, stop_shard])
def test_each_change_is_in_redis_once_it_is_committed(change):
    a_shard(declare(), a_node())
    before = publish.publish()
    change()
    after = in_redis()
    assert after is not None
    assert after.revision == before.revision + 1
    assert after == queries.published()


def test_what_no_router_needs_to_know_is_not_published():
    declare()
    before = in_redis()
    with client().pubsub() as ear:
        ear.subscribe(wire.ROUTES_CHANNEL)
        assert ear.get_message(timeout=1)
        edit_model()
        assert ear.get_message(timeout=0.05) is None
    assert in_redis() == before


def test_routers_are_told_once_for_all_that_one_transaction_changed():
    with client().pubsub() as ear:
        ear.subscribe(wire.ROUTES_CHANNEL)
        assert ear.get_message(timeout=1)
        with transaction.atomic():
            declare("a")
            declare("b")
            make_key()
            assert in_redis() is None
        message = ear.get_message(timeout=1)
        assert message is not None
        assert message["data"] == b"1"
        assert ear.get_message(timeout=0.05) is None
    table = in_redis()
    assert table is not None
    assert (set(table.routes), len(table.keys)) == ({"a", "b"}, 1)


def test_what_was_rolled_back_is_not_published():
    def change_and_fail():
        with transaction.atomic():
            declare("a")
            raise ValueError("not after all")

    with pytest.raises(ValueError, match="not after all"):
        change_and_fail()
    assert in_redis() is None
    declare("b")
    assert set(queries.published().routes) == {"b"}


def test_a_savepoint_that_was_rolled_back_does_not_hold_back_what_comes_after():
    with transaction.atomic():
        with transaction.atomic():
            declare("a")
            transaction.set_rollback(True)
        declare("b")
    assert set(queries.published().routes) == {"b"}


def test_publishing_takes_a_handful_of_queries(django_assert_num_queries):
    model, node = declare(replicas=40), a_node()
    for ordinal in range(1, 41):
        a_shard(model, node, ordinal)
    publish.publish()
    ShardRow.objects.filter(launch_id="launch-1").update(state=State.DRAINING)
    # begin, the row, models, shards, keys, the row again, commit
    with django_assert_num_queries(7):
        publish.publish()


# --- Redis


def tick():
    for _, outcome in ticked.send_robust(NodeRow, tick=1, beats={}, now=NOON):
        assert not isinstance(outcome, Exception), outcome


def test_an_emptied_redis_has_the_table_again_at_the_next_tick():
    a_shard(declare(), a_node())
    table = publish.publish()
    client().flushall()
    tick()
    assert in_redis() == table


def test_the_first_tick_publishes_what_nothing_has_published_yet():
    tick()
    assert in_redis() == Table(1)


def test_a_tick_without_news_publishes_nothing(django_assert_num_queries):
    declare()
    publish.publish()
    with client().pubsub() as ear:
        ear.subscribe(wire.ROUTES_CHANNEL)
        assert ear.get_message(timeout=1)
        with django_assert_num_queries(1):
            publish.check()
        assert ear.get_message(timeout=0.05) is None


def test_a_redis_that_outlives_the_database_is_overtaken():
    client().set(wire.ROUTES_KEY, encode(Table(900, {"old": Route("old")})))
    declare()
    assert set(queries.published().routes) == {"smollm2"}
    tick()
    table = in_redis()
    assert table is not None
    assert (table.revision, set(table.routes)) == (901, {"smollm2"})


def test_what_is_no_table_is_replaced():
    declare()
    client().set(wire.ROUTES_KEY, b"not a table")
    tick()
    assert in_redis() == queries.published()


def test_another_table_of_the_same_revision_is_overtaken():
    declare()
    table = publish.publish()
    client().set(wire.ROUTES_KEY, encode(Table(table.revision)))
    tick()
    after = in_redis()
    assert after is not None
    assert (after.revision, after.routes) == (table.revision + 1, table.routes)


def test_a_change_of_the_setting_is_published_at_the_next_tick(settings):
    publish.publish()
    settings.LLMGW_ROUTER_OPEN = True
    tick()
    table = in_redis()
    assert table is not None
    assert table.open


def test_an_older_table_never_replaces_a_newer():
    publish._put(Table(7, {"new": Route("new")}))
    publish._put(Table(6, {"old": Route("old")}))
    assert in_redis() == Table(7, {"new": Route("new")})


def test_while_redis_is_away_changes_are_made_and_published_when_it_is_back(own_redis, settings):
    settings.REDIS_URL = own_redis.url
    own_redis.kill()
    with structlog.testing.capture_logs() as logs:
        declare()
    assert [line["log_level"] for line in logs] == ["warning"]
    assert set(queries.published().routes) == {"smollm2"}
    own_redis.start()
    settings.REDIS_URL = own_redis.url
    tick()
    assert in_redis() == queries.published()


def test_of_many_who_publish_at_once_the_last_word_is_what_is_true():
    node = a_node()

    def change(ordinal):
        try:
            with transaction.atomic():
                a_shard(model, node, ordinal)
                routes_changed.send(ShardRow)
        finally:
            connection.close()

    model = declare(replicas=8)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(1, 9)))
    table = in_redis()
    assert table == queries.published()
    assert table is not None
    assert table.routes["smollm2"].endpoints == tuple(an_endpoint(ordinal) for ordinal in range(1, 9))
    assert PublicationRow.objects.count() == 1


# --- the command


def test_the_command_prints_routes_and_no_hashes(capsys):
    a_shard(declare(aliases=("small",)), a_node())
    declare("idle")
    made = accounts.create_inference_key("web", by=SYSTEM, now=NOON)
    assert isinstance(made, tuple)
    publish.publish()
    call_command("routes")
    said = capsys.readouterr().out
    assert "1 key, Redis has it" in said
    assert "127.0.0.2:9001" in said
    assert "no ready replica" in said
    call_command("routes", "--json")
    told = capsys.readouterr().out
    assert made[0].sha256 not in said + told
    document = json.loads(told)
    assert document["revision"] == document["revision_in_redis"] == queries.published().revision
    assert set(document["routes"]) == {"smollm2", "small", "idle"}


def test_the_command_says_that_redis_is_away(own_redis, settings, capsys):
    publish.publish()
    settings.REDIS_URL = own_redis.url
    own_redis.kill()
    call_command("routes")
    assert "Redis has revision none" in capsys.readouterr().out
