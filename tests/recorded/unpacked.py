"""Unpacks a recording into real trees and real programs, for `--sysfs`, `--proc` and `--tools`."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from workers.recording import form
from workers.recording.form import Call, Facts


def unpack(recording: Path, folder: Path) -> None:
    """Make `sys`, `proc` and `tools` in a folder."""
    facts = msgspec.json.decode((recording / form.FACTS).read_bytes(), type=Facts)
    for tree in ("sys", "proc", form.TOOLS):
        (folder / tree).mkdir(parents=True)
    for path, target in sorted(facts.links.items(), key=lambda pair: len(pair[0])):
        _link(form.place(folder, path), target)
    for path, text in form.files_in((recording / form.LINES).read_text("utf-8")).items():
        file = form.place(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    calls = recording / form.TOOLS / form.CALLS
    _programs(
        msgspec.json.decode(calls.read_bytes(), type=dict[str, Call]) if calls.exists() else {}, calls.parent, folder
    )


def _link(link: Path, target: str) -> None:
    """Make a link, and what it names where that is a device of its own."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    if link.name != "driver":
        (link.parent.resolve() / target).resolve().mkdir(parents=True, exist_ok=True)


def _programs(calls: Mapping[str, Call], recorded: Path, folder: Path) -> None:
    by_tool: dict[str, list[tuple[str, Call]]] = defaultdict(list)
    for name, call in calls.items():
        by_tool[call.line.split(" ")[0]].append((name, call))
    for tool, answers in by_tool.items():
        program = folder / form.TOOLS / tool
        program.write_text(_script(answers, recorded.resolve()))
        program.chmod(0o755)


def _script(answers: Iterable[tuple[str, Call]], recorded: Path) -> str:
    """Write a program that prints what was recorded of each call; the shell finds which, `cat` prints it."""
    cases = "".join(_case(call, recorded / name) for name, call in answers)
    return (
        f'#!/bin/sh\ncase "$*" in\n{cases}*) echo "not recorded: $*" >&2; exit 2 ;;\nesac\ncat "$out"\nexit "$code"\n'
    )


def _case(call: Call, out: Path) -> str:
    arguments = shlex.quote(call.line.partition(" ")[2])
    return f"{arguments}) out={shlex.quote(str(out))}; code={call.code or 0} ;;\n"
