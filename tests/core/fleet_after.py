"""What a fleet looks like once a plan is carried out, before any node has answered."""

from dataclasses import replace

from llmgw.core.lifecycle import AT_REST, LIVE, Happened, NotAllowed, after
from llmgw.core.plan import Archive, Drain, Lose, Queue, Reap, Start, Stop
from llmgw.core.units import LaunchId, NodeName, replica_id
from llmgw.core.world import Replica, Shard, State


def carried_out(snapshot, plan):
    """Apply each action as the control plane does: by the table of moves, refusing what the table does not allow."""
    replicas = {one.id: one for one in snapshot.replicas}
    strays = list(snapshot.strays)
    for action in plan.actions:
        if isinstance(action, Reap):
            strays = [replace(one, stopping=True) if one.launch_id == action.launch_id else one for one in strays]
        elif isinstance(action, Queue):
            assert action.replica not in replicas
            replicas[action.replica] = Replica(action.replica, action.model, action.ordinal, State.QUEUED)
        elif isinstance(action, Start):
            replicas[action.replica] = started(replicas.get(action.replica), action)
        elif isinstance(action, Archive):
            assert replicas.pop(action.replica).state in AT_REST
        else:
            happened = {Lose: Happened.NODE_LOST, Drain: Happened.DRAIN_ASKED, Stop: Happened.STOP_ASKED}[type(action)]
            replicas[action.replica] = befallen(replicas[action.replica], happened)
    return replace(snapshot, replicas=tuple(replicas.values()), strays=tuple(strays))


def befallen(replica, happened):
    """Let something befall a replica and its live shards."""
    shards = tuple(
        replace(shard, state=moved(shard.state, happened)) if shard.state in LIVE else shard for shard in replica.shards
    )
    return replace(replica, state=moved(replica.state, happened), shards=shards)


def moved(state, happened):
    to = after(state, happened)
    assert not isinstance(to, NotAllowed), to.text()
    return to


def started(replica, action):
    slot = replica or Replica(action.replica, action.model, action.ordinal, State.QUEUED)
    assert slot.attempt == action.attempt_before
    assert action.replica == replica_id(action.model, action.ordinal)
    attempt = action.attempt_before + 1
    shards = tuple(
        Shard(LaunchId(f"{action.replica}#{attempt}.{rank}"), NodeName(node), devices, State.PLACED, rank)
        for node, devices, rank in action.shards
    )
    return replace(
        slot,
        state=moved(slot.state, Happened.PLACED),
        profile=action.profile,
        fingerprint=action.fingerprint,
        attempt=attempt,
        next_try_at=None,
        shards=shards,
    )


def settled(snapshot):
    """Let every node do what it was told: what starts is ready, what leaves has stopped, strays are gone."""
    return replace(snapshot, replicas=tuple(_settled(one) for one in snapshot.replicas), strays=())


def _settled(replica):
    if replica.state in AT_REST:
        return replica
    state = State.STOPPED if replica.state in {State.DRAINING, State.STOPPING} else State.READY
    return replace(replica, state=state, shards=tuple(replace(one, state=state) for one in replica.shards))
