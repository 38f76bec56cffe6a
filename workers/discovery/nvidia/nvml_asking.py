"""How one thing is asked of NVML: a value, nothing of the kind, or a failure that costs that one fact."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from llmgw.core.hardware.findings import Problem, cut
from workers.discovery.pci import canonical

# Numbers of nvmlReturn_t (nvml.h); those of the first set say that there is none here, or that this library is older.
NOT_HERE: Final = frozenset({3, 6, 13, 22, 24, 25, 26})
NOT_ALLOWED: Final = 4
LOST: Final = frozenset({15, 16})
"""GPU_IS_LOST and RESET_REQUIRED: the card can do nothing."""
CORRUPTED_INFOROM: Final = 14
_UNKNOWN: Final = 999
_CORE: Final = frozenset({"uuid", "name", "memory_total", "temperature", "utilization", "power", "clock_sm"})
_CORE_FAILED: Final = 3


class Asker:
    """Asks one card, or one instance, and notes what could not be told."""

    def __init__(self, nvml: ModuleType, called: str) -> None:
        self.nvml = nvml
        self.called = called
        self.problems: list[Problem] = []
        self.lost: str | None = None
        self.is_inforom_corrupted = False
        self.is_refused = False
        """True when something was not told to this user or container."""
        self._failed: dict[str, str] = {}

    def ask(self, fact: str, name: str, *arguments: Any) -> Any:
        """Call an NVML function by its Python name; None for nothing of the kind, and with a problem for a failure."""
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if function is None:
            return None
        try:
            told = function(*arguments)
        except self.nvml.NVMLError as error:
            self.note(fact, int(error.value), str(error))
        except self.nvml.NVMLLibraryMismatchError:
            return None  # so it says, instead of FUNCTION_NOT_FOUND, of functions that have newer forms
        except (TypeError, ValueError, UnicodeDecodeError) as error:
            # The package's own wrappers raise these on what the library should not have answered.
            self.note(fact, _UNKNOWN, f"{type(error).__name__}: {error}")
        else:
            told = told.decode("utf-8", "replace") if isinstance(told, bytes) else told  # older packages give bytes
            return None if told == "" else told
        return None

    def first(self, fact: str, names: tuple[str, ...], *arguments: Any) -> Any:
        """Ask by the first of several names, newest first, that the library knows."""
        told = (self.ask(fact, name, *arguments) for name in names)
        return next((value for value in told if value is not None), None)

    @property
    def failed(self) -> str | None:
        """Return the driver's words that nothing can be done with it; a single odd field is none."""
        core = [words for fact, words in self._failed.items() if fact in _CORE]
        return self.lost or (core[0] if len(core) >= _CORE_FAILED else None)

    def note(self, fact: str, code: int, words: str) -> None:
        """Keep what an error means."""
        if code in LOST:
            self.lost = self.lost or words
        if code in NOT_HERE or code in LOST:
            return
        if code == NOT_ALLOWED:
            self.is_refused = True
        else:
            self.is_inforom_corrupted |= code == CORRUPTED_INFOROM
            self._failed.setdefault(fact, words)
        self.problems.append(_problem(f"{self.called}: {fact}", words, may=code != NOT_ALLOWED))


def _problem(fact: str, words: str, *, may: bool) -> Problem:
    if may:
        return Problem(
            code="nvml.field-failed", fact=fact, text=f"{fact}: the driver failed to tell it", literal=cut(words)
        )
    text = f"{fact}: the driver does not tell it to this user or container"
    return Problem(code="nvml.not-allowed", fact=fact, text=text, literal=cut(words))


def address(spelt: str | bytes | None) -> str | None:
    """Return a PCI address as NVML spells it, as the kernel does."""
    text = spelt.decode("ascii", "replace") if isinstance(spelt, bytes) else spelt
    return canonical(text) if text else None


def field_of(asker: Asker, card: Any, fact: str, number: int) -> int | None:
    """Ask for a field value (NVML_FI_…), an unsigned number; each answer has a return code of its own."""
    told = asker.ask(fact, "nvmlDeviceGetFieldValues", card, [number])
    if not told:
        return None
    if told[0].nvmlReturn != 0:
        asker.note(fact, int(told[0].nvmlReturn), str(asker.nvml.NVMLError(told[0].nvmlReturn)))
        return None
    return int(told[0].value.uiVal)


def flag(value: int | None) -> bool | None:
    """Read an nvmlEnableState_t."""
    return None if value is None else bool(value)


def word(words: tuple[str | None, ...], number: int | None) -> str | None:
    """Return the word for a number of an enumeration; None for one that a newer driver has added."""
    return words[number] if number is not None and 0 <= number < len(words) else None
