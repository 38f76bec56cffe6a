"""Fetches from a hub: asks first what the file is, goes on where an earlier try ended, and keeps it by commit."""

import errno
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import httpx2
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from llmgw.core.units import Bytes, gib
from llmgw.core.validation.sources import HubFile
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress
from workers.fetch import verify
from workers.fetch.failure import DISK_FULL, FAILED, MISSING, FetchFailed
from workers.fetch.verify import OnProgress
from workers.settings import NodeSettings

# Its warnings quote addresses that are signed for the bearer.
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SPARE: Final = 64 * 1024**2
"""Room that a fetch leaves on the disk, so that journals and logs can still be written."""


@dataclass(frozen=True, slots=True)
class Remote:
    """What the hub says of a file before a byte of it is fetched."""

    commit: str
    etag: str
    size: int

    @property
    def sha256(self) -> str | None:
        """The hub's own checksum, which its large files have as their tag."""
        return self.etag if _SHA256.fullmatch(self.etag) else None


class Hub:
    """One hub, and the folder where its files are kept: `hf/<owner>/<repo>/<commit>/<file>`."""

    def __init__(self, settings: NodeSettings, weights: Path, disk_free: Callable[[Path], int]) -> None:
        self._settings = settings
        self._files = weights / "hf"
        self._marks = weights / "verified"
        self._disk_free = disk_free

    def fetch(self, place: HubFile, source: Source, progress: OnProgress) -> Path:
        """Return the whole, verified file, from here if it is here."""
        kept = self._kept(place)
        if kept and (self._settings.offline or _is_commit(place)):
            return self._verified(kept, source, progress)
        if self._settings.offline:
            cure = f"fetch it while online, or copy it to {self._path(place, '<commit>')}"
            raise FetchFailed(MISSING, f"{_name(place)} is not on this node, which is set to be offline – {cure}")
        try:
            remote = self._look(place)
        except (httpx2.TransportError, HfHubHTTPError) as error:
            if kept and _is_away(error):
                return self._verified(kept, source, progress)
            raise self._failure(place, error) from error
        return self._bring(place, remote, source, progress)

    # --- what is here already

    def _kept(self, place: HubFile) -> Path | None:
        commit = _revision(place) if _is_commit(place) else self._commit_of(place)
        path = self._path(place, commit) if commit else None
        return path if path and path.is_file() else None

    def _commit_of(self, place: HubFile) -> str | None:
        try:
            return self._reference(place).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None

    def _reference(self, place: HubFile) -> Path:
        return self._files / place.repository / "refs" / _revision(place)

    def _path(self, place: HubFile, commit: str) -> Path:
        return self._files / place.repository / commit / place.file

    def _verified(self, path: Path, source: Source, progress: OnProgress) -> Path:
        size = path.stat().st_size
        verify.check_size(str(path), size, source)
        if source.sha256:
            verify.check(path, source.sha256, self._marks, progress)
        progress(verify.whole(size))
        return path

    # --- what the hub says

    def _look(self, place: HubFile) -> Remote:
        seen = get_hf_file_metadata(self._url(place, _revision(place)), token=self._token(), endpoint=self._endpoint)
        if not seen.commit_hash or not seen.etag or seen.size is None:
            cure = "check hf_endpoint in the node's settings"
            raise FetchFailed(FAILED, f"{self._hub_name} does not answer as a hub does – {cure}")
        return Remote(seen.commit_hash, seen.etag, seen.size)

    @property
    def _endpoint(self) -> str | None:
        endpoint = self._settings.hf_endpoint
        return endpoint.rstrip("/") if endpoint else None

    @property
    def _hub_name(self) -> str:
        return self._endpoint or "the hub"

    def _url(self, place: HubFile, revision: str) -> str:
        return hf_hub_url(place.repository, place.file, revision=revision, endpoint=self._endpoint)

    def _token(self) -> str | bool:
        file = self._settings.hf_token_file
        if file is None:
            return False
        try:
            return file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            cure = "correct hf_token_file in the node's settings, or the file's rights"
            raise FetchFailed(FAILED, f"the token file {file} cannot be read – {cure}") from error

    # --- bringing it here

    def _bring(self, place: HubFile, remote: Remote, source: Source, progress: OnProgress) -> Path:
        verify.check_size(_name(place), remote.size, source)
        if source.sha256 and remote.sha256 and source.sha256 != remote.sha256:
            raise verify.mismatch(_name(place), source.sha256, remote.sha256)
        path = self._path(place, remote.commit)
        if not path.is_file():
            self._download(place, remote, source.sha256 or remote.sha256, progress)
        _write_whole(self._reference(place), remote.commit)
        return self._verified(path, source, progress)

    def _download(self, place: HubFile, remote: Remote, sha256: str | None, progress: OnProgress) -> None:
        path = self._path(place, remote.commit)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{remote.etag[:16]}.part")
        self._make_room(place, part, remote)
        try:
            self._append(place, remote, part, progress)
        except (httpx2.HTTPError, OSError) as error:
            raise self._failure(place, error) from error
        found = verify.hash_file(part, progress) if sha256 else None
        if sha256 and found != sha256:
            part.unlink()
            raise verify.mismatch(_name(place), sha256, str(found))
        part.replace(path)
        _sync(path.parent)
        if found:
            verify.remember(path, found, self._marks)

    def _make_room(self, place: HubFile, part: Path, remote: Remote) -> None:
        begun = part.stat().st_size if part.exists() else 0
        if begun > remote.size:
            part.unlink()
            begun = 0
        needed, free = remote.size - begun, self._disk_free(part.parent)
        if needed + _SPARE > free:
            raise FetchFailed(
                DISK_FULL,
                f"{_name(place)} needs {gib(needed)} more in {self._files} and {gib(_SPARE)} to spare,"
                f" {gib(free)} are free – free some space there, or move the node's state folder",
            )

    def _append(self, place: HubFile, remote: Remote, part: Path, progress: OnProgress) -> None:
        headers = build_hf_headers(token=self._token())
        with part.open("ab") as file:
            counted = _Counted(file, remote.size, progress)
            http_get(
                self._url(place, remote.commit),
                cast("BinaryIO", file),
                resume_size=file.tell(),
                headers=headers,
                expected_size=remote.size,
                _tqdm_bar=cast("Any", counted),
            )
            file.flush()
            os.fsync(file.fileno())

    def _failure(self, place: HubFile, error: Exception) -> FetchFailed:
        """Say what went wrong without quoting the error: addresses in it may be signed for the bearer."""
        name = _name(place)
        if isinstance(error, RepositoryNotFoundError | RevisionNotFoundError | EntryNotFoundError):
            cure = (
                "correct the catalog entry; for what is private or gated, set hf_token_file to a token that may read it"
            )
            return FetchFailed(MISSING, f"{self._hub_name} knows no {name} ({_told(error)}) – {cure}")
        if isinstance(error, HfHubHTTPError) and error.response.status_code in {401, 403}:
            cure = "set hf_token_file in the node's settings to a token that may read it"
            return FetchFailed(FAILED, f"{self._hub_name} does not let us read {name} ({_told(error)}) – {cure}")
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            cure = "free some space there, or move the node's state folder"
            return FetchFailed(DISK_FULL, f"the disk of {self._files} became full while fetching {name} – {cure}")
        cure = "look at the network and hf_endpoint; the next start goes on where this one ended"
        return FetchFailed(FAILED, f"fetching {name} from {self._hub_name} failed ({_told(error)}) – {cure}")


class _Counted:
    """Stands where the library wants a progress bar, and hands on how far the fetch is."""

    def __init__(self, file: BinaryIO, total: int, progress: OnProgress) -> None:
        self._done = file.tell()
        self._total = Bytes(total)
        self._progress = progress

    def update(self, more: int) -> None:
        self._done += more
        self._progress(Progress(Bytes(self._done), self._total))


def _revision(place: HubFile) -> str:
    return place.revision or "main"


def _is_commit(place: HubFile) -> bool:
    return _COMMIT.fullmatch(_revision(place)) is not None


def _name(place: HubFile) -> str:
    return f"{place.repository}@{_revision(place)}/{place.file}"


def _told(error: Exception) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"{type(error).__name__}, status {error.response.status_code}"
    return type(error).__name__


def _is_away(error: Exception) -> bool:
    return not isinstance(error, HfHubHTTPError) or error.response.status_code >= 500


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text, "ascii")
    temporary.replace(path)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
