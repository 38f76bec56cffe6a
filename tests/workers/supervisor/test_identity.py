"""The node's identity over restarts."""

import pytest

from tests.fakes.machine import FakeMachine
from workers.supervisor.identity import Identity, StateHeld, StateUnreadable


@pytest.fixture
def open_identity(tmp_path):
    opened = []

    def begin():
        opened.append(Identity.open(tmp_path / "state", FakeMachine()))
        return opened[-1]

    yield begin
    for identity in opened:
        identity.close()


def test_the_instance_stays_and_sessions_count_up(open_identity):
    first = open_identity()
    first.close()
    second = open_identity()
    assert second.instance == first.instance
    assert (first.session, second.session) == (1, 2)


def test_sequence_numbers_rise_over_restarts(open_identity):
    first = open_identity()
    numbers = [first.next_seq() for _ in range(3)]
    first.close()
    numbers += [open_identity().next_seq() for _ in range(1)]
    assert numbers == sorted(set(numbers))


def test_an_epoch_is_kept_and_never_goes_back(open_identity):
    first = open_identity()
    assert first.accept_epoch(3)
    assert not first.accept_epoch(2)
    assert first.accept_epoch(3)
    first.close()
    assert open_identity().epoch == 3


def test_one_worker_at_a_time(open_identity):
    open_identity()
    with pytest.raises(StateHeld, match="in use by another node worker, pid"):
        open_identity()


def test_a_torn_file_is_left_as_it_is(open_identity, tmp_path):
    open_identity().close()
    path = tmp_path / "state/node.json"
    path.write_text('{"instance": "a')
    with pytest.raises(StateUnreadable, match=r"node\.json"):
        open_identity()
    assert path.read_text() == '{"instance": "a'
    path.unlink()
    assert open_identity().session == 1
