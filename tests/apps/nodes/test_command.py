"""`manage.py nodes` as an operator sees it."""

import json

import pytest
from django.core.management import CommandError, call_command

from apps.audit.actions import BEAT
from apps.audit.models import AuditRow
from apps.nodes import actions
from apps.nodes.models import NodeRow
from llmgw.core.hardware.findings import Finding
from llmgw.core.world import NodeState
from tests.apps.nodes.reports import CPU, GPU, a_registration, an_inventory, an_inventory_change, at
from tests.builders import NO_DRIVER

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


@pytest.fixture
def told(capsys):
    def run(*argv):
        call_command("nodes", *argv)
        return capsys.readouterr().out

    return run


def test_no_node_says_what_to_do(told):
    assert "llmgw-node run" in told()
    assert json.loads(told("--json")) == {"items": []}


def test_each_node_is_one_line(joined, told):
    joined("gpu07")
    joined("gpu08")
    actions.receive(an_inventory_change(CPU, GPU, seq=3), now=at(1))
    actions.mark("gpu08", NodeState.READY, NodeState.UNREACHABLE, why="", by=BEAT, now=at(2))
    lines = told().splitlines()
    assert lines[0].split() == ["NODE", "STATE", "FOR", "HEARD", "ADDRESS", "DEVICES", "ENGINES"]
    assert [line.split()[:2] for line in lines[1:]] == [["gpu07", "ready"], ["gpu08", "unreachable"]]
    assert "cpu, l40s-45g" in lines[1]
    assert "llamacpp" in lines[1]


def test_json_is_one_document(joined, told):
    joined("gpu07")
    (item,) = json.loads(told("--json"))["items"]
    assert (item["name"], item["state"]) == ("gpu07", "ready")
    assert json.loads(told("gpu07", "--json")) == item


def test_one_node_with_its_devices_moves_and_findings(told):
    finding = Finding("pidfile.torn", "a pid file cannot be read: delete it")
    inventory = an_inventory(CPU, GPU, problems=(NO_DRIVER,))
    actions.receive(a_registration(inventory=inventory, findings=(finding,)), now=at(0))
    actions.receive(a_registration(epoch=1, seq=2, inventory=inventory, findings=(finding,)), now=at(1))
    said = told("gpu07")
    for part in ("45.0 GiB", "joining", "registered", "pidfile.torn", "no NVIDIA driver"):
        assert part in said


def test_cordon_and_uncordon_with_a_reason(joined, told):
    joined()
    assert told("cordon", "gpu07", "--reason", "new fan") == "gpu07 takes nothing new\n"
    assert told().splitlines()[1].split()[1] == "cordoned"
    assert json.loads(told("uncordon", "gpu07", "--json"))["cordoned"] is False
    assert list(AuditRow.objects.values_list("verb", "reason", "door")) == [
        ("node.uncordon", "", "cli"),
        ("node.cordon", "new fan", "cli"),
    ]


def test_a_lost_node_is_forgotten(joined, told):
    joined()
    with pytest.raises(CommandError, match="only a lost node") as refused:
        call_command("nodes", "forget", "gpu07")
    assert refused.value.returncode == 3
    actions.mark("gpu07", NodeState.READY, NodeState.LOST, why="", by=BEAT, now=at(2))
    assert told("forget", "gpu07") == "gpu07 is forgotten\n"
    assert not NodeRow.objects.exists()


@pytest.mark.parametrize("words", [["nobody"], ["cordon", "nobody"]])
def test_nobody_is_refused(words):
    with pytest.raises(CommandError, match="there is no node nobody") as refused:
        call_command("nodes", *words)
    assert refused.value.returncode == 3


@pytest.mark.parametrize("words", [["cordon"], ["gpu07", "gpu08"], ["drop", "gpu07"]])
def test_other_words_are_wrong_usage(words):
    with pytest.raises(CommandError) as wrong:
        call_command("nodes", *words)
    assert wrong.value.returncode == 2
