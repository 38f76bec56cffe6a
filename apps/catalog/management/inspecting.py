"""Reads what a folder or file of weights on this machine tells of a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.estimates import config, gguf, weights
from llmgw.core.estimates.architecture import Facts, Unreadable
from llmgw.core.units import MIB, Bytes

_HEADS: Final = (4 * MIB, 64 * MIB, 512 * MIB)
"""So much of a GGUF file is read, more where the head is longer: it holds the whole vocabulary."""
_INDEX: Final = "model.safetensors.index.json"


def inspect(path: Path) -> Facts | Unreadable:
    """Return what is known of the model; raises OSError."""
    if path.is_dir():
        return _folder(path)
    return _gguf(path) if path.suffix == ".gguf" else Unreadable(path.name, "is no folder of a model and no GGUF file")


def _folder(path: Path) -> Facts | Unreadable:
    names = path / "config.json"
    if not names.exists():
        files = sorted(path.glob("*.gguf"))
        return _gguf(files[0]) if files else Unreadable(str(path), "holds neither config.json nor a GGUF file")
    shape = config.parse(_text(names), _text(path / "hf_quant_config.json"))
    if isinstance(shape, Unreadable):
        return shape
    index = weights.parse_index(_text(path / _INDEX)) if (path / _INDEX).exists() else None
    if isinstance(index, Unreadable):
        return index
    total = weights.of_listing(_listing(path), index)
    return total if isinstance(total, Unreadable) else Facts(shape, total)


def _listing(path: Path) -> Iterator[tuple[str, int]]:
    for file in path.rglob("*"):
        if file.is_file():
            yield str(file.relative_to(path)), file.stat().st_size


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


def _gguf(path: Path) -> Facts | Unreadable:
    told = _head(path)
    if isinstance(told, Unreadable):
        return told
    if told.parts == 1:
        return Facts(told.architecture, Bytes(path.stat().st_size))
    beside = [(file.name, file.stat().st_size) for file in path.parent.glob("*.gguf") if _stem(file) == _stem(path)]
    total = weights.of_listing(beside)
    return total if isinstance(total, Unreadable) else Facts(told.architecture, total)


def _stem(file: Path) -> str:
    """Return the name without the number of a part: `a-00001-of-00003.gguf` and its sisters are one model."""
    return file.stem.rpartition("-of-")[0].rpartition("-")[0] or file.stem


def _head(path: Path) -> gguf.Gguf | Unreadable:
    told: gguf.Gguf | Unreadable = Unreadable(path.name, "is empty")
    with path.open("rb") as file:
        for size in _HEADS:
            file.seek(0)
            data = file.read(size)
            told = gguf.parse(data)
            if not isinstance(told, Unreadable) or len(data) < size:
                break
    return told
