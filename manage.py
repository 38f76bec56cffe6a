#!/usr/bin/env python3
"""Django's command line, and with it everything an operator does on the control plane."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036  # said before anything is imported that an old Python cannot read
    sys.exit("llmgw needs Python 3.11 or newer, this is %d.%d: run it with python3.11." % sys.version_info[:2])  # noqa: UP031


def main() -> None:
    """Run one command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415  # after the version was checked

    from llmgw import logs  # noqa: PLC0415

    logs.configure("manage")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
