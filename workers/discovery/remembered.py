"""The cards as the driver told them last, kept over restarts of the worker for a driver that tells nothing any more."""

from typing import Final, Protocol

import msgspec
import structlog

from llmgw.core.hardware.gpus import Driver, Gpu
from llmgw.core.units import Seconds
from workers.discovery.changes import lasting
from workers.discovery.nvidia.cards import Cards

log = structlog.get_logger(__name__)

VERSION: Final = 1


class Shelf(Protocol):
    """Where a few kilobytes lie between two lives of the worker."""

    def read(self) -> bytes | None:
        """Return what lies there; None for nothing; raises OSError."""
        ...

    def write(self, data: bytes) -> None:
        """Replace it, whole or not at all; raises OSError."""
        ...


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A listing of the cards that was whole; without readings and counters, which are soon untrue."""

    driver: Driver | None
    gpus: tuple[Gpu, ...]
    at: Seconds
    """When it was told."""
    v: int = VERSION


class LastCards:
    """The last whole listing, of this worker or of an earlier one."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        """Take where it is kept; without that it lives as long as this process."""
        self._shelf = shelf
        self._known = _read(shelf) if shelf else None

    @property
    def known(self) -> Known | None:
        """The listing, and when it was told."""
        return self._known

    def keep(self, cards: Cards, at: Seconds) -> None:
        """Take a whole listing; it is written down when it is another than before."""
        before = self._known
        self._known = Known(driver=cards.driver, gpus=tuple(map(lasting, cards.gpus)), at=at)
        if self._shelf and (before is None or _cards(before) != _cards(self._known)):
            _write(self._shelf, self._known)


def _cards(known: Known) -> tuple[Driver | None, tuple[Gpu, ...]]:
    return known.driver, known.gpus


def _write(shelf: Shelf, known: Known) -> None:
    try:
        shelf.write(msgspec.json.encode(known))
    except OSError as error:
        log.warning("cards not kept for the next worker", error=str(error))


def _read(shelf: Shelf) -> Known | None:
    """Read what an earlier worker has left; what is torn, or of another version, is as good as nothing."""
    try:
        known = msgspec.json.decode(shelf.read() or b"", type=Known)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        log.debug("no cards from an earlier worker", error=str(error))
        return None
    return known if known.v == VERSION else None
