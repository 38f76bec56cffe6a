"""The pages of docs/reference that are made from code, so that they cannot say anything else than the code does."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

import msgspec
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

from apps.console import sources
from llmgw.core import wire
from llmgw.core.engines import failures, llamacpp
from llmgw.core.hardware.examination import Cure, Examination, Examined
from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.lifecycle import AT_REST, TRANSITIONS
from llmgw.core.refusals import REFUSALS, Refusal
from llmgw.core.validation import document, facts, form, rules, shape
from llmgw.core.validation import sources as weights
from llmgw.core.world import State

MADE: Final = "<!-- Made by `make docs`; edit the code instead. -->"


def lifecycle_page() -> str:
    """Draw the table of moves, once as a picture and once as a table."""
    moves = sorted(TRANSITIONS.items(), key=lambda move: (list(State).index(move[0][0]), move[0][1].value))
    arrows = [f"    {was.value} --> {becomes.value}: {happened.value}" for (was, happened), becomes in moves]
    rows = [f"| {was.value} | {happened.value} | {becomes.value} |" for (was, happened), becomes in moves]
    at_rest = ", ".join(f"`{state.value}`" for state in State if state in AT_REST)
    return page(
        "States of a shard",
        "A move that is not in this table cannot happen; who asks for it is told so.",
        f"Nothing runs, and nothing is on its way, in {at_rest}.",
        "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]),
        "\n".join(["| state | what happens | next state |", "| --- | --- | --- |", *rows]),
    )


def refusals_page() -> str:
    """List every no with its code, its numbers, and what cures it."""
    return page(
        "Refusals",
        "Every reason why something is not placed. The codes are stable, and link to their paragraphs here.",
        *(_refusal(kind) for kind in REFUSALS),
    )


def problems_page() -> str:
    """List every problem that validation can find in a declared model."""
    found = sorted(sources.problems_of(form, document, facts, rules, shape, weights, llamacpp))
    rows = [f"| `{told.code}` | {_cell(told.message)} | {_cell(told.cure)} |" for told in found]
    return page(
        "Problems of a declaration",
        "What `manage.py apply`, the API and the console's forms answer when a model cannot be saved: the field, the "
        "code, what is wrong, what to do. All that is wrong is told at once, but the form of a document before its "
        "rules. `…` stands where a value of yours is quoted.",
        "\n".join(["| code | what is wrong | what to do |", "| --- | --- | --- |", *rows]),
    )


def failures_page() -> str:
    """List the classes of failure, as the table to look things up in."""
    return page(
        "Failures, and what to do",
        "Why a launch ended that nobody had asked to end. The class and one sentence are on the replica's page, in "
        "`manage.py replicas NAME` and `manage.py explain MODEL`, with the engine's last lines. The first printed line "
        "that matches decides; only then how the process ended.",
        *(_failure(kind) for kind in failures.CLASSES.values()),
    )


def wire_page() -> str:
    """List orders and reports with their fields."""
    return page(
        "Orders and reports",
        f"Messages between the control plane and its nodes, version {wire.VERSION}: JSON objects with `v` and `kind`. "
        "Unknown fields are ignored; another version, an unknown kind or a missing field is answered as unreadable. "
        "Why they are as they are: [orders and reports](../explanation/orders-and-reports.md).",
        "## Names",
        _wire_names(),
        "## Orders, to the queue `node.<id>`",
        *(_message(kind, wire.Order) for kind in _family(wire.Order)),
        "## Reports, to the queue `control`",
        *(_message(kind, wire.Report) for kind in _family(wire.Report)),
        "## Inside them",
        *(_message(kind, None) for kind in _INSIDE),
        "## Heartbeats, in Redis",
        _message(wire.Beat, None),
    )


def api_schema() -> str:
    """Describe the REST API as OpenAPI."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    yaml: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})
    return yaml.decode()


PAGES: Final[Mapping[PurePosixPath, Callable[[], str]]] = MappingProxyType(
    {
        PurePosixPath("docs/reference/lifecycle.md"): lifecycle_page,
        PurePosixPath("docs/reference/openapi.yaml"): api_schema,
        PurePosixPath("docs/reference/refusals.md"): refusals_page,
        PurePosixPath("docs/reference/problems.md"): problems_page,
        PurePosixPath("docs/reference/failures.md"): failures_page,
        PurePosixPath("docs/reference/wire.md"): wire_page,
    }
)


def page(title: str, *paragraphs: str) -> str:
    """Put a made page together."""
    return "\n\n".join([f"# {title}", MADE, *paragraphs]) + "\n"


def _refusal(kind: type[Refusal]) -> str:
    numbers = list(inspect.signature(kind).parameters)
    cures = ", ".join(sorted(event.value for event in kind.cured_by))
    facts = f"- facts: {', '.join(f'`{name}`' for name in numbers)}\n" if numbers else ""
    return (
        f'<a id="{kind.code}"></a>\n\n## `{kind.code}`\n\n{inspect.getdoc(kind)}\n\n'
        f"{facts}- looked at again after: {cures}"
    )


def _failure(kind: failures.FailureClass) -> str:
    seen = ", ".join(f"`{pattern.pattern}`" for pattern in kind.patterns)
    printed = f"\n\nRecognised by: {seen}" if seen else ""
    return (
        f'<a id="{kind.code}"></a>\n\n## `{kind.code}`\n\n{_sentence(kind.meaning)} {_sentence(kind.advice)}{printed}'
    )


_INSIDE: Final = (
    wire.ShardStatus,
    wire.Step,
    wire.Failure,
    wire.Progress,
    wire.Answer,
    Finding,
    wire.Inventory,
    Problem,
    Examination,
    Examined,
    Cure,
)


def _family(parent: type) -> list[type]:
    return [parent, *parent.__subclasses__()]


def _wire_names() -> str:
    names = {name: value for name, value in vars(wire).items() if name.isupper() and isinstance(value, str)}
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | `{value}` |" for name, value in names.items())])


def _message(kind: type, parent: type | None) -> str:
    source = inspect.getsource(sys.modules[kind.__module__])
    travels_as = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    tag = getattr(kind, "__struct_config__").tag  # noqa: B009  # known to every struct, not to the type checker
    named = f" (`kind`: `{tag}`)" if tag and kind is not parent else ""
    lines = [
        f"| `{travels_as[field.name]}` | `{_cell(field.kind)}` | {_cell(field.says)} |"
        for field in sources.fields_of(source, kind.__name__)
    ]
    table = "\n".join(["| field | type | |", "| --- | --- | --- |", *lines]) if lines else ""
    says = inspect.getdoc(kind) or ""
    return "\n\n".join(part for part in (f"### {kind.__name__}{named}", says, table) if part)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
