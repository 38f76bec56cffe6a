"""Ports as the kernel's tree has them, with all that may be missing in it."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import Gpu
from llmgw.core.hardware.network import LinkLayer, PortState
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.infiniband.tree import LOCAL, a_machine, a_port, mapped
from workers.discovery.infiniband.ports import find

ROCE = {"link_layer": "Ethernet", "lid": "0x0", "sm_lid": "0x0"}
V1, V2 = "IB/RoCE v1", "RoCE v2"
FOLDER = "/sys/class/infiniband/mlx5_0/ports/1"


def one(*args, **facts):
    (port,), problems = find(a_machine(a_port(*(args or ("mlx5_0",)), **facts)))
    assert problems == ()
    return port


def test_a_port_is_told_with_its_facts():
    port = one(gids=[(LOCAL, V1, None)], counters={"counters/port_xmit_data": 10, "counters/link_downed": 3})
    assert (port.name, port.state, port.physical_state, port.is_active) == (
        "mlx5_0:1",
        PortState.ACTIVE,
        "link-up",
        True,
    )
    assert (port.rate_gbps, port.width, port.speed, port.link_layer) == (400.0, 4, "NDR", LinkLayer.INFINIBAND)
    assert (port.lid, port.subnet_manager_lid, port.is_subnet_manager) == (0x33BF, 1, False)
    assert (port.hca_type, port.firmware, port.pci_address) == ("MT4129", "28.41.1000", "0000:1a:00.0")
    assert (port.node_guid, port.port_guid) == ("0xa088c20300100001", "0xa088c20300100001")
    assert port.counters == {"port_xmit_data": 40, "link_downed": 3}


def test_a_machine_without_adapters_is_no_problem():
    assert find(FakeMachine()) == ((), ())


def test_ports_are_sorted_as_people_count():
    ports, _ = find(a_machine(a_port("mlx5_10"), a_port("mlx5_2"), a_port("mlx5_2", number=2)))
    assert [port.name for port in ports] == ["mlx5_2:1", "mlx5_2:2", "mlx5_10:1"]


def test_a_name_that_is_no_number_costs_no_port():
    odd = {"/sys/class/infiniband/mlx5_²/ports/²/state": "4: ACTIVE\n", "/sys/class/infiniband/mlx5_0/ports/²/x": ""}
    ports, problems = find(a_machine(a_port("mlx5_0", gids=[(LOCAL, V1, None)]), (odd, {})))
    assert ([port.name for port in ports], problems) == (["mlx5_0:1"], ())


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("100 Gb/sec (2X HDR)", (100.0, 2, "HDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")),
        ("10 Gb/sec (4X)", (10.0, 4, None)),
        ("nonsense", (None, None, None)),
    ],
)
def test_rates_in_every_form(rate, told):
    port = one(rate=rate)
    assert (port.rate_gbps, port.width, port.speed) == told


def test_what_a_port_that_is_down_prints_as_its_rate_is_not_believed():
    port = one(state="1: DOWN", phys_state="2: Polling")
    assert (port.state, port.physical_state, port.rate_gbps, port.is_active) == (PortState.DOWN, "polling", None, False)


def test_a_file_that_cannot_be_read_costs_its_fact():
    files, links = a_port("mlx5_0")
    files["/sys/class/infiniband/mlx5_0/ports/1/lid"] = OSError(errno.EACCES, "Permission denied")
    files["/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"] = "N/A (no PMA)\n"
    files["/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"] = OSError(errno.EINVAL, "Invalid argument")
    (port,), (problem,) = find(a_machine((files, links)))
    assert (port.lid, port.counters, port.state) == (None, {}, PortState.ACTIVE)
    assert (problem.fact, problem.literal) == ("port mlx5_0:1: lid", "Permission denied")


DENIED = OSError(errno.EACCES, "Permission denied")
BROKEN = OSError(errno.EIO, "Input/output error")
UNUSED = (OSError(errno.EINVAL, "Invalid argument"), OSError(errno.EOPNOTSUPP, "Operation not supported"), None)


@pytest.mark.parametrize("error", [DENIED, BROKEN])
@pytest.mark.parametrize(
    "file", ["counters/link_downed", "hw_counters/out_of_sequence", "gids/0", "gid_attrs/types/0", "pkeys/0"]
)
def test_an_entry_of_a_table_that_cannot_be_read_is_a_problem_and_costs_itself_alone(file, error):
    told, _ = a_port("mlx5_0", gids=[(LOCAL, V1, "eth2"), (mapped(10, 0, 0, 5), V2, "eth2")], **ROCE)
    more = {f"{FOLDER}/counters/symbol_error": "7\n", f"{FOLDER}/{file}": error}
    (port,), (problem,) = find(a_machine((told | more, {})))
    assert (port.counters, port.roce_gid_index, port.is_active) == ({"symbol_error": 7}, 1, True)
    assert (problem.code, problem.fact) == ("sysfs.unreadable", f"port mlx5_0:1: {file}")
    assert problem.text == f"port mlx5_0:1: {file} cannot be read: {error.strerror}"


@pytest.mark.parametrize("error", UNUSED)
@pytest.mark.parametrize("file", ["counters/link_downed", "hw_counters/out_of_sequence", "gids/1", "gid_attrs/ndevs/0"])
def test_an_entry_that_is_not_used_is_no_problem(file, error):
    files, links = a_port("mlx5_0", gids=[(LOCAL, V1, "eth2"), None], **ROCE)
    files |= {f"{FOLDER}/{file}": error}
    (port,), problems = find(a_machine((files, links)))
    assert (port.counters, [gid.index for gid in port.gids], problems) == ({}, [0], ())


def test_entries_that_fail_alike_are_told_together():
    files, links = a_port("mlx5_0", gids=[(LOCAL, V1, "eth2")] * 5, **ROCE)
    files |= {f"{FOLDER}/gids/{index}": DENIED for index in range(5)} | {f"{FOLDER}/counters/symbol_error": BROKEN}
    _, problems = find(a_machine((files, links)))
    assert [(problem.fact, problem.text) for problem in problems] == [
        (
            "port mlx5_0:1: gids",
            "port mlx5_0:1: gids/0, gids/1, gids/2 and 2 more cannot be read: Permission denied",
        ),
        (
            "port mlx5_0:1: counters/symbol_error",
            "port mlx5_0:1: counters/symbol_error cannot be read: Input/output error",
        ),
    ]


def test_virtual_functions_and_adapters_of_software_are_told_apart():
    files, links = a_port("mlx5_3")
    links |= {"/sys/class/infiniband/mlx5_3/device/physfn": "../0000:1a:00.0"}
    ports, _ = find(a_machine((files, links), a_port("rxe0")))
    assert [(port.hca, port.is_virtual_function, port.is_software) for port in ports] == [
        ("mlx5_3", True, False),
        ("rxe0", False, True),
    ]


CARD = "/sys/class/infiniband"
SITS_ON_ETH0 = {f"{CARD}/soft/parent": "eth0\n"}
DEVICE = {f"{CARD}/mlx5_0/device": "../../../0000:1a:00.0"}
PLATFORM = {f"{CARD}/hns_0/device": "../../../HISI00D1:00"}


@pytest.mark.parametrize(
    ("hca", "facts", "links", "is_software"),
    [
        ("rxe0", {}, {}, True),
        ("siw_eth0", {}, {}, True),
        ("soft", SITS_ON_ETH0, {f"{CARD}/soft/device": "../../../0000:1a:00.0"}, True),
        ("soft", {f"{CARD}/soft/fw_ver": "0.0.0\n"}, {}, True),
        ("soft", {f"{CARD}/soft/fw_ver": "\n", f"{CARD}/soft/hca_type": "\n"}, {}, True),
        ("efa_0", {f"{CARD}/efa_0/fw_ver": "0.0.0.0\n", f"{CARD}/efa_0/hca_type": "EFA\n"}, {}, False),
        ("mlx5_0", {f"{CARD}/mlx5_0/hca_type": "MT4124\n"}, {}, False),
        ("mlx5_0", {f"{CARD}/mlx5_0/fw_ver": "20.31.1014\n"}, {}, False),
        ("mlx5_0", {}, DEVICE, False),
        ("hns_0", {}, PLATFORM, False),
        ("siwa0", {f"{CARD}/siwa0/fw_ver": "1.2.3\n"}, {}, False),
    ],
)
def test_adapters_of_software_are_told_from_hardware_that_shows_no_device(hca, facts, links, is_software):
    files, _ = a_port(hca)
    of_port = {path: said for path, said in files.items() if "/ports/" in path}
    (port,), _ = find(a_machine((of_port | facts, links)))
    assert port.is_software is is_software


@pytest.mark.parametrize(
    ("table", "index"),
    [
        (
            [
                (LOCAL, V1, "eth2"),
                (LOCAL, V2, "eth2"),
                (mapped(10, 0, 0, 5), V1, "eth2"),
                (mapped(10, 0, 0, 5), V2, "eth2"),
            ],
            3,
        ),
        ([(mapped(10, 0, 0, 5), V2, "eth2"), None, None], 0),
        ([(LOCAL, V2, "eth2")], None),
        ([(LOCAL, V2, "eth2"), ("fd00:0000:0000:0000:0000:0000:0000:0005", V2, "eth2")], 1),
        ([("fd00:0000:0000:0000:0000:0000:0000:0005", V2, "eth2"), (mapped(10, 0, 0, 5), V2, "eth2")], 1),
        ([(mapped(10, 0, 0, 5), V1, "eth2")], None),
        ([(mapped(169, 254, 3, 4), V2, "eth2"), (mapped(10, 0, 0, 5), V2, "eth2")], 1),
        ([(mapped(169, 254, 3, 4), V2, "eth2"), (mapped(10, 0, 0, 5), V2, "eth2.100")], 1),
        ([(mapped(169, 254, 3, 4), V2, "eth2"), ("fd00:0000:0000:0000:0000:0000:0000:0005", V2, "eth2")], 1),
        ([(LOCAL, V2, "eth2"), (mapped(169, 254, 3, 4), V2, "eth2")], None),
        ([], None),
    ],
)
def test_the_address_for_roce_is_chosen_by_rule(table, index):
    port = one(gids=table, **ROCE)
    assert port.roce_gid_index == index
    assert [gid.index for gid in port.gids] == [at for at, entry in enumerate(table) if entry]


def test_infiniband_has_no_roce_address():
    assert one(gids=[(mapped(10, 0, 0, 5), V2, "ib0")]).roce_gid_index is None


def test_the_nearest_cards_are_told():
    far, near = "../../../devices/pci0000:96/0000:96:01.0", "../../../devices/pci0000:15/0000:15:01.0"
    places = {"0000:1a:00.0": near, "0000:1b:00.0": near, "0000:97:00.0": far}
    links = {f"/sys/bus/pci/devices/{pci}": f"{root}/{pci}" for pci, root in places.items()}
    gpus = (
        Gpu(index=0, uuid="GPU-0", pci_address="0000:1b:00.0"),
        Gpu(index=1, uuid="GPU-1", pci_address="0000:97:00.0"),
    )
    (port,), _ = find(a_machine(a_port("mlx5_0"), links=links), gpus)
    assert port.near_gpus == ("GPU-0",)


TWO = (Gpu(index=0, uuid="GPU-0", pci_address="0000:1b:00.0"), Gpu(index=1, uuid="GPU-1", pci_address="0000:97:00.0"))
NODES = {"/sys/bus/pci/devices/0000:1b:00.0/numa_node": "0\n", "/sys/bus/pci/devices/0000:97:00.0/numa_node": "1\n"}


@pytest.mark.parametrize(
    ("files", "gpus", "near"),
    [
        (NODES | {"/sys/bus/pci/devices/0000:1a:00.0/numa_node": "1\n"}, TWO, ("GPU-1",)),
        (NODES | {"/sys/class/infiniband/mlx5_0/device/numa_node": "0\n"}, TWO, ("GPU-0",)),
        (NODES | {"/sys/class/infiniband/mlx5_0/device/numa_node": "-1\n"}, TWO, ()),
        ({"/sys/class/infiniband/mlx5_0/device/numa_node": "0\n"}, (Gpu(uuid="GPU-7", numa_node=0),), ("GPU-7",)),
        (NODES, TWO, ()),
    ],
)
def test_cards_and_adapters_whose_place_is_not_known_are_joined_by_numa_node(files, gpus, near):
    its_files, links = a_port("mlx5_0")
    (port,), _ = find(a_machine((its_files | files, links)), gpus)
    assert port.near_gpus == near


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("rate", "1.2.3 Gb/sec (4X NDR)"),
        ("gids/0", "0" * 39),
        ("gids/0", "f" * 39),
        ("counters/link_downed", "²"),
        ("counters/link_downed", "9" * 5000),
        ("lid", "9" * 5000),
        ("pkeys/0", "0x²"),
    ],
)
def test_words_that_are_nearly_right_cost_their_fact_alone(file, words):
    files, links = a_port("mlx5_0", gids=[(LOCAL, V1, "ib0")])
    files[f"/sys/class/infiniband/mlx5_0/ports/1/{file}"] = words
    (port, other), _ = find(a_machine((files, links), a_port("mlx5_1")))
    assert (port.state, other.is_active) == (PortState.ACTIVE, True)


@pytest.mark.parametrize("state", ["banana", "\n", OSError(errno.EINVAL, "Invalid argument"), None])
def test_a_state_that_cannot_be_told_is_a_problem(state):
    files, links = a_port("mlx5_0")
    del files["/sys/class/infiniband/mlx5_0/ports/1/state"]
    if state is not None:
        files["/sys/class/infiniband/mlx5_0/ports/1/state"] = state
    (port,), (problem,) = find(a_machine((files, links)))
    assert (port.state, problem.fact) == (None, "port mlx5_0:1: state")


FILES, LINKS = a_port("mlx5_0", gids=[(LOCAL, V1, "ib0"), None], counters={"counters/link_downed": 1})


@given(st.dictionaries(st.sampled_from(sorted(FILES)), st.text(max_size=60) | st.just(OSError(errno.EIO, "I/O error"))))
def test_whatever_stands_in_the_files_another_port_keeps_its_facts(mangled):
    ports, _ = find(a_machine(({**FILES, **mangled}, LINKS), a_port("mlx5_1")))
    assert ports[-1].name == "mlx5_1:1"
    assert ports[-1].is_active
