"""What tells whose machine it is is replaced everywhere alike; what a parser must understand stays as it was."""

from ipaddress import IPv4Interface, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.recording.disguise import Disguise
from workers.recording.identities import find

KEY = b"a key of this test"
ZERO = "00000000-0000-0000-0000-000000000000"


def disguised(*texts, where="nvidia-smi -q"):
    """Disguise what was printed by one tool; pairs are of a path or command line and its text."""
    pairs = [text if isinstance(text, tuple) else (where, text) for text in texts]
    disguise = Disguise(find(pairs), KEY)
    return [disguise.text(text, place) for place, text in pairs]


def one(text, where="nvidia-smi -q"):
    return disguised((where, text))[0]


# --- cards --------------------------------------------------------------------------------------------------------


def test_a_uuid_is_the_same_other_one_everywhere_in_its_form():
    uuid = "GPU-9c0e1f2a-1111-2222-3333-abcdefabcdef"
    query, listing, csv = disguised(f"GPU UUID : {uuid}", f"GPU 0: NVIDIA T4 (UUID: {uuid})", f"0, {uuid}, T4")
    new = query.split(" : ")[1]
    assert new != uuid
    assert (len(new), new[:4], new.count("-")) == (len(uuid), "GPU-", uuid.count("-"))
    assert listing == f"GPU 0: NVIDIA T4 (UUID: {new})"
    assert csv == f"0, {new}, T4"


def test_old_names_of_instances_hold_the_made_up_uuid_of_their_card():
    uuid = "9c0e1f2a-1111-2222-3333-abcdefabcdef"
    card, instance = disguised(f"GPU-{uuid}", f"MIG-GPU-{uuid}/3/0")
    assert instance == f"MIG-{card}/3/0"


def test_a_cluster_of_zeros_stays_what_it_is():
    assert one(f"ClusterUUID : {ZERO}") == f"ClusterUUID : {ZERO}"


@pytest.mark.parametrize(
    "text",
    [
        "    Serial Number                         : 1560421000123",
        "<serial>1560421000123</serial>",
        '{"serial": "1560421000123"}',
    ],
)
def test_a_serial_number_is_replaced_where_it_is_told_and_wherever_else_it_stands(text):
    told, elsewhere = disguised(text, "board 1560421000123 replaced")
    new = elsewhere.split()[1]
    assert new != "1560421000123"
    assert (len(new), new.isdigit()) == (13, True)
    assert told == text.replace("1560421000123", new)


def test_a_serial_number_in_a_column_is_known_by_the_question():
    where = "nvidia-smi --query-gpu=index,serial,name --format=csv,noheader"
    assert "1560421000123" not in one("0, 1560421000123, NVIDIA A100-SXM4-80GB\n1, [N/A], NVIDIA T4\n", where)


@pytest.mark.parametrize("text", ["Serial Number : N/A", "<serial>N/A</serial>", "Serial Number : 0"])
def test_no_serial_number_is_none(text):
    assert one(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Driver Version : 535.161.08",
        "VBIOS Version : 92.00.45.00.03",
        "clocks_event_reasons.active 0x0000000000000001",
        "Bus Id : 00000000:3B:00.0",
        "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "Gpu 40 C, 66.92 W, 81920 MiB",
        "MLNX_OFED_LINUX-5.8-1.1.2.1",
        "2026-12-01T06:54:20 up 10:20:30",
        "28.41.1000",
        "48-63,176-191",
        "NVIDIA H100 80GB HBM3",
    ],
)
def test_what_tells_nothing_of_the_owner_stays(text):
    assert one(text) == text


# --- adapters -----------------------------------------------------------------------------------------------------


def test_a_guid_a_mac_and_the_addresses_made_of_them_stay_of_one_adapter():
    guid, gid, mac, local, sminfo, saquery = disguised(
        ("/sys/class/infiniband/mlx5_0/node_guid", "b83f:d203:0029:1dcc\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:b83f:d203:0029:1dcc\n"),
        ("/sys/class/net/eth0/address", "b8:3f:d2:29:1d:cc\n"),
        ("ip addr", "inet6 fe80::ba3f:d2ff:fe29:1dcc/64 scope link"),
        ("sminfo -C mlx5_0", "sminfo: sm lid 37 sm guid 0xb83fd20300291dcc, activity count 4484381 priority 14"),
        ("saquery SMIR", "GUID..................0xb83fd20300291dcc"),
    )
    tail = guid.strip().replace(":", "")[-6:]
    assert tail != "291dcc"
    assert guid.startswith("b83f:d203:00")
    assert gid == f"fe80:0000:0000:0000:{guid}"
    assert mac.strip().replace(":", "") == f"b83fd2{tail}"
    assert f"{int(IPv6Address(local.split()[1].split('/')[0])):x}".endswith(f"ba3fd2fffe{tail}")
    assert f"0xb83fd203 00{tail}".replace(" ", "") in sminfo
    assert "activity count 4484381 priority 14" in sminfo
    assert saquery.endswith(f"0xb83fd20300{tail}")


def test_a_guid_without_its_leading_zeros_is_the_same():
    short, long = disguised("sm guid 0x2c90200259201", "GUID...........0x0002c90200259201")
    assert int(short.split()[-1], 16) == int(long.split(".")[-1], 16) != 0x2C90200259201
    assert len(short) == len("sm guid 0x2c90200259201")


def test_a_number_that_is_no_guid_stays():
    told, mask = disguised("Port GUID: 0xa288c2fffe3beab8", "Capability mask: 0xa651e848a651e848")
    assert "0xa288c2fffe3beab8" not in told
    assert mask == "Capability mask: 0xa651e848a651e848"


@pytest.mark.parametrize(
    "text", ["0x0000000000000000", "0000:0000:0000:0000", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"]
)
def test_no_guid_is_none(text):
    assert one(f"Port GUID: {text}") == f"Port GUID: {text}"


def test_an_interface_named_by_its_mac_is_named_by_the_made_up_one():
    name, mac = disguised("enxb83fd2291dcc: flags", "link/ether b8:3f:d2:29:1d:cc brd ff:ff:ff:ff:ff:ff")
    assert name.split(":")[0].removeprefix("enx") == mac.split()[1].replace(":", "") != "b83fd2291dcc"
    assert mac.endswith("brd ff:ff:ff:ff:ff:ff")


# --- addresses ----------------------------------------------------------------------------------------------------


def test_addresses_of_one_network_share_it_afterwards_and_stay_private():
    a, b, other = (IPv4Interface(told) for told in disguised("10.20.30.5/24", "10.20.30.77/24", "10.99.0.5/24"))
    assert a.network == b.network != other.network
    assert a.ip != b.ip
    assert str(a) != "10.20.30.5/24"
    assert all(each.ip.is_private and str(each).startswith("10.") for each in (a, b, other))


def test_a_gid_maps_the_made_up_address():
    address, gid = disguised("10.20.30.5/24", "0000:0000:0000:0000:0000:ffff:0a14:1e05")
    assert str(IPv6Address(gid).ipv4_mapped) == address.split("/")[0]
    assert len(gid) == 39


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "169.254.3.4/16",
        "0.0.0.0/0",
        "255.255.255.0",
        "224.0.0.1",
        "::1/128",
        "ff02::1",
        "0000:0000:0000:0000:0000:0000:0000:0000",
    ],
)
def test_addresses_that_every_machine_has_stay(text):
    assert one(text) == text


def test_a_network_stays_a_network():
    network, member = disguised("192.168.40.0/24 dev eth0", "192.168.40.9")
    assert network.split()[0].endswith(".0/24")
    assert network.split(".")[:3] == member.split(".")[:3]


def test_public_addresses_become_nobody_s():
    told = one("198.51.100.7 2620:0:1234:5678:abcd:1:2:3 fd00:1:2:3::77").split()
    assert told[0].startswith("198.1")
    assert told[1].startswith("2001:db8:")
    assert told[2].startswith("fd")
    assert told[2].endswith("::77")


# --- names --------------------------------------------------------------------------------------------------------


def test_the_machine_s_name_is_replaced_wherever_it_stands_as_a_word():
    _, hosts, description, text = disguised(
        ("/proc/sys/kernel/hostname", "dgx-07\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n10.0.0.7 dgx-07.lab.acme.com dgx-07\n10.0.0.8 storage # the NAS\n"),
        ("/sys/class/infiniband/mlx5_0/node_desc", "dgx-07 mlx5_0\n"),
        ("dmesg", "dgx-07-ib0: link up; dgx-071 is another"),
    )
    new = description.split()[0]
    assert len(new) == len("dgx-07")
    assert new != "dgx-07"
    assert description == f"{new} mlx5_0\n"
    assert "127.0.0.1 localhost\n" in hosts
    assert f" {new}." in hosts
    assert ".com " in hosts
    assert not [name for name in ("dgx-07", "lab", "acme", "storage") if name in hosts]
    assert text == f"{new}-ib0: link up; dgx-071 is another"


def test_a_name_that_could_be_any_word_is_replaced_only_where_names_stand():
    hosts, log, text = disguised(
        ("/etc/hosts", "10.0.0.7 compute\n"),
        ("journalctl -k", "Dec 01 06:54:20 compute kernel: NVRM: Xid\n"),
        "Compute Mode : Default\ncompute : 3",
    )
    assert "compute" not in hosts
    assert "compute" not in log
    assert log.endswith(" kernel: NVRM: Xid\n")
    assert text == "Compute Mode : Default\ncompute : 3"


@pytest.mark.parametrize("name", ["gpu0", "mlx5_0", "node", "localhost"])
def test_a_machine_called_like_a_part_of_one_does_not_spoil_the_rest(name):
    assert disguised(("/etc/hostname", name), f"{name}: up")[1] == f"{name}: up"


def test_a_user_s_home_is_somebody_s():
    told = one("/home/alice/venv/bin/python, User=bob_7\n")
    assert "alice" not in told
    assert "bob" not in told
    assert told.startswith("/home/")
    assert "/venv/bin/python" in told


def test_the_ids_of_machines_and_containers_are_replaced():
    assert "8cf29b749cfbcb7f21b2ec4f107cb8a5" not in one("0::/docker/8cf29b749cfbcb7f21b2ec4f107cb8a5")


def test_another_key_makes_others():
    uuid = "GPU-9c0e1f2a-1111-2222-3333-abcdefabcdef"
    identities = find([("nvidia-smi -L", uuid)])
    assert Disguise(identities, b"1").text(uuid) != Disguise(identities, b"2").text(uuid)


def test_what_was_replaced_is_counted_by_kind():
    pairs = [("nvidia-smi -q", "Serial Number : 1234567\nGPU-9c0e1f2a-1111-2222-3333-abcdefabcdef 10.0.0.5 10.0.0.5\n")]
    disguise = Disguise(find(pairs), KEY)
    disguise.text(pairs[0][1])
    assert disguise.made_up.counts == {"IP addresses": 1, "UUIDs": 1, "serial numbers": 1}


PIECES = (
    *("fe80:", "::", "10.0.0.5", "/24", "0x", "b83f:d203:0029:1dcc", "GUID", "Serial: 1234567890123", "-", ".", "\0é"),
    *("GPU-9c0e1f2a-1111-2222-3333-abcdefabcdef", "/home/", "alice", "b8:3f:d2:29:1d:cc", "\n", " "),
)
MANGLED = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(MANGLED | st.text(max_size=200))
def test_no_text_is_too_odd(text):
    assert isinstance(one(text), str)
    assert isinstance(one(text, "/etc/hosts"), str)
