"""Compiles the made-up NVML, and tells it what to say."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")


def compiled(folder, *, old=False):
    """Return the library's path, or skip where there is no compiler; an old one has nothing that came after R470."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the made-up NVML: apt-get install gcc")
    library = folder / "libnvidia-ml.so.1"
    age = ("-DOLD",) if old else ()
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", *age, "-o", library, SOURCE], check=True)
    return library


def described(folder, driver="580.95.05", cuda=13000, cards=(), **machine):
    """Write what the library says: `cards` are dictionaries of facts, with `parts` as dictionaries by slot."""
    lines = [f"driver={driver}", f"cuda={cuda}", f"count={len(cards)}"]
    lines += [f"{name}={value}" for name, value in machine.items()]
    for index, card in enumerate(cards):
        parts = card.get("parts", {})
        lines += [f"{index}.{name}={value}" for name, value in card.items() if name != "parts"]
        for slot, part in parts.items():
            lines += [f"{index}.mig.{slot}.{name}={value}" for name, value in part.items()]
    file = folder / "nvml.txt"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file
