"""Diagnostic packages: which are missing where, what that costs, and installing them without touching anything else."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.network import LinkLayer, Port
from tests.fakes.machine import FakeMachine
from workers.discovery import packages
from workers.ports import ToolResult
from workers.settings import NodeSettings
from workers.system import RealMachine

IB, ROCE = Port(hca="mlx5_0", link_layer=LinkLayer.INFINIBAND), Port(hca="mlx5_1", link_layer=LinkLayer.ETHERNET)
ALLOWED = NodeSettings(id="n1", install_packages=True)
ROOT = {"/proc/self/status": "Uid:\t0\t0\t0\t0\n", "/etc/os-release": 'ID=ubuntu\nID_LIKE="debian"\n'}


@pytest.mark.parametrize(
    ("ports", "has_cards", "wanted"),
    [
        ((), False, []),
        ((), True, ["pciutils"]),
        ((ROCE,), False, ["perftest", "pciutils"]),
        ((IB,), True, ["infiniband-diags", "perftest", "pciutils"]),
        ((Port(hca="rxe0", is_software=True),), False, []),
    ],
)
def test_only_what_this_machine_needs_is_missing(ports, has_cards, wanted):
    assert [each.package for each in packages.missing(FakeMachine(), ports, has_cards=has_cards)] == wanted


def test_one_line_says_what_is_missing_and_what_that_costs():
    told = packages.problems(packages.missing(FakeMachine(), (ROCE,), has_cards=False), NodeSettings())
    assert [problem.code for problem in told] == ["perftest.missing", "pciutils.missing"]
    assert "the bandwidth between two nodes" in told[0].text
    assert "lspci is not installed, so it is not known: whether bridges keep cards and adapters apart" in told[1].text
    assert "install_packages" in told[0].text


# --- installing, by made-up managers that are real programs

APT = """#!/bin/sh
echo "$DEBIAN_FRONTEND $@" >> {folder}/calls
case "$*" in
  *--simulate*) cat {folder}/plan ;;
  *) cat {folder}/said >&2; exit $(cat {folder}/code) ;;
esac
"""


class Site:
    """A machine whose only package manager is made up."""

    def __init__(self, folder, manager="apt-get"):
        self.folder = folder
        tool = folder / manager
        tool.write_text(APT.format(folder=folder))
        tool.chmod(0o755)
        self.tell()

    def tell(self, plan="Inst perftest (24.01)\n", said="", code=0):
        (self.folder / "plan").write_text(plan)
        (self.folder / "said").write_text(said)
        (self.folder / "code").write_text(str(code))

    def install(self, *names, user=0, settings=ALLOWED):
        proc = self.folder / "proc/self"
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "status").write_text(f"Uid:\t{user}\t{user}\t{user}\t{user}\n")
        machine = RealMachine({**os.environ, "PATH": "/usr/bin:/bin"}, proc=self.folder / "proc", tools=self.folder)
        told = packages.install(machine, settings, names or ("perftest",))
        return [(problem.code, problem.literal) for problem in told]

    def calls(self):
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_package_is_installed_and_nobody_is_asked(site):
    assert site.install() == []
    pretended, done = site.calls()
    assert pretended.endswith("--simulate perftest")
    assert done.startswith("noninteractive install -y -q --no-install-recommends --no-upgrade --no-remove")


@pytest.mark.parametrize("plan", ["Inst libc6 [2.36] (2.37)\nInst perftest (24)\n", "Remv rdma-core [50]\n"])
def test_nothing_that_is_there_is_touched_for_it(site, plan):
    site.tell(plan=plan)
    assert [code for code, _ in site.install()] == ["packages.not-allowed"]
    assert len(site.calls()) == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock", "packages.held-up"),
        ("E: Failed to fetch the archive", "packages.exit"),
        ("E: Unable to locate package perftest", "packages.absent"),
        ("E: something new", "packages.exit"),
    ],
)
def test_a_failure_is_told_in_the_managers_words(site, said, code):
    site.tell(said=said, code=100)
    assert site.install() == [(code, said)]


def test_what_is_not_allowed_is_not_begun(site):
    assert [code for code, _ in site.install(settings=NodeSettings(id="n1"))] == ["packages.not-allowed"]
    assert [code for code, _ in site.install(user=1000)] == ["packages.not-allowed"]
    assert [code for code, _ in site.install("curl")] == ["packages.not-allowed"]
    assert site.calls() == []


def test_a_system_without_a_manager_says_so():
    (problem,) = packages.install(FakeMachine(files=ROOT), ALLOWED, ("perftest",))
    assert problem.code == "packages.missing"


def test_dnf_may_say_no_to_what_it_is_only_asked():
    tools = {"dnf": ToolResult(0), "dnf install --assumeno --setopt=install_weak_deps=False perftest": ToolResult(1)}
    files = {**ROOT, "/etc/os-release": "ID=rocky\n"}
    machine = FakeMachine(files=files, programs={"dnf": "dnf"}, tools=tools)
    assert packages.install(machine, ALLOWED, ("perftest",)) == ()
    assert [call[1:3] for call in machine.calls] == [("install", "--assumeno"), ("install", "-y")]


@given(st.text(), st.text())
def test_whatever_a_manager_says_is_an_answer(out, err):
    tools = {"env": ToolResult(1, out, err)}
    machine = FakeMachine(files=ROOT, programs={"apt-get": "apt-get", "env": "env"}, tools=tools)
    assert packages.install(machine, ALLOWED, ("perftest",))


def test_a_look_waits_for_no_installation():
    machine = FakeMachine(files=ROOT)
    installer = packages.Installer(machine, ALLOWED)
    lacking = packages.missing(machine, (ROCE,), has_cards=False)
    assert installer.attend(lacking) == ()
    installer._inquiry.wait(5)
    assert [problem.code for problem in installer.attend(lacking)] == ["packages.missing"]
    assert installer.attend(()) == ()
