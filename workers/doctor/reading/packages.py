"""Reads which C library and which kernels are installed."""

import re
from collections.abc import Iterable


def parse_glibc(text: str) -> tuple[int, int] | None:
    """Read `ldd --version`: `ldd (Debian GLIBC 2.36-9) 2.36`; None for another C library."""
    found = re.search(r"^ldd \(.*\) (\d{1,3})\.(\d{1,4})\s*$", text, re.MULTILINE | re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def newer_kernels(images: Iterable[str], running: str) -> tuple[str, ...]:
    """Return the kernels in /boot that are newer than the running one and of its flavour, such as `-generic`."""
    releases = (name.removeprefix("vmlinuz-") for name in images if name.startswith("vmlinuz-"))
    same = (release for release in releases if _flavour(release) == _flavour(running))
    return tuple(sorted((release for release in same if _order(release) > _order(running)), key=_order))


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"[0-9]{1,9}", release))


def _flavour(release: str) -> str:
    return re.sub(r"[0-9]+", "", release).strip(".-_+")
