"""How one thing is asked of NVML: a value, nothing of the kind, or a failure that costs that one fact."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from llmgw.core.hardware.findings import Problem, cut

# Numbers of nvmlReturn_t (nvml.h); those of the first set say that there is none here, or that this library is older.
NOT_HERE: Final = frozenset({3, 6, 13, 22, 24, 25, 26})
NOT_ALLOWED: Final = 4
LOST: Final = frozenset({15, 16})
"""GPU_IS_LOST and RESET_REQUIRED: the card can do nothing."""
CORRUPTED_INFOROM: Final = 14
_CORE: Final = ("uuid", "name", "memory_total", "temperature", "utilization", "power")
_CORE_FAILED: Final = 3


class Asker:
    """Asks one card, or one instance, and notes what could not be told."""

    def __init__(self, nvml: ModuleType, called: str) -> None:
        self.nvml = nvml
        self.called = called
        self.problems: list[Problem] = []
        self.lost: str | None = None
        self.is_inforom_corrupted = False
        self._failed: list[tuple[str, str]] = []

    def ask(self, fact: str, name: str, *arguments: Any) -> Any:
        """Call an NVML function by its Python name; None for nothing of the kind, and with a problem for a failure."""
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self.nvml.NVMLError as error:
            self._note(fact, int(error.value), str(error))
        except (TypeError, ValueError, UnicodeDecodeError) as error:
            # The package's own wrappers raise these on what the library should not have answered.
            self._note(fact, 999, f"{type(error).__name__}: {error}")
        return None

    @property
    def failed(self) -> str | None:
        """Return the driver's words that nothing can be done with it; a single odd field is none."""
        core = [words for fact, words in self._failed if fact in _CORE]
        return self.lost or (core[0] if len(core) >= _CORE_FAILED else None)

    def _note(self, fact: str, code: int, words: str) -> None:
        if code in LOST:
            self.lost = self.lost or words
        if code in NOT_HERE or code in LOST:
            return
        self.is_inforom_corrupted |= code == CORRUPTED_INFOROM
        self._failed.append((fact, words))
        self.problems.append(_problem(f"{self.called}: {fact}", words, may=code != NOT_ALLOWED))


def _problem(fact: str, words: str, *, may: bool) -> Problem:
    if may:
        return Problem(
            code="nvml.field-failed", fact=fact, text=f"{fact}: the driver failed to tell it", literal=cut(words)
        )
    text = f"{fact}: the driver does not tell it to this user or container"
    return Problem(code="nvml.not-allowed", fact=fact, text=text, literal=cut(words))
