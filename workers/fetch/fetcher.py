"""Fetches the weights that a launch needs, one launch at a time for each file."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from llmgw.core.units import Bytes
from llmgw.core.validation.sources import HubFile, LocalFile, PackageFile, parse_source, source_problems
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress
from workers.fetch import verify
from workers.fetch.failure import MISSING, FetchFailed
from workers.fetch.verify import OnProgress
from workers.settings import NodeSettings

_WAIT: Final = 0.2


def free_on_disk(folder: Path) -> int:
    """Return how many bytes may still be written where this folder is."""
    return shutil.disk_usage(folder).free


class Fetcher:
    """Knows where a source's file is on this node, and brings it here if need be."""

    def __init__(self, settings: NodeSettings, disk_free: Callable[[Path], int] = free_on_disk) -> None:
        self._settings = settings
        self._disk_free = disk_free
        self._weights = settings.state / "weights"
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def fetch(self, source: Source, progress: OnProgress) -> Path:
        """Return the path of the weights, whole and verified; raises FetchFailed."""
        place = _place(source)
        with self._alone(_target(place), progress):
            if isinstance(place, HubFile):
                return self._from_hub(place, source, progress)
            return self._in_place(place, source, progress)

    def _in_place(self, place: PackageFile | LocalFile, source: Source, progress: OnProgress) -> Path:
        path = _package_path(place) if isinstance(place, PackageFile) else Path(place.path)
        size = _size_of(path, _cure_of(place))
        verify.check_size(str(path), size, source)
        if source.sha256:
            verify.check(path, source.sha256, self._weights / "verified", progress)
        progress(verify.whole(size))
        return path

    def _from_hub(self, place: HubFile, source: Source, progress: OnProgress) -> Path:
        # Half a second to load, and most nodes' weights lie on the node.
        from workers.fetch.hub import Hub  # noqa: PLC0415

        return Hub(self._settings, self._weights, self._disk_free).fetch(place, source, progress)

    @contextmanager
    def _alone(self, target: str, progress: OnProgress) -> Iterator[None]:
        """Let one launch at a time at a file: the second finds what the first has fetched."""
        with self._guard:
            lock = self._locks.setdefault(target, threading.Lock())
        while not lock.acquire(timeout=_WAIT):
            progress(Progress(Bytes(0)))
        try:
            yield
        finally:
            lock.release()


def _place(source: Source) -> PackageFile | LocalFile | HubFile:
    place = parse_source(source.uri)
    if place is None:
        raise FetchFailed(MISSING, "; ".join(problem.text() for problem in source_problems(source)))
    return place


def _target(place: PackageFile | LocalFile | HubFile) -> str:
    """Name what must not be touched by two at once; revisions of a hub's file may be the same commit."""
    return f"{place.repository}/{place.file}" if isinstance(place, HubFile) else repr(place)


def _package_path(place: PackageFile) -> Path:
    top, *below = place.package.split(".")  # asked for a dotted name, find_spec would import what is above it
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise FetchFailed(
            MISSING,
            f"the Python package {top} is not installed on this node"
            f" – install it into the environment of the node's worker, or declare another source",
        )
    paths = [Path(folder).joinpath(*below, place.file) for folder in spec.submodule_search_locations]
    return next((path for path in paths if path.exists()), paths[0])


def _cure_of(place: PackageFile | LocalFile) -> str:
    if isinstance(place, PackageFile):
        return f"install the version of {place.package} that has it, or correct the catalog entry"
    return "put it there, readable for the node's worker, or correct the catalog entry"


def _size_of(path: Path, cure: str) -> int:
    try:
        with path.open("rb"):
            stat = path.stat()
    except OSError as error:
        raise FetchFailed(MISSING, f"{path} cannot be read: {error.strerror} – {cure}") from error
    if not path.is_file():
        raise FetchFailed(MISSING, f"{path} is not a regular file – {cure}")
    return stat.st_size
