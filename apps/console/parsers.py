"""What a command takes, read from its own argparse parser: for the reference, and for tests that hold pages to it."""

import argparse
from typing import Any, Final

# Django gives these to every command; `manage.py help COMMAND` prints them.
_OF_DJANGO: Final = frozenset(
    {"version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks"}
)


def describe(parser: argparse.ArgumentParser, *, of_django: bool = False) -> dict[str, Any]:
    """Return name, arguments and sub-commands as plain values; Django's own options only if asked for."""
    left_out = {"help"} if of_django else _OF_DJANGO | {"help"}
    shown = [action for action in parser._actions if action.dest not in left_out]  # noqa: SLF001  # no public way
    groups = [action for action in shown if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    return {
        "name": parser.prog,
        "arguments": [_argument(action) for action in shown if action not in groups],
        "commands": [
            {**describe(below, of_django=of_django), "says": says} for group in groups for below, says in _below(group)
        ],
    }


def _argument(action: argparse.Action) -> dict[str, Any]:
    takes = action.metavar or ("" if action.nargs == 0 else action.dest.upper() if action.option_strings else "")
    return {
        "options": list(action.option_strings),
        "takes": str(takes) if action.option_strings else str(action.metavar or action.dest.upper()),
        "says": (action.help or "") % {"default": action.default},
        "required": bool(action.required and action.option_strings),
    }


def _below(group: Any) -> list[tuple[argparse.ArgumentParser, str]]:
    says = {choice.dest: choice.help or "" for choice in group._choices_actions}  # noqa: SLF001
    return [(parser, says.get(name, "")) for name, parser in group.choices.items()]
