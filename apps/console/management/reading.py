"""The pages of docs/reference about programs: command lines, settings of the control plane, settings of a node."""

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from django.apps import apps
from django.core.management import find_commands, load_command_class

from apps.console import parsers, sources
from apps.console.reference import page

ROOT: Final = Path(__file__).resolve().parents[3]

# Nodes and the router are no business of this process, so another one is asked.
_ASK: Final = """
import json
from apps.console.parsers import describe
from llmgw.router.cli import _parser as router
from workers.cli import _parser as node
from workers.doctor.checks import CATALOGUE, NOT_YET
from workers.settings import KEYS, REQUIRED
checks = [
    {
        "id": check.id, "group": check.group.value, "title": check.title, "reads": check.reads, "rule": check.rule,
        "costs": check.costs, "fix": check.fix.text, "command": check.fix.command, "undo": check.fix.undo,
        "safe": check.fix.safe,
    }
    for check in CATALOGUE
]
expected = {key: kind.expected for key, kind in KEYS.items()}
told = {"parsers": [describe(node()), describe(router())], "expected": expected, "required": REQUIRED}
print(json.dumps({**told, "checks": checks, "not_yet": NOT_YET}))
"""

_VARIABLES: Final = MappingProxyType(
    {
        "DATABASE_URL": "The database: `sqlite:///…` or `postgres://user:password@host:5432/name`.",
        "REDIS_URL": "The Redis for messages, ticks and the routing table; the router reads it, too.",
        "LLMGW_STATE": "The state folder: SQLite file, what `up` keeps.",
        "LLMGW_SECRET_KEY": "Signs sessions and sign-in pages; `up` makes one and keeps it in the state folder.",
        "LLMGW_DEBUG": "Django's debug pages. They show settings: never on an address that others reach.",
        "LLMGW_ALLOWED_HOSTS": "Host names under which the console answers, with commas between.",
        "LLMGW_TRUSTED_ORIGINS": "Origins, such as `https://llmgw.example`, that forms may come from.",
        "LLMGW_SECURE_COOKIES": "Cookies over TLS only; set it behind a proxy with TLS.",
        "LLMGW_HEARTBEAT_S": "Seconds between two ticks.",
        "LLMGW_UNREACHABLE_TICKS": "Missed ticks until a node is unreachable: nothing new goes there.",
        "LLMGW_LOST_TICKS": "Missed ticks until a node is lost, and what ran there is replaced.",
        "LLMGW_RECONCILE_S": "Seconds between two looks whether a pass is due; the net below the events.",
        "LLMGW_DRAIN_S": "How many seconds a draining replica may finish its open requests.",
        "LLMGW_ORDER_RESEND_S": "After how many seconds without an answer an order is sent again; doubles to 60.",
        "LLMGW_ROUTER_URL": "Where clients reach the router: printed and linked, not listened on.",
        "LLMGW_ROUTER_OPEN": "`true` lets requests in at the router without a key.",
    }
)
_ELSEWHERE: Final = MappingProxyType(
    {
        "LLMGW_LOG": "`text` or `json`; without it, text on a terminal and JSON elsewhere. Every process.",
        "LLMGW_LOG_LEVEL": "`DEBUG`, `INFO` (default), `WARNING`, `ERROR`. Every process; a node's `log_level` wins.",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "The collector that takes traces, by OTLP over HTTP; without it, no tracing.",
        "LLMGW_NODE_SETTINGS": "The node's settings file, if `--settings` does not name it.",
        "LLMGW_NODE_<KEY>": "Overrides one of the [node's settings](node-settings.md).",
    }
)


def command_line_page() -> str:
    """List every command of the control plane, of a node and of the router."""
    return page(
        "Command line",
        "`manage.py` runs on the control plane, `llmgw-node` on a node, `llmgw-router` wherever a router runs. Exit "
        "codes of `manage.py`: 0 done, 1 failed, 2 wrong usage, 3 refused, with the reason. Most commands take "
        "`--json` and print one JSON document then. `manage.py` works on the state folder that `LLMGW_STATE` names "
        "(default: `.state`), and on the database and the Redis of the [environment](settings.md).",
        "## manage.py",
        *(_managed(name, app) for name, app in _our_commands()),
        *(text for parser in _processes()["parsers"] for text in _program(parser)),
    )


def settings_page() -> str:
    """List the environment of the control plane."""
    read = sources.variables_of((ROOT / "llmgw/settings/__init__.py").read_text("utf-8"))
    rows = [f"| `{name}` | {_as_code(default)} | {_VARIABLES[name]} |" for name, default in sorted(read.items())]
    others = [f"| `{name}` | {says} |" for name, says in _ELSEWHERE.items()]
    return page(
        "Settings of the control plane",
        "Read from the environment by web, control worker, beat and `manage.py`; nothing else is needed to go from one "
        "machine to several. `…` stands for a default that depends on the state folder.",
        "\n".join(["| variable | default | |", "| --- | --- | --- |", *rows]),
        "Read by other processes, or by all of them:",
        "\n".join(["| variable | |", "| --- | --- |", *others]),
    )


def node_settings_page() -> str:
    """List the keys of a node's settings file."""
    told = _processes()
    fields = sources.fields_of((ROOT / "workers/settings.py").read_text("utf-8"), "NodeSettings")
    return page(
        "Settings of a node",
        "Keys of the TOML file that `llmgw-node run --settings FILE` reads. `LLMGW_NODE_<KEY>` in the environment "
        "wins. An unknown key or a value that cannot be used is told with its place, and the worker does not start.",
        "\n".join(
            [
                "| key | takes | default | |",
                "| --- | --- | --- | --- |",
                *(_node_setting(field, told) for field in fields if field.name in told["expected"]),
            ]
        ),
        "In the environment, `engine_ports` is written `20000-20999` and `labels` `rack=a,zone=b`.",
    )


def doctor_page() -> str:
    """List the checks of the doctor, by group, and those that are not made yet."""
    told = _processes()
    groups = dict.fromkeys(check["group"] for check in told["checks"])
    return page(
        "Checks of the doctor",
        f"`llmgw-node doctor` runs these {len(told['checks'])} checks, and the worker does every `doctor_s` seconds. "
        "What could not be checked is told as unknown, never as a pass. `doctor --fix` runs, after asking, the cures "
        "that are marked safe, and no others.",
        *(_group(group, told["checks"]) for group in groups),
        "## Not made yet\n\n| id | would say | |\n| --- | --- | --- |\n"
        + "\n".join(f"| `{name}` | {title} | {why} |" for name, title, why in told["not_yet"]),
    )


def _group(group: str, checks: list[dict[str, Any]]) -> str:
    return "\n\n".join([f"## {group}", *(_check(check) for check in checks if check["group"] == group)])


def _check(check: Mapping[str, Any]) -> str:
    lines = [f"- read: {check['reads']}", f"- rule: {check['rule']}", f"- costs: {check['costs']}"]
    # A cure that a finding brings with it is told with the finding.
    lines += [f"- cure: {check['fix']}"] if check["fix"] != "{cure}" else ["- cure: the finding tells it"]
    if check["command"]:
        undo = f"; undo: `{check['undo']}`" if check["undo"] else ""
        lines.append(f"- {'safe' if check['safe'] else 'not safe while engines serve'}: `{check['command']}`{undo}")
    heading = f'<a id="{check["id"]}"></a>\n\n### `{check["id"]}`: {check["title"]}'
    return heading + "\n\n" + "\n".join(lines)


PAGES: Final[Mapping[PurePosixPath, Callable[[], str]]] = MappingProxyType(
    {
        PurePosixPath("docs/reference/command-line.md"): command_line_page,
        PurePosixPath("docs/reference/settings.md"): settings_page,
        PurePosixPath("docs/reference/node-settings.md"): node_settings_page,
        PurePosixPath("docs/reference/doctor.md"): doctor_page,
    }
)


# --- asked for ----------------------------------------------------------------------------------------------------


def _our_commands() -> Iterator[tuple[str, str]]:
    """Name the commands of our own apps, each with its app."""
    ours = [config for config in apps.get_app_configs() if config.name.startswith("apps.")]
    found = [(name, config.name) for config in ours for name in find_commands(str(Path(config.path) / "management"))]
    yield from sorted(found)


def _processes() -> dict[str, Any]:
    """Ask a process of their own what node and router take."""
    told = subprocess.run([sys.executable, "-c", _ASK], cwd=ROOT, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


# --- written down -------------------------------------------------------------------------------------------------


def _managed(name: str, app: str) -> str:
    command = load_command_class(app, name)
    usage = inspect.getdoc(type(command)) or ""
    module = importlib.import_module(f"{app}.management.commands.{name}")
    says = command.help or inspect.getdoc(module) or ""
    described = parsers.describe(command.create_parser("manage.py", name))
    return "\n\n".join([f'<a id="{name}"></a>\n\n### {name}', usage, says, *_arguments(described)])


def _program(parser: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {parser['name']}"
    for below in parser["commands"]:
        yield "\n\n".join([f"### {below['name']}", _sentence(below["says"]), *_arguments(below)])


def _arguments(described: Mapping[str, Any]) -> Iterator[str]:
    if described["arguments"]:
        yield "\n".join(["| argument | |", "| --- | --- |", *map(_row, described["arguments"])])
    for below in described["commands"]:
        yield f"**{below['name'].split()[-1]}**: {_sentence(below['says'])}"
        yield from _arguments(below)


def _row(argument: Mapping[str, Any]) -> str:
    names = ", ".join(argument["options"])
    call = f"{names} {argument['takes']}".strip() if names else argument["takes"]
    says = argument["says"] + (" (must be given)" if argument["required"] else "")
    return f"| `{_cell(call)}` | {_cell(says)} |"


def _node_setting(field: sources.Field, told: Mapping[str, Any]) -> str:
    default = "must be given" if field.name in told["required"] else _amount(field.default)
    expected = told["expected"][field.name]
    return f"| `{field.name}` | {_cell(expected)} | {default} | {_cell(field.says)} |"


def _amount(default: str) -> str:
    plain = {"None": "–", "''": "–", "False": "`false`", "_LOG_BYTES": "10 MiB", "_RESERVE": "1 GiB"}
    if default in plain:
        return plain[default]
    if default.startswith("field("):
        return "none"
    if default.startswith("Path("):
        default = default.removeprefix("Path(").removesuffix(")")
    return f"`{default.replace(chr(39), '').replace('(', '[').replace(')', ']')}`"


def _as_code(default: str) -> str:
    if not default or default == "''":
        return "–"
    return "…" if any(word in default for word in ("_kept", "STATE_DIR", "BASE_DIR")) else f"`{_cell(default)}`"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
