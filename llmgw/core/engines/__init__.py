"""What each engine needs, its command line, and how to read its answers; nothing here starts anything."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from llmgw.core.engines.base import Engine
from llmgw.core.engines.llamacpp import LlamaCpp

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in (LlamaCpp(),)})
