"""The pages made from the core's tables, as they are checked in, say what the tables say."""

import re
from pathlib import Path

from llmgw.core.lifecycle import TRANSITIONS
from llmgw.core.refusals import REFUSALS
from llmgw.core.world import State

ROOT = Path(__file__).parents[2]
STALE = "run `make docs`"


def page(name):
    return (ROOT / name).read_text("utf-8")


def test_states_and_moves():
    rows = set(re.findall(r"^\| (\S+) \| (\S+) \| (\S+) \|$", page("docs/reference/lifecycle.md"), re.MULTILINE))
    moves = {(was.value, happened.value, becomes.value) for (was, happened), becomes in TRANSITIONS.items()}
    assert rows - {("---", "---", "---")} == moves, STALE


def test_refusals():
    codes = re.findall(r'^<a id="(\S+)"></a>$', page("docs/reference/refusals.md"), re.MULTILINE)
    assert codes == [kind.code for kind in REFUSALS], STALE


def test_the_core_s_own_picture_names_every_state():
    drawn = page("llmgw/core/README.md")
    assert not [state for state in State if state.value not in drawn]


def test_the_core_s_own_list_names_every_module():
    told = page("llmgw/core/README.md")
    modules = {path.stem for path in (ROOT / "llmgw/core").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not [name for name in modules - {"__init__", "__pycache__"} if f"`{name}" not in told]
