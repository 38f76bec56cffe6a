#!/usr/bin/env python3
"""Django's command line, and with it everything an operator does on the control plane."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw.local import up

if sys.version_info < (3, 11):  # noqa: UP036  # said before anything is imported that an old Python cannot read
    sys.exit("llmgw needs Python 3.11 or newer, this is %d.%d: run it with python3.11." % sys.version_info[:2])  # noqa: UP031


def main() -> None:
    """Run one command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
    words = sys.argv[1:]
    if state := state_folder(words):
        os.environ["LLMGW_STATE"] = state
    if words[:1] == ["up"] and not {"-h", "--help"} & set(words):
        from llmgw.local import up  # noqa: PLC0415  # after the version was checked

        sys.exit(up.main(words[1:], load_preparation))
    from django.core.management import execute_from_command_line  # noqa: PLC0415

    from llmgw import celery, logs  # noqa: F401, PLC0415  # celery: names the app that commands send tasks by

    logs.configure("manage")
    from django.db.utils import OperationalError, ProgrammingError  # noqa: PLC0415

    try:
        execute_from_command_line(sys.argv)
    except (OperationalError, ProgrammingError) as error:
        if not is_unprepared(str(error)):
            raise
        sys.exit(
            f"the database of {os.environ.get('LLMGW_STATE', '.state')} has no tables of this version: start "
            "`manage.py up`, or run `manage.py migrate`; LLMGW_STATE and DATABASE_URL say where it is"
        )


def is_unprepared(said: str) -> bool:
    """Tell by a database's words whether its tables are not there, or of another version."""
    return any(words in said for words in ("no such table", "no such column", "does not exist"))


def state_folder(words: list[str]) -> str:
    """Read `--state DIR` of the commands that take it before the settings are read, which depend on it."""
    if words[:1] not in (["up"], ["down"], ["reset"]):
        return ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--state" or word.startswith("--state="):
            return word.partition("=")[2] or following
    return ""


def load_preparation() -> "up.Preparation":
    """Load Django for `up`, which has started its programs by then."""
    import django  # noqa: PLC0415

    from llmgw import celery  # noqa: F401, PLC0415

    django.setup()
    from apps.console.management import preparation  # noqa: PLC0415

    return preparation


if __name__ == "__main__":
    main()
