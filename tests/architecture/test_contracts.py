"""Who may import whom: the contracts in pyproject.toml, and what they cannot see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def run_clean(*argv):
    """Run a program that no test setting reaches: Celery would load Django where a settings module is named."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(argv, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)


def test_import_contracts_hold():
    done = run_clean(LINT_IMPORTS, "--no-logo") if LINT_IMPORTS.exists() else None
    assert done, "import-linter is missing: run `make setup`"
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_by(module):
    """The top packages in memory once a module is imported in a process of its own."""
    tops = "{name.partition('.')[0] for name in sys.modules}"
    done = run_clean(sys.executable, "-c", f"import sys, {module}; print(*{tops})")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["llmgw.core.wire", "llmgw.core.routing", "workers.tasks", "workers.cli", "llmgw.router.server"]
)
def test_nodes_and_router_need_no_django(module):
    """Made impossible to import, not looked for in memory: Celery takes a piece of Django along where it can."""
    blocked = "sys.modules.update(dict.fromkeys(['django', 'rest_framework', 'psycopg']))"
    done = run_clean(sys.executable, "-c", f"import sys; {blocked}; import {module}")
    assert done.returncode == 0, f"{module} runs where these are not installed:\n{done.stderr}"


def test_the_router_loads_no_celery():
    assert "celery" not in loaded_by("llmgw.router.server")
