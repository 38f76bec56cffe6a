"""Print what weights on this machine tell of a model, as `facts` for its catalog entry."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.output import as_json
from apps.catalog.management.inspecting import inspect
from llmgw.core import validation
from llmgw.core.estimates.architecture import Unreadable
from llmgw.core.estimates.cache import per_token
from llmgw.core.units import gib


class Command(BaseCommand):
    """`manage.py inspect PATH [--json]`."""

    help = (
        "Read the shape of a model and the size of its weights from a folder with config.json and safetensors files or "
        "from a GGUF file, and print them as `facts` to put into its catalog entry. Only heads of files are read. "
        "Exit code 2: the path cannot be read; 3: it does not tell what a model needs."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="a folder of a model, or a GGUF file; of several parts the first")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, path: Path, json: bool, **options: Any) -> None:
        try:
            facts = inspect(path)
        except OSError as wrong:
            raise CommandError(f"{path} cannot be read: {wrong.strerror or wrong}", returncode=2) from wrong
        if isinstance(facts, Unreadable):
            raise CommandError(f"weights.unreadable: {path}: {facts.text()}", returncode=3)
        document = {"facts": validation.facts_to_document(facts)}
        if json:
            self.stdout.write(as_json(document))
            return
        self.stdout.write(yaml.safe_dump(document, sort_keys=False).rstrip())
        token = per_token(facts.architecture)
        cache = f"{token} bytes of cache for each token" if token else "what its cache costs is not known"
        self.stdout.write(f"# {gib(facts.weights) if facts.weights else 'unknown'} of weights, {cache}")
