"""Reads what a source's address says; a path that leads out of its place is refused."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from workers.fetch.failure import MISSING, FetchFailed

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_REVISION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")
_FORMS: Final = "use package://<import name>/<file>, file:///<absolute path> or hf://<owner>/<repo>[@revision]/<file>"


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file inside an installed Python package."""

    package: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that the operator put on the node."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on a hub."""

    owner: str
    repo: str
    revision: str
    parts: tuple[str, ...]

    @property
    def repo_id(self) -> str:
        """As the hub names it."""
        return f"{self.owner}/{self.repo}"

    @property
    def filename(self) -> str:
        """The path inside the repository."""
        return "/".join(self.parts)


AnySource = PackageFile | LocalFile | HubFile


def parse(uri: str) -> AnySource:
    """Read an address; raises FetchFailed for one that is none of the three."""
    form = re.match(r"[a-z]+(?=://)", uri)
    reader = _READERS.get(form[0]) if form else None
    if reader is None:
        raise _unusable(uri)
    return reader(uri, urlsplit(uri))


def _package(uri: str, url: SplitResult) -> PackageFile:
    if not url.netloc.isidentifier():
        raise _unusable(uri)
    return PackageFile(url.netloc, _parts(uri, url.path))


def _local(uri: str, url: SplitResult) -> LocalFile:
    if url.netloc not in {"", "localhost"}:
        raise _unusable(uri)
    return LocalFile(Path("/", *_parts(uri, url.path)))


def _hub(uri: str, url: SplitResult) -> HubFile:
    head, _, path = url.path.removeprefix("/").partition("/")
    repo, _, revision = head.partition("@")
    revision = unquote(revision) or "main"
    named = _NAME.fullmatch(url.netloc) and _NAME.fullmatch(repo) and _REVISION.fullmatch(revision)
    if not named or ".." in repo or ".." in revision.split("/"):
        raise _unusable(uri)
    return HubFile(url.netloc, repo, revision, _parts(uri, path))


_READERS: Final[Mapping[str, Callable[[str, SplitResult], AnySource]]] = MappingProxyType(
    {"package": _package, "file": _local, "hf": _hub}
)


def _parts(uri: str, path: str) -> tuple[str, ...]:
    parts = tuple(unquote(part) for part in path.removeprefix("/").split("/"))
    if any(part in {"", ".", ".."} or set(part) & set("/\\\0") for part in parts):
        raise _unusable(uri)
    return parts


def _unusable(uri: str) -> FetchFailed:
    return FetchFailed(MISSING, f"{uri!r} names no file that a node may read – {_FORMS}, without `..`")
