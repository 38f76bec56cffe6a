"""Who sits at the command line."""

import getpass
import os

from apps.audit.actions import Actor


def operator() -> Actor:
    """Return the person who runs this command, seen through sudo."""
    return Actor(os.environ.get("SUDO_USER") or _own_name(), "cli")


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        return f"uid {os.getuid()}"
