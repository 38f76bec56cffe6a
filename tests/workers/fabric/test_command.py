"""`llmgw-node fabric-test`, both ends, with a made-up ib_write_bw that is a process of its own."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import ended_afterwards
from tests.servers import eventually, free_port
from workers.cli import main

FAKE = Path(__file__).with_name("fake_ib_write_bw.py")
NODE = [sys.executable, "-m", "workers.cli", "fabric-test"]
TABLE = (
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      221234           0.00               {average}               0.736825\n"
)
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0007"
IB = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}

processes = pytest.fixture(ended_afterwards)


class Site:
    """A folder with the kernel's tree and the tools of one machine."""

    def __init__(self, folder):
        self.folder = folder
        self.tcp = str(free_port())
        tool = folder / "ib_write_bw"
        tool.write_text(f"#!{sys.executable} -IS\n" + FAKE.read_text())
        tool.chmod(0o755)
        self.prints("386.31")
        self.has("mlx5_0", 1)

    def prints(self, average):
        (self.folder / "table").write_text(TABLE.format(average=average))

    def plans(self, plan):
        (self.folder / "plan").write_text(plan)

    def has(self, hca, number, **facts):
        port = self.folder / f"sys/class/infiniband/{hca}/ports/{number}"
        port.mkdir(parents=True)
        (port.parent.parent / "hca_type").write_text("MT4129\n")
        for name, word in {**IB, **facts}.items():
            (port / name).write_text(f"{word}\n")

    def has_roce(self, hca):
        self.has(hca, 1, link_layer="Ethernet", rate="100 Gb/sec (4X EDR)")
        port = self.folder / f"sys/class/infiniband/{hca}/ports/1"
        for index, kind in ((2, "IB/RoCE v1"), (3, "RoCE v2")):
            for name, word in (("gids", MAPPED), ("gid_attrs/types", kind), ("gid_attrs/ndevs", "eth2")):
                (port / name).mkdir(parents=True, exist_ok=True)
                (port / name / str(index)).write_text(f"{word}\n")
        (self.folder / f"sys/class/infiniband/{hca}/device/net/eth2").mkdir(parents=True)

    def flags(self, *more):
        folders = ["--sysfs", str(self.folder / "sys"), "--tools", str(self.folder)]
        return [*folders, "--device", "mlx5_0", "--listen-port", self.tcp, "--duration", "1", *more]

    def argv(self, role):
        return (self.folder / f"{role}.argv").read_text()

    def is_there(self, role):
        return (self.folder / f"{role}.pid").exists()


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.fixture
def node(site, capsys):
    """Runs the command here and returns its exit code and what it printed."""

    def run(role, *more):
        peer = ["127.0.0.1"] if role == "client" else []
        code = main(["fabric-test", role, *peer, *site.flags(*more)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def server(site, processes):
    """A server in a process of its own that waits for its client."""

    def start(*more):
        process = processes.start([*NODE, "server", *site.flags(*more)], stdout=-1, stderr=-1)
        eventually(lambda: site.is_there("server"), timeout=30)
        return process

    return start


def test_both_ends_tell_the_figure(site, node, server):
    waiting = server("--json")
    code, said = node("client", "--json")
    told = json.loads(said)
    assert (code, told["code"], told["verdict"]) == (0, "bandwidth.good", "good")
    assert (told["gbps"], told["expected_gbps"], told["ratio"]) == (386.31, 400.0, 0.9658)
    assert (told["role"], told["port"], told["peer"]) == ("client", "mlx5_0:1", "127.0.0.1")
    out, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, json.loads(out)["gbps"]) == (0, 386.31)
    assert site.argv("client") == f"-d mlx5_0 -i 1 -p {site.tcp} -D 1 --report_gbits -F 127.0.0.1"
    assert site.argv("server") == f"-d mlx5_0 -i 1 -p {site.tcp} -D 1 --report_gbits -F"


@pytest.mark.parametrize(
    ("average", "exit_code", "words"),
    [
        ("386.31", 0, "good: 386.3 Gb/s, 97% of the port's 400"),
        ("320.00", 0, "slow: 320.0 Gb/s, 80% of the port's 400"),
        ("120.00", 1, "failed: 120.0 Gb/s, 30% of the port's 400 (bandwidth.low)"),
        ("nan", 1, "printed no figure that can be believed (bandwidth.no-figure)"),
    ],
)
def test_a_figure_is_judged_by_the_rate_of_the_port(site, node, server, average, exit_code, words):
    site.prints(average)
    server()
    code, said = node("client")
    assert code == exit_code
    assert words in said
    assert ("cure: " in said) is ("good" not in words)


def test_a_client_without_a_server_is_told_what_to_do(node):
    code, said = node("client")
    assert code == 1
    assert "no server answers (bandwidth.no-server)" in said
    assert "ib_write_bw said: Couldn't connect to 127.0.0.1" in said


def test_two_servers_at_one_port_are_told_apart_and_the_first_goes_on(site, node, server):
    first = server()
    code, said = node("server")
    assert (code, "bandwidth.port-in-use" in said) == (1, True)
    assert node("client")[0] == 0
    first.communicate(timeout=30)
    assert first.returncode == 0


# --- the server is gone


def test_a_server_to_which_nobody_comes_is_gone_afterwards(site, node, monkeypatch, processes):
    monkeypatch.setattr("workers.fabric.command._SETUP_S", 0.5)
    monkeypatch.setenv("LLMGW_STARTED_BY_TEST", processes.mark)
    site.plans("left")
    code, said = node("server", "--wait", "0.5", "--json")
    told = json.loads(said)
    assert (code, told["code"]) == (1, "bandwidth.no-client")
    assert "no answer within 2 s" in told["text"]
    eventually(lambda: len(processes.alive()) <= 1)  # this process itself may carry the mark


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("plan", ["hang", "left"])
def test_a_server_ends_with_the_command_however_that_ends(site, server, processes, how, plan):
    site.plans(plan)
    command = server()
    assert len(processes.alive()) >= 3
    command.send_signal(how)
    command.communicate(timeout=30)
    eventually(lambda: not processes.alive())


def test_a_test_that_is_under_way_ends_with_the_command(site, server, processes):
    site.plans("hang")
    waiting = server()
    client = processes.start([*NODE, "client", "127.0.0.1", *site.flags()], stdout=-1, stderr=-1)
    eventually(lambda: site.is_there("client"), timeout=30)
    for command in (waiting, client):
        command.kill()
        command.communicate(timeout=30)
    eventually(lambda: not processes.alive())


def test_a_tool_that_cannot_be_executed_is_said(site, node):
    (site.folder / "ib_write_bw").write_text("\x7fELF of another machine")
    code, said = node("client")
    assert (code, "bandwidth.broken-tool" in said) == (1, True)


# --- what is asked for


def test_roce_uses_the_address_that_is_chosen_by_rule(site, node):
    site.has_roce("mlx5_8")
    node("client", "--device", "mlx5_8")
    assert site.argv("client").startswith(f"-d mlx5_8 -i 1 -p {site.tcp} -D 1 -x 3 ")
    node("client", "--device", "mlx5_8", "--gid-index", "2")
    assert " -x 2 " in site.argv("client")


@pytest.mark.parametrize(("edition", "flag"), [("new", "--bind_source_ip"), ("old", "--source_ip")])
def test_a_server_is_bound_where_it_is_told(site, node, server, edition, flag):
    (site.folder / edition).touch()
    waiting = server("--bind", "127.0.0.1", "--qps", "4")
    assert site.argv("server").endswith(f"-q 4 --report_gbits -F {flag}=127.0.0.1")
    assert node("client", "--qps", "4")[0] == 0
    waiting.communicate(timeout=30)


@pytest.mark.parametrize(("edition", "flag"), [("new", "--ipv6-addr"), ("old", "--ipv6")])
def test_an_ipv6_address_is_said_to_be_one(site, capsys, edition, flag):
    (site.folder / edition).touch()
    main(["fabric-test", "client", "::1", *site.flags()])
    assert site.argv("client").endswith(f"--report_gbits -F {flag} ::1")
    assert "no server answers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--device", "mlx5_7"], "there is no port mlx5_7:1 on this node; there are: mlx5_0:1, mlx5_1:1, mlx5_8:1"),
        (["--port", "2"], "there is no port mlx5_0:2 on this node"),
        (["--device", "mlx5_0:3"], "there is no port mlx5_0:3 on this node"),
        (["--device", "mlx5_8", "--gid-index", "9"], "has no address at index 9; there are: 2, 3"),
        (["--gid-index", "first"], "--gid-index takes a number or auto"),
        (["--duration", "0"], "--duration takes 1 to 600 seconds"),
        (["--listen-port", "70000"], "--listen-port takes 1 to 65535"),
        (["--qps", "0"], "--qps takes 1 to 64"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(site, node, more, words):
    site.has("mlx5_1", 1, state="1: DOWN")
    site.has_roce("mlx5_8")
    code, said = node("client", *more)
    assert code == 2
    assert said.startswith("llmgw-node: ")
    assert words in said


@pytest.mark.parametrize("address", ["203.0.113.9", "nonsense", "127.0.0.1/8"])
def test_an_address_to_bind_must_be_one_of_this_node(node, address):
    code, said = node("server", "--bind", address)
    assert (code, "--bind takes an address of this node" in said) == (2, True)


@pytest.mark.parametrize("address", ["-o", "a b", "$(x)"])
def test_an_address_that_is_none_is_not_passed_on(site, capsys, address):
    assert main(["fabric-test", "client", *site.flags(), "--", address]) == 2
    assert "is no host name and no IP address" in capsys.readouterr().err


def test_wrong_usage_is_typed_too(node):
    code, said = node("client", "--device", "mlx5_7", "--json")
    assert (code, json.loads(said)["code"]) == (2, "bandwidth.no-such-port")


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"state": "1: DOWN", "phys_state": "2: Polling"}, "bandwidth.port-down"),
        ({"state": "2: INIT"}, "bandwidth.port-down"),
        ({"link_layer": "Ethernet"}, "bandwidth.no-gid"),
    ],
)
def test_a_port_that_carries_nothing_is_not_tested(site, node, facts, code):
    site.has("mlx5_1", 1, **facts)
    exit_code, said = node("client", "--device", "mlx5_1", "--json")
    assert (exit_code, json.loads(said)["code"]) == (1, code)
    assert not site.is_there("client")


def test_a_tool_that_is_missing_names_its_package(site, node, monkeypatch):
    (site.folder / "ib_write_bw").unlink()
    monkeypatch.setenv("PATH", str(site.folder))
    code, said = node("client")
    assert (code, "cure: install perftest" in said) == (1, True)


def test_flags_that_say_where_to_look_may_stand_before_the_role(site, capsys):
    _, _, *rest = site.flags()
    argv = ["fabric-test", "--sysfs", str(site.folder / "sys"), "client", "127.0.0.1", *rest]
    assert main(argv) == 1
    assert "no server answers" in capsys.readouterr().out
