"""Free ports, and whose socket it is that listens."""

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some

from workers.engines import listening

HERE = "127.0.0.1"


@pytest.fixture
def open_socket():
    with socket.create_server((HERE, 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_passed_over(open_socket):
    ports = (open_socket, open_socket + 20)
    assert listening.free_port(HERE, ports, 0, ()) not in {open_socket, None}


def test_none_when_all_are_taken_or_handed_out(open_socket):
    assert listening.free_port(HERE, (open_socket, open_socket), 0, ()) is None
    free = listening.free_port(HERE, (open_socket, open_socket + 20), 0, ())
    assert free is not None
    assert listening.free_port(HERE, (free, free), 0, {free}) is None


def test_the_search_begins_where_it_is_told_and_goes_round():
    first = listening.free_port(HERE, (23900, 23909), 9, ())
    assert first == 23909
    assert listening.free_port(HERE, (23900, 23909), 9, {23909}) == 23900


def test_a_foreign_address_is_an_error():
    with pytest.raises(OSError, match="assign"):
        listening.free_port("192.0.2.1", (23900, 23909), 0, ())


def test_our_own_socket_is_ours(open_socket):
    assert listening.all_held_by(HERE, open_socket, [os.getpid()])
    assert not listening.all_held_by(HERE, open_socket, [1])
    assert not listening.all_held_by(HERE, open_socket, [])


def test_where_nobody_listens_nobody_holds():
    assert not listening.all_held_by(HERE, 1, [os.getpid()])


def test_a_second_listener_that_shares_the_port_spoils_the_proof():
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind((HERE, 0))
        ours.listen()
        port = ours.getsockname()[1]
        assert listening.all_held_by(HERE, port, [os.getpid()])
        with sharing(port):
            assert not listening.all_held_by(HERE, port, [os.getpid()])


def sharing(port):
    code = (
        "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        f"s.bind(('{HERE}', {port})); s.listen(); print('up', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    return other


def test_a_listener_on_every_address_answers_here_too():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert listening.all_held_by(HERE, port, [os.getpid()])


def test_a_listener_on_another_address_is_none_of_our_business(open_socket):
    with socket.create_server(("127.0.0.2", open_socket)):
        inodes = listening.listeners(HERE, open_socket)
    assert len(inodes) == 1


@pytest.mark.skipif(sys.byteorder != "little", reason="written down on a little-endian machine")
def test_addresses_are_written_as_the_kernel_does():
    assert listening.notation("127.0.0.1") == "0100007F"
    assert listening.notation("::1") == "00000000000000000000000001000000"


@given(text=some.text(max_size=300))
def test_any_table_is_read_without_an_exception(text):
    listening.parse_listeners(f"head\n{text}", 80, {"0100007F"})
