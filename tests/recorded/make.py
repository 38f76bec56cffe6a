"""Writes the made-up machines into their folders: `python -m tests.recorded.make`."""

import shutil
from pathlib import Path

from tests.recorded.machines import MACHINES

HERE = Path(__file__).parent


def main() -> None:
    for name, make in MACHINES.items():
        folder = HERE / name
        for old in folder.glob("*") if folder.exists() else ():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        make().write(folder)


if __name__ == "__main__":
    main()
