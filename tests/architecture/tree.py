"""What is in the repository, for the tests that look at all of it."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("llmgw", "apps", "workers")


@cache
def our_files() -> tuple[Path, ...]:
    """Every file that is committed or would be by `git add`, as paths below the root."""
    listed = subprocess.run(
        [shutil.which("git") or "git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(path for name in sorted(listed.splitlines()) if (ROOT / (path := Path(name))).is_file())


def our_modules(*below: str) -> list[Path]:
    """The Python files below these folders, without Django's migrations, which are made."""
    return [
        path
        for path in our_files()
        if path.suffix == ".py" and path.parts[0] in below and "migrations" not in path.parts
    ]
