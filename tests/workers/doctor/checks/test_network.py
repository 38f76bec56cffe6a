"""Checks of the network: interfaces, names, ports and proxies."""

import msgspec
import pytest

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.world import State
from tests.builders import a_launch_order
from tests.workers.doctor.checks.patients import a_patient, only, outcomes, verdicts
from workers.doctor.checks.network import CHECKS, NOT_YET
from workers.ports import ToolResult
from workers.settings import NodeSettings
from workers.supervisor.journal import Journal

HOST = {"/proc/sys/kernel/hostname": "gpu07\n"}
UP = {"/sys/class/net/eth0/operstate": "up\n"}
OWN = {"eth0": ("10.0.0.7/24", "fe80::1/64"), "lo": ("127.0.0.1/8",)}
NOT_FOUND = {"getent": ToolResult(2)}
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
PROXY = {"http_proxy": "http://alice:hunter2@proxy.example:3128"}
SPARED = {"no_proxy": "localhost, 127.0.0.0/8,10.0.0.7"}


def settings(**more):
    return NodeSettings(id="n1", **{"address": "10.0.0.7", **more})


def meets(interface="eth0", address="10.0.0.7"):
    return {"fabrics": (Attachment(name="compute", interface=interface, address=address),)}


def listening(*places):
    rows = "".join(
        f"   {at}: {address}:{port:04X} 00000000:0000 0A 00000000:00000000\n"
        for at, (address, port) in enumerate(places)
    )
    return {"/proc/net/tcp": f"  sl  local_address rem_address   st\n{rows}"}


def strict(name, value):
    return {f"/proc/sys/net/ipv4/conf/{name}/rp_filter": f"{value}\n"}


def tracked(count, most):
    return {
        f"/proc/sys/net/netfilter/nf_conntrack_{name}": f"{value}\n"
        for name, value in (("count", count), ("max", most))
    }


ANY, LOOP, MINE = "00000000", "0100007F", "0700000A"
TWO = {"eth0": ("10.0.0.7/24",), "eth1": ("10.0.0.8/24",)}


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("network.address", {"interfaces": OWN, "settings": settings()}, "pass"),
        ("network.address", {"interfaces": OWN, "settings": settings(address="10.9.9.9")}, "fail"),
        ("network.address", {"interfaces": OWN}, "pass"),
        ("network.address", {"interfaces": OWN, **meets()}, "warn"),
        (
            "network.address",
            {"interfaces": OWN, "settings": settings(address="gpu07"), "tools": {"getent": "10.0.0.7  gpu07\n"}},
            "pass",
        ),
        ("network.address", {"settings": settings(address="gpu07"), "tools": NOT_FOUND}, "fail"),
        ("network.address", {"settings": settings(address="gpu07")}, "unknown"),
        ("network.bootstrap", {}, "not-applicable"),
        ("network.bootstrap", {**meets(), "files": UP, "interfaces": OWN}, "pass"),
        ("network.bootstrap", {**meets(), "interfaces": OWN}, "unknown"),
        ("network.bootstrap", {**meets("eth9")}, "fail"),
        ("network.bootstrap", {**meets(), "files": UP, "interfaces": {"eth0": ("fe80::1/64",)}}, "fail"),
        (
            "network.bootstrap",
            {**meets(), "files": {"/sys/class/net/eth0/operstate": "down\n"}, "interfaces": OWN},
            "fail",
        ),
        ("network.chosen-interface", {}, "not-applicable"),
        ("network.chosen-interface", meets(), "pass"),
        ("network.chosen-interface", meets(None), "warn"),
        ("network.chosen-interface", meets("docker0"), "fail"),
        ("network.hostname", {}, "unknown"),
        ("network.hostname", {"files": HOST, "tools": {"getent": "10.0.0.7  gpu07\n"}, "interfaces": OWN}, "pass"),
        ("network.hostname", {"files": HOST, "tools": {"getent": "127.0.1.1  gpu07\n"}, "interfaces": OWN}, "warn"),
        ("network.hostname", {"files": HOST, "tools": {"getent": "10.0.0.99  gpu07\n"}, "interfaces": OWN}, "warn"),
        ("network.hostname", {"files": HOST, "tools": NOT_FOUND}, "fail"),
        (
            "network.hostname",
            {"files": HOST, "tools": {"getent": ToolResult(None, problem="no answer within 5 s")}},
            "unknown",
        ),
        ("network.hostname", {"files": HOST}, "unknown"),
        ("network.hostname", {"files": HOST | {"/etc/hosts": "127.0.1.1 gpu07\n"}}, "warn"),
        ("network.hostname", {"files": {"/proc/sys/kernel/hostname": "-x;reboot\n"}}, "unknown"),
        ("network.families", {}, "unknown"),
        ("network.families", {**meets(), "settings": settings()}, "pass"),
        ("network.families", {**meets(address="2001:db8::7"), "settings": settings()}, "warn"),
        ("network.families", {"files": HOST, "tools": {"getent": "2001:db8::7 gpu07"}, "settings": settings()}, "warn"),
        ("network.reverse-path", {}, "pass"),
        ("network.reverse-path", {"interfaces": OWN, "files": strict("all", 1)}, "pass"),
        ("network.reverse-path", {"interfaces": TWO, "files": strict("all", 1)}, "warn"),
        ("network.reverse-path", {"interfaces": TWO, "files": strict("all", 1) | strict("eth0", 2)}, "warn"),
        ("network.reverse-path", {"interfaces": TWO, "files": strict("all", 2)}, "pass"),
        ("network.conntrack", {}, "not-applicable"),
        ("network.conntrack", {"files": tracked(10, 262144)}, "pass"),
        ("network.conntrack", {"files": tracked(80, 100)}, "warn"),
        ("network.conntrack", {"files": tracked(99, 100)}, "fail"),
        ("network.engine-ports", {}, "unknown"),
        ("network.engine-ports", {"files": listening((ANY, 22))}, "pass"),
        ("network.engine-ports", {"files": listening((ANY, 20005))}, "warn"),
        ("network.engine-ports", {"files": listening((LOOP, 20005)), "settings": settings()}, "pass"),
        ("network.engine-ports", {"files": listening((MINE, 20005)), "settings": settings()}, "warn"),
        (
            "network.engine-ports",
            {"files": listening((MINE, 20005)), "settings": settings(engine_host="gpu07")},
            "warn",
        ),
        (
            "network.engine-ports",
            {"files": listening((ANY, 20000), (ANY, 20001)), "settings": settings(engine_ports=(20000, 20001))},
            "fail",
        ),
        ("network.ephemeral", {}, "unknown"),
        ("network.ephemeral", {"files": {RANGE: "32768\t60999\n"}}, "pass"),
        ("network.ephemeral", {"files": {RANGE: "15000\t60999\n"}}, "warn"),
        ("network.ephemeral", {"files": {RANGE: "15000\t60999\n", RESERVED: "20000-20999\n"}}, "pass"),
        ("network.ephemeral", {"files": {RANGE: "garbage"}}, "unknown"),
        ("network.exposure", {}, "pass"),
        ("network.exposure", {"settings": settings(engine_host="::")}, "warn"),
        ("network.exposure", {"settings": settings(engine_host="8.8.8.8")}, "warn"),
        ("network.exposure", {"settings": settings()}, "pass"),
        ("network.ray-dashboard", {}, "unknown"),
        ("network.ray-dashboard", {"files": listening((LOOP, 8265))}, "pass"),
        ("network.ray-dashboard", {"files": listening((ANY, 22))}, "pass"),
        ("network.ray-dashboard", {"files": listening((ANY, 8265))}, "fail"),
        ("network.proxy", {}, "pass"),
        ("network.proxy", {"environ": PROXY, "settings": settings()}, "warn"),
        ("network.proxy", {"environ": PROXY | SPARED, "settings": settings()}, "pass"),
        ("network.proxy", {"environ": PROXY | SPARED, "settings": settings(address="10.0.0.8")}, "warn"),
        ("network.proxy", {"environ": PROXY | {"NO_PROXY": "*"}, "settings": settings()}, "pass"),
        ("network.proxy", {"environ": {"https_proxy": "http://[broken"}}, "warn"),
    ],
)
def test_the_network_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_a_password_of_a_proxy_is_not_repeated():
    for environ in (PROXY, PROXY | SPARED):
        found = only(CHECKS, "network.proxy", a_patient(environ=environ, settings=settings()))
        assert "http_proxy proxy.example:3128" in found.text
        assert "hunter2" not in repr(found)


def test_what_no_proxy_leaves_out_is_named():
    patient = a_patient(environ=PROXY | {"no_proxy": "localhost"}, settings=settings())
    assert only(CHECKS, "network.proxy", patient).evidence == {"missing": ["127.0.0.1", "10.0.0.7"]}


def test_a_launch_of_this_node_is_no_stranger(tmp_path):
    journal = Journal(order=a_launch_order(launch_id="l1"), state=State.READY, listen="10.0.0.7", port=20005)
    files = {f"{tmp_path}/launches/l1/launch.json": msgspec.json.encode(journal).decode()}
    patient = a_patient(files=files | listening((MINE, 20005)), settings=settings(state=tmp_path))
    found = only(CHECKS, "network.engine-ports", patient)
    assert (str(found.verdict), found.evidence["ours"]) == ("pass", [20005])


def test_what_was_reserved_stays_reserved():
    files = {RANGE: "15000\t60999\n", RESERVED: "8080,20990-20999\n"}
    found = only(CHECKS, "network.ephemeral", a_patient(files=files))
    (check,) = (check for check in CHECKS if check.id == "network.ephemeral")
    assert check.fix.safe
    assert check.fix.command.format(**found.fix_arguments) == (
        "sysctl -w 'net.ipv4.ip_local_reserved_ports=8080-8080,20990-20999,20000-20989'"
    )
    assert check.fix.undo.format(**found.fix_arguments) == (
        "sysctl -w 'net.ipv4.ip_local_reserved_ports=8080-8080,20990-20999'"
    )


def test_a_host_name_is_asked_for_as_one_argument():
    patient = a_patient(files=HOST, tools=NOT_FOUND)
    outcomes(CHECKS, "network.hostname", patient)
    assert patient.machine.calls == [("getent", "hosts", "gpu07")]


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
