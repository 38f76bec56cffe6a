"""All checks together: what holds of each entry, of a node that is well, and of one whose files make no sense."""

import string

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.core.hardware.findings import Severity
from tests.workers.doctor.checks.patients import a_patient
from tests.workers.doctor.checks.whole_node import INFINIBAND, MASTER, ROCE, whole_node
from workers.doctor.checks import disk, fabrics, kernel, limits, network, ports, rdma, roce, software, time
from workers.doctor.entry import Verdict
from workers.ports import ToolResult

MODULES = (ports, fabrics, roce, rdma, kernel, limits, network, disk, time, software)
CHECKS = [check for module in MODULES for check in module.CHECKS]
NOT_YET = [entry for module in MODULES for entry in module.NOT_YET]
ERRORS = (OSError(22, ""), OSError(13, ""), OSError(5, ""))


def examine(patient):
    return {check.id: list(check.judge(patient)) for check in CHECKS}


def a_second_look():
    """The whole node an hour after the doctor has seen it first: counters as they were, the manager at work."""
    first = a_patient(**whole_node())
    examine(first)
    at_work = msgspec.structs.replace(MASTER, activity=150)
    later = msgspec.structs.replace(INFINIBAND, subnet_manager=at_work)
    return a_patient(**{**whole_node(), "ports": (later, ROCE)}, earlier=first.counters)


def test_each_check_has_a_name_of_its_own():
    names = [*(check.id for check in CHECKS), *(name for name, _, _ in NOT_YET)]
    assert len(names) == len(set(names))
    assert len(CHECKS) >= 65


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_each_check_says_all_that_its_page_needs(check):
    told = (check.title, check.reads, check.rule, check.costs, check.fix.text)
    assert all(text and text == text.strip() for text in told)
    assert not check.title.endswith(".")
    assert check.rule.endswith((".", "%"))
    assert check.costs.endswith(".")
    assert check.fix.command or not (check.fix.safe or check.fix.undo)
    assert check.worst in {Severity.FAIL, Severity.WARN}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_nothing_is_worse_than_its_entry_says(check):
    for patient in (a_patient(), a_patient(**whole_node())):
        outcomes = list(check.judge(patient))
        assert outcomes
        if check.worst is Severity.WARN:
            assert Verdict.FAIL not in {outcome.verdict for outcome in outcomes}


def test_a_node_that_is_well_passes_at_the_second_look():
    found = {
        check: outcome.text
        for check, outcomes in examine(a_second_look()).items()
        for outcome in outcomes
        if outcome.verdict not in {Verdict.PASS, Verdict.NOT_APPLICABLE}
    }
    assert found == {}


def test_a_node_of_which_nothing_can_be_read_passes_little():
    bare = examine(a_patient(disk_space=None, ports=(INFINIBAND, ROCE)))
    assert all(outcomes for outcomes in bare.values())
    assert not any("None" in outcome.text for outcomes in bare.values() for outcome in outcomes)


# --- files that make no sense -----------------------------------------------------------------------------------------


@st.composite
def mangled(draw, text):
    """A text of which a part is gone, with other signs in its place."""
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    return text[:begin] + draw(st.text(string.printable + "²٣é\0", max_size=12)) + text[end:]


@st.composite
def broken_nodes(draw):
    """The whole node, with some of its files and tools missing, unreadable or garbled."""
    facts = whole_node()
    for path in draw(st.lists(st.sampled_from(sorted(facts["files"])), max_size=12, unique=True)):
        facts["files"][path] = draw(st.one_of(st.sampled_from(ERRORS), mangled(facts["files"][path])))
    for tool in draw(st.lists(st.sampled_from(sorted(facts["tools"])), max_size=6, unique=True)):
        text = draw(mangled(facts["tools"][tool]))
        told = st.sampled_from(
            (ToolResult(0, text), ToolResult(255, text, text), ToolResult(None, problem="held up since 1"))
        )
        facts["tools"][tool] = draw(told)
    for link in draw(st.lists(st.sampled_from(sorted(facts["links"])), max_size=2)):
        facts["links"][link] = draw(mangled(facts["links"][link]))
    return a_patient(**facts, earlier=draw(st.sampled_from((None, {}, {"sm.2c90200259201.activity": 5}))), ago=0.0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken_nodes())
def test_no_check_raises_and_each_says_something(patient):
    for check in CHECKS:
        outcomes = list(check.judge(patient))
        assert outcomes
        assert all(outcome.text for outcome in outcomes)
        assert check.worst is Severity.FAIL or all(outcome.verdict is not Verdict.FAIL for outcome in outcomes)
        for outcome in outcomes:
            if outcome.verdict in {Verdict.WARN, Verdict.FAIL}:
                assert "{" not in check.fix.command.format(**outcome.fix_arguments)
                assert "{" not in check.fix.undo.format(**outcome.fix_arguments)
