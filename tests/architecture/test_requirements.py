"""The locked files in requirements/ are what pyproject.toml asks for, with hashes."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.tree import ROOT

EXTRAS = ("install", "control", "node", "router", "demo", "tracing", "dev")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def wanted_by(extra):
    """The direct requirements of an extra, those of the extras in it and of the project itself."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    for line in PROJECT["optional-dependencies"][extra]:
        asked = Requirement(line)
        wanted += (
            [asked] if asked.name != PROJECT["name"] else [w for name in sorted(asked.extras) for w in wanted_by(name)]
        )
    return wanted


def locked_in(name):
    """The pinned version and the hashes of each package in a locked file."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").replace("\\\n", " ").splitlines()
    return dict(pin_in(line) for line in lines if line and not line.lstrip().startswith("#"))


def pin_in(line):
    pin = re.match(r"(?P<name>[\w.-]+)(\[.*\])?==(?P<version>[\w.!+]+)", line)
    assert pin, f"not pinned to one version: {line}"
    return canonicalize_name(pin["name"]), (pin["version"], re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line))


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_requirement_is_locked_within_its_range(extra):
    locked = locked_in(extra)
    for asked in wanted_by(extra):
        name = canonicalize_name(asked.name)
        assert name in locked, f"requirements/{extra}.txt lacks {asked}: run `make lock`"
        version, _ = locked[name]
        assert asked.specifier.contains(version), f"{asked} is locked at {version}: run `make lock`"


@pytest.mark.parametrize("name", [*EXTRAS, "demo-weights"])
def test_every_locked_package_has_hashes(name):
    assert locked_in(name)
    assert not [package for package, (_, hashes) in locked_in(name).items() if not hashes]


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_runs_is_what_was_tested(extra):
    tested = locked_in("dev")
    other = {package: version for package, (version, _) in locked_in(extra).items() if tested[package][0] != version}
    assert not other, f"requirements/{extra}.txt locks other versions than requirements/dev.txt: run `make lock`"


@pytest.mark.parametrize("name", ["node", "router"])
def test_nodes_and_router_are_installed_without_django(name):
    assert not {"django", "psycopg", "djangorestframework"} & set(locked_in(name))
