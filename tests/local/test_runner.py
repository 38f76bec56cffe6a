"""The runner, with small real programs: order, output, restarts, and the end."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from llmgw.local import identity
from llmgw.local.state import StateFolder

# Runs a table of shell scripts, told as JSON: a program that needs its own process, since signals are its business.
RUN = """
import asyncio, json, sys
from pathlib import Path
from llmgw.local import runner
from llmgw.local.log import Log
from llmgw.local.runner import Program, Runner, Step
from llmgw.local.state import Refused, StateFolder

told = json.loads(sys.argv[1])
runner.FIRST_WAIT_S, runner.PATIENCE_S = 0.05, told.get("patience", 5)
state = StateFolder(Path(told["state"]))
state.prepare()

def exists(name):
    async def probe():
        return Path(told["state"], name).exists()
    return probe

def program(name, script, needs=(), probe="", last=False):
    argv = ("/bin/sh", "-c", script, name)
    return Program(name, argv, {"S": told["state"], "PATH": "/usr/bin:/bin"}, tuple(needs),
                   exists(probe) if probe else None, last)

def do(name):
    def step(stopping):
        print("doing", name, flush=True)
        if name == "fails":
            raise RuntimeError("no such luck")
        return Refused("x", "it will not do", "do other") if name == "refuses" else None
    return step

programs = [program(**each) for each in told["programs"]]
steps = [Step(name, do(name), tuple(needs)) for name, needs in told.get("steps", {}).items()]
done = asyncio.run(Runner(programs, steps, state=state, log=Log()).run())
print("result", done if isinstance(done, int) else done.what, flush=True)
"""


class Running:
    """A runner in a process of its own."""

    def __init__(self, processes, eventually, state, programs, **more):
        told = {"state": str(state), "programs": programs, **more}
        self.state = StateFolder(state)
        self.out = state.parent / "out"
        self._eventually = eventually
        with self.out.open("wb") as out:
            argv = [sys.executable, "-c", RUN, json.dumps(told)]
            self.process = processes.start(argv, stdout=out, stderr=subprocess.STDOUT)

    def said(self):
        return self.out.read_text()

    def until(self, text, count=1):
        self._eventually(lambda: self.said().count(text) >= count or self._failed(text), timeout=20)
        return self.said()

    def _failed(self, text):
        assert self.process.poll() is None, f"ended before it said {text!r}:\n{self.said()}"

    def pid(self, name):
        known = self._eventually(lambda: identity.read(self.state.record(name)))
        return known.pid

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(20)
        return self.said()


@pytest.fixture
def run(processes, eventually, tmp_path):
    def start(*programs, **more):
        return Running(processes, eventually, tmp_path / "state", programs, **more)

    return start


def lines_of(said, name):
    return [line[18:] for line in said.splitlines() if line[9:].startswith(name)]


def forever(script):
    return textwrap.dedent(script) + "\nwhile :; do sleep 0.05; done"


def test_programs_start_when_what_they_need_is_ready(run):
    first = {"name": "first", "script": forever('sleep 0.2; touch "$S/up"'), "probe": "up"}
    second = {"name": "second", "script": forever('ls "$S/up" && echo second runs'), "needs": ["first", "tables"]}
    running = run(second, first, steps={"tables": ["first"]})
    said = running.until("second runs")
    assert said.index("first is ready") < said.index("doing tables") < said.index("second runs")


def test_every_line_carries_the_name_of_its_program(run):
    running = run({"name": "web", "script": forever("echo out; echo err >&2; printf 'no end'")})
    running.until("err")
    said = running.stop()
    assert lines_of(said, "web")[:3] == ["out", "err", "no end"]


def test_one_that_dies_is_started_again_with_growing_waits(run):
    running = run({"name": "web", "script": "echo begun; exit 7"})
    said = running.until("begun", 4)
    again = [line for line in lines_of(said, "up") if "web ended with exit code 7" in line]
    waits = [float(line.split(" starts again in ")[1].split(" ")[0]) for line in again]
    assert len(again) >= 3
    assert waits == sorted(waits)


def test_one_that_is_killed_is_told_so(run, eventually):
    running = run({"name": "web", "script": forever("echo begun")})
    running.until("begun")
    os.kill(running.pid("web"), signal.SIGKILL)
    said = running.until("begun", 2)
    assert "web was ended by SIGKILL" in said


def test_one_that_cannot_be_started_is_told_so(run):
    # No such folder to run in, no such program: the same to the kernel.
    running = run({"name": "web", "script": "exec /no/such/program"})
    assert "not found" in running.until("starts again")


def test_one_that_cannot_be_written_down_is_listened_to_and_started_again_all_the_same(run, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "run").write_text("in the way, as a full disk is")
    running = run({"name": "web", "script": "echo begun; exit 7"})
    assert "cannot write down what runs as web" in running.until("begun", 2)
    running.stop()
    assert running.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_and_those_that_are_needed_last(run, number):
    farewell = "trap 'echo {0} ends; exit 0' TERM\necho {0} begins"
    names = ("redis", "web", "beat")
    table = [{"name": name, "script": forever(farewell.format(name)), "last": name == "redis"} for name in names]
    running = run(*table)
    for name in names:
        running.until(f"{name} begins")
    said = running.stop(number)
    assert running.process.returncode == 0
    assert said.endswith("result 0\n")
    assert f"{number.name}: stopping" in said
    assert said.index("web ends") < said.index("redis ends")
    assert said.index("beat ends") < said.index("redis ends")
    assert not list((running.state.path / "run").iterdir())


def test_it_ends_when_nobody_reads_its_log_any_more(processes, eventually, tmp_path):
    told = {"state": str(tmp_path / "state"), "programs": [{"name": "web", "script": forever("echo a line")}]}
    run = processes.start([sys.executable, "-c", RUN, json.dumps(told)], stdout=subprocess.PIPE)
    assert run.stdout.readline()
    web = identity.read(StateFolder(tmp_path / "state").record("web"))
    assert web is not None
    run.stdout.close()
    os.kill(web.pid, signal.SIGKILL)  # which it wants to tell
    assert run.wait(20) == 0


def test_one_that_does_not_listen_is_killed(run):
    running = run({"name": "web", "script": forever("trap '' TERM\necho deaf")}, patience=0.3)
    running.until("deaf")
    running.stop()
    assert running.process.returncode == 0


def test_asked_twice_it_kills_at_once(run, eventually):
    running = run({"name": "web", "script": forever("trap '' TERM\necho deaf")}, patience=60)
    running.until("deaf")
    running.process.send_signal(signal.SIGINT)
    running.until("stopping")
    assert "killing" in running.stop(signal.SIGINT)


def test_programs_are_out_of_reach_of_the_terminals_ctrl_c(run):
    running = run({"name": "web", "script": forever("echo begun")})
    running.until("begun")
    assert os.getpgid(running.pid("web")) != os.getpgid(running.process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_programs_end_with_a_killed_runner_and_their_grandchildren_in_other_sessions_do_not(run, eventually):
    script = 'setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $! >"$S/engine"; echo begun'
    running = run({"name": "node", "script": forever(script)})
    running.until("begun")
    node = psutil.Process(running.pid("node"))
    engine = psutil.Process(int((running.state.path / "engine").read_text()))
    running.process.kill()
    running.process.wait()
    eventually(lambda: not node.is_running() or node.status() == psutil.STATUS_ZOMBIE)
    assert engine.is_running()


def test_what_a_program_left_holding_its_output_delays_nothing(run):
    script = "setsid sleep 60 & echo begun"
    running = run({"name": "node", "script": script})
    running.until("starts again")
    running.stop()


def test_a_step_that_fails_ends_all(run):
    running = run({"name": "web", "script": forever("")}, steps={"fails": []})
    running.process.wait(20)
    assert "error: fails failed: no such luck" in running.said()
    assert running.said().endswith("result 1\n")


def test_a_step_that_refuses_ends_all(run):
    running = run({"name": "web", "script": forever("")}, steps={"refuses": []})
    running.process.wait(20)
    assert running.said().endswith("result it will not do\n")
