"""Passes: what is wanted is started, kept, and taken away; one at a time, and no more often than needed."""

from apps.replicas.models import OrderRow
from llmgw.core.world import State


def test_a_declared_model_is_started_where_it_fits(world):
    world.node()
    world.declare()
    world.passes()
    shard = world.shard()
    assert (shard.state, shard.node.name) == (State.PLACED, "n1")
    order = OrderRow.objects.get(kind="launch")
    assert order.payload["launch_id"] == shard.launch_id


def test_from_placed_to_ready(world):
    world.serve()
    assert world.replica().state == State.READY
