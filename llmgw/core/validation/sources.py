"""Where weights may come from: the grammar of a source, and what may be said of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llmgw.core.wanted import Problem, Source

MOST_BYTES: Final = 64 * 1024**4
LONGEST_URI: Final = 1000

_PACKAGE: Final = re.compile(r"[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)*", re.ASCII)
_REPOSITORY_PART: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,95}")
_REVISION: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FORMS: Final = "`package://<import name>/<file>`, `file:///<absolute path>` or `hf://<owner>/<repo>[@revision]/<file>`"


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file that an installed Python package brings along."""

    package: str
    file: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that every node has at the same path."""

    path: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on a model hub."""

    repository: str
    """`owner/name`."""
    revision: str | None
    file: str


def parse_source(uri: str) -> PackageFile | LocalFile | HubFile | None:
    """Read a source; None when it is none, or when its path climbs out of where it belongs."""
    scheme, separator, rest = uri.partition("://")
    parser = {"package": _package, "file": _file, "hf": _hub}.get(scheme)
    return parser(rest) if parser and separator and len(uri) <= LONGEST_URI else None


def source_problems(source: Source) -> Iterator[Problem]:
    """Find all that is wrong with a source."""
    if parse_source(source.uri) is None:
        told = "".join(letter if letter.isprintable() else "�" for letter in source.uri[:120])
        yield Problem(
            "source.uri", "source.form", f"`{told}` is no source of weights", f"write {_FORMS}; `..` is refused"
        )
    if source.size is not None and not 0 < source.size <= MOST_BYTES:
        yield Problem("source.size", "number.range", f"size is {source.size}", f"use 1 to {MOST_BYTES} bytes")
    if source.sha256 is not None and not _SHA256.fullmatch(source.sha256):
        message = f"sha256 has {len(source.sha256)} characters that are not all of 0-9 and a-f, or not 64 of them"
        yield Problem("source.sha256", "sha256.form", message, "use the 64 lower-case digits that `sha256sum` prints")


def _package(rest: str) -> PackageFile | None:
    package, _, file = rest.partition("/")
    return PackageFile(package, file) if _PACKAGE.fullmatch(package) and _stays_below(file) else None


def _file(rest: str) -> LocalFile | None:
    return LocalFile(rest) if rest.startswith("/") and _stays_below(rest[1:]) else None


def _hub(rest: str) -> HubFile | None:
    owner, _, below = rest.partition("/")
    repository, _, file = below.partition("/")
    name, at, revision = repository.partition("@")
    named = all(_REPOSITORY_PART.fullmatch(part) for part in (owner, name))
    if not named or not _stays_below(file) or (at and not _REVISION.fullmatch(revision)):
        return None
    return HubFile(f"{owner}/{name}", revision or None, file)


def _stays_below(path: str) -> bool:
    """A relative path of plain names: no step up, no empty step, nothing that a person could not read."""
    steps = path.split("/")
    return path.isprintable() and "\\" not in path and all(step.strip() not in {"", ".", ".."} for step in steps)
