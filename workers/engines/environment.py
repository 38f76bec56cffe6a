"""What an engine gets to see of the worker's environment: an allow-list, so that no secret and no proxy reaches it."""

from collections.abc import Mapping
from typing import Final

from workers.engines.process import LAUNCH_ID

_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
        "LLMGW_STARTED_BY_TEST",  # by this a test run finds what it has to end
    }
)
_PREFIXES: Final = ("LC_", "CUDA_", "NVIDIA_", "OMP_", "GGML_")


def engine_environment(worker: Mapping[str, str], wanted: Mapping[str, str], launch_id: str) -> dict[str, str]:
    """Build an engine's environment: what it may see of the worker's, what its command asks for, and its launch id."""
    seen = {name: value for name, value in worker.items() if name in _NAMES or name.startswith(_PREFIXES)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **seen, **wanted, LAUNCH_ID: launch_id}
