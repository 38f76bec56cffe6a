"""What serves on a device that has turned sick is replaced, and serves until it is."""

import msgspec

from llmgw.core.plan import plan
from llmgw.core.plan.actions import Drain, Queue, Start
from llmgw.core.world import State
from tests.builders import NOW, a_gpu, a_gpu_profile, a_model, a_node, a_replica, a_snapshot

MODEL = a_model("big", profiles=[a_gpu_profile()])
ON_ZERO = a_replica(MODEL, devices=("GPU-0",))


def sick(number=0, code="device.unhealthy.ecc"):
    return msgspec.structs.replace(a_gpu(number, unhealthy="3 errors"), unhealthy_code=code, label=str(number))


def actions(*devices, replicas=(ON_ZERO,), model=MODEL):
    found = plan(a_snapshot(nodes=[a_node(devices=devices)], models=[model], replicas=replicas), NOW)
    return found.actions, [refused.replica for refused in found.refusals]


def test_another_is_started_first_and_says_why():
    ((start,), refused) = actions(sick(), a_gpu(1))
    assert isinstance(start, Start)
    assert (start.replica, start.shards[0].devices, refused) == ("big/2", ("GPU-1",), [])
    assert start.why == "device 0 on n1 is unhealthy: 3 errors"


def test_the_sick_one_drains_once_the_other_serves():
    ((drain,), _) = actions(sick(), a_gpu(1), replicas=(ON_ZERO, a_replica(MODEL, 2, devices=("GPU-1",))))
    assert drain == Drain(ON_ZERO.id, "device 0 on n1 is unhealthy: 3 errors")


def test_it_is_not_touched_while_the_other_only_loads():
    loading = a_replica(MODEL, 2, state=State.LOADING, devices=("GPU-1",))
    assert actions(sick(), a_gpu(1), replicas=(ON_ZERO, loading)) == ((), [])


def test_without_another_place_it_serves_on_and_that_is_said():
    (queued, refused) = actions(sick())
    assert (queued, refused) == ((Queue(MODEL.name, 2),), ["big/2"])


def test_a_device_of_which_the_driver_is_only_silent_is_let_be():
    assert actions(sick(code="device.stale"), a_gpu(1)) == ((), [])
    assert actions(sick(code="device.foreign-memory"), a_gpu(1)) == ((), [])


def test_what_is_still_starting_may_show_whether_it_can():
    assert actions(sick(), a_gpu(1), replicas=(a_replica(MODEL, state=State.LOADING, devices=("GPU-0",)),)) == ((), [])


def test_what_waited_for_it_is_put_away_when_it_is_well_again():
    waiting = a_replica(MODEL, 2, state=State.QUEUED)
    ((archive,), refused) = actions(a_gpu(0), replicas=(ON_ZERO, waiting))
    assert (archive.code, archive.replica, refused) == ("archive", "big/2", [])
