"""What can be said of the images and the compose file without a container engine."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from django.apps import apps
from django.conf import settings

from llmgw.local import programs
from tests.architecture.tree import ROOT

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text("utf-8")
SERVICES = yaml.safe_load((ROOT / "docker/compose.yaml").read_text("utf-8"))["services"]
STAGES = set(re.findall(r"^FROM .* AS (\w+)$", DOCKERFILE, re.MULTILINE))
LOOPBACK = "127.0.0.1:"


def test_everything_is_published_on_loopback_only():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published
    assert all(port.startswith(LOOPBACK) for ports in published.values() for port in ports), published


def test_services_use_images_that_are_built():
    targets = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert targets == {"control", "node", "router"}
    assert targets <= STAGES


def test_what_the_images_copy_exists():
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert "requirements/" in copied
    assert all((ROOT / name).exists() for name in copied if not name.startswith("--")), copied


def test_the_control_image_holds_all_that_django_reads():
    body = DOCKERFILE.split(" AS control\n")[1].split("\nFROM ")[0]
    named = [module.partition(".")[0] for module in (settings.ROOT_URLCONF, settings.ASGI_APPLICATION)]
    found = [Path(app.path) for app in apps.get_app_configs()] + template_folders()
    ours = {path.relative_to(ROOT).parts[0] for path in found if path.is_relative_to(ROOT)} - {".venv"}
    needed = {"manage.py", *(f"{folder}/" for folder in {*named, *ours})}
    assert needed == {"manage.py", "llmgw/", "apps/"}
    assert not [name for name in needed if f"COPY {name} " not in body]


def test_templates_ship_with_their_app():
    assert [path for path in template_folders() if path.parent.parent.name != "apps"] == []
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]["*"]
    assert "templates/**/*" in packaged


def template_folders() -> list[Path]:
    dirs: Any = [engine["DIRS"] for engine in settings.TEMPLATES]
    return [Path(folder) for each in dirs for folder in each]


def test_the_control_worker_and_beat_are_started_as_up_starts_them():
    for program in (programs._control({}), programs._beat({})):
        words = list(program.argv[program.argv.index("celery") :])
        if "-n" in words:  # each container has a host name of its own
            del words[words.index("-n") : words.index("-n") + 2]
        assert SERVICES[program.name]["command"] == words


def test_each_image_installs_a_locked_file():
    installed = set(re.findall(r"requirements/([\w-]+)\.txt", DOCKERFILE))
    assert installed == {"control", "node", "router", "tracing"}
    assert all((ROOT / "requirements" / f"{name}.txt").exists() for name in installed)
    assert "--require-hashes" in DOCKERFILE


def test_no_image_runs_as_root():
    for stage in ("control", "node", "router"):
        body = DOCKERFILE.split(f" AS {stage}\n")[1].split("\nFROM ")[0]
        assert re.search(r"^USER llmgw$", body, re.MULTILINE), f"{stage} runs as root"
