"""The commands: results on standard output, reasons on standard error, and exit codes that scripts can trust."""

import io
import json

import msgspec
import pytest
from django.core.management import CommandError, call_command

from apps.audit.models import AuditRow
from apps.nodes.models import NodeFactsRow
from apps.replicas.models import OrderRow, PassRow, ReplicaRow
from llmgw.core.world import State
from tests.builders import EXAMINATION, a_model


def run(*words):
    """Run a command; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*words, stdout=out, stderr=err)
    except CommandError as no:
        return no.returncode, str(no)
    except SystemExit as end:
        return end.code, out.getvalue() or err.getvalue()
    return 0, out.getvalue()


def document(*words, code=0):
    done, told = run(*words, "--json")
    assert done == code, told
    return json.loads(told)


def test_reconcile_runs_what_is_wanted(world):
    world.node()
    world.declare()
    code, told = run("reconcile")
    assert code == 0
    assert "start smollm2/1 by profile cpu on n1 (cpu)" in told
    assert world.replica().state == State.PLACED
    assert run("reconcile")[1].endswith("nothing to do\n")


def test_a_dry_run_prints_the_same_plan_and_writes_nothing(world):
    world.node()
    world.declare()
    dry = document("reconcile", "--dry-run")
    assert not ReplicaRow.objects.exists()
    assert not PassRow.objects.exists()
    (wet,) = document("reconcile")["items"]
    assert wet["actions"] == dry["actions"]
    assert wet["refusals"] == dry["refusals"]


def test_reconcile_says_when_somebody_else_is_at_it(world):
    world.declare()
    world.begin_pass("a worker")
    from datetime import UTC, datetime, timedelta

    from apps.replicas.models import ReconcileRow

    ReconcileRow.objects.update(held_until=datetime.now(UTC) + timedelta(seconds=30))
    code, told = run("reconcile")
    assert code == 1
    assert "another worker" in told


def test_explain_ends_with_three_when_something_has_no_place(world):
    world.declare()
    world.passes()
    code, told = run("explain", "smollm2")
    assert code == 3
    assert "no node has joined" in told
    assert document("explain", "smollm2", code=3)["model"] == "smollm2"


def test_explain_ends_with_zero_when_all_is_well(world):
    world.serve()
    assert run("explain", "smollm2")[0] == 0


def test_explain_refuses_a_model_that_is_not_declared(world):
    code, told = run("explain", "ghost")
    assert (code, told) == (
        3,
        "model.unknown: there is no model ghost – `manage.py models` lists those that are declared",
    )


def test_models_lists_and_shows_and_retires(world):
    assert "no model is declared" in run("models")[1]
    world.serve()
    assert "1 of 1 ready" in run("models")[1]
    (item,) = document("models")["items"]
    assert (item["name"], item["ready"], item["wanted"]) == ("smollm2", 1, 1)
    assert "smollm2/1" in run("models", "smollm2")[1]
    assert document("models", "smollm2")["replica_names"] == ["smollm2/1"]
    assert run("models", "retire", "smollm2", "--reason", "old") == (0, "smollm2 is retired; its replica drains\n")
    assert AuditRow.objects.get(verb="model.retire").reason == "old"
    assert run("models", "retire", "smollm2")[0] == 3
    assert run("models", "smollm2")[0] == 3


def test_retiring_what_does_not_run_promises_no_drain(world):
    world.declare()
    world.passes()
    assert run("models", "retire", "smollm2") == (0, "smollm2 is retired; nothing of it was running\n")


def test_an_adopted_engine_is_shown_as_such(world):
    node = world.serve()
    assert "adopted" not in run("replicas", "smollm2/1")[1]
    node.tell(world.shard().launch_id, State.READY, adopted=True)
    assert "engine    adopted: the present worker of n1 found it running" in run("replicas", "smollm2/1")[1]


def test_replicas_lists_and_shows_one_with_its_history(world):
    assert run("replicas")[1] == "there are no replicas\n"
    node = world.node()
    world.declare()
    world.passes()
    node.fail(world.shard().launch_id, "no memory left")
    assert "smollm2/1  failed" in run("replicas")[1]
    told = run("replicas", "smollm2/1")[1]
    assert "out-of-memory: no memory left" in told
    assert "| failed to allocate" in told
    shown = document("replicas", "smollm2/1")
    assert shown["timeline"]["attempts"][0]["launches"][0]["failure"]["text"] == "no memory left"
    assert document("replicas")["items"][0]["name"] == "smollm2/1"


def test_replicas_drain_is_audited_and_ordered(world):
    world.serve()
    code, told = run("replicas", "drain", "smollm2/1", "--reason", "new kernel")
    assert (code, told.startswith("smollm2/1 takes no new requests")) == (0, True)
    assert OrderRow.objects.get(kind="stop").payload["drain_s"] > 0
    row = AuditRow.objects.get(verb="replica.drain")
    assert (row.reason, row.door, row.before, row.after) == (
        "new kernel",
        "cli",
        {"state": "ready"},
        {"state": "draining"},
    )


def test_what_cannot_be_asked_is_refused_with_the_reason(world):
    world.declare()
    world.passes()
    code, told = run("replicas", "drain", "smollm2/1")
    assert (code, told) == (3, "lifecycle.not-allowed: drain-asked cannot happen to what is queued")
    assert run("replicas", "drain", "ghost/1")[0] == 3


@pytest.mark.parametrize(
    "words", [("replicas", "drain"), ("replicas", "a", "b", "c"), ("models", "retire"), ("models", "a", "b")]
)
def test_wrong_usage_ends_with_two(world, words):
    assert run(*words)[0] == 2


def test_passes_lists_what_was_done_and_refused(world):
    assert run("passes")[1] == "no pass yet\n"
    world.node()
    world.declare(a_model(replicas=5))
    world.passes()
    told = run("passes")[1]
    assert "start smollm2/1" in told
    assert "smollm2/5 refused: 1 × device.claimed" in told
    (item,) = document("passes", "--limit", "1")["items"]
    assert item["by"] == "alice"


def test_the_doctor_is_sent_to_a_node_and_its_findings_are_printed(world):
    world.node()
    assert run("doctor", "n1") == (0, "the doctor has not run on n1 yet: `manage.py doctor n1 --run`\n")
    code, told = run("doctor", "n1", "--run", "--reason", "slow")
    assert code == 0
    assert "is to run now" in told
    assert OrderRow.objects.get(kind="examine").payload["node"] == "n1"
    assert AuditRow.objects.get(verb="node.examine").reason == "slow"
    code, told = run("doctor", "nobody", "--run")
    assert code == 3
    assert "node.unknown" in told


def test_a_node_on_which_something_fails_is_told_by_the_exit_code(world):
    world.node()
    NodeFactsRow.objects.filter(node__name="n1").update(examination=msgspec.to_builtins(EXAMINATION))
    code, told = run("doctor", "n1")
    assert code == 1
    for part in (
        "1 fail",
        "gpu.row-remap: GPU 3: row remap pending",
        "nvidia-smi -r -i 3",
        "=mlx5_0:1",
        "no usable port",
    ):
        assert part in told
    assert "driver.loaded" not in told, "what passes is only counted"
    assert document("doctor", "n1", code=1)["outcomes"][0]["check"] == "gpu.row-remap"
