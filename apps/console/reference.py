"""The pages of docs/reference that are made from code, so that they cannot say anything else than the code does."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer

from llmgw.core.lifecycle import AT_REST, TRANSITIONS
from llmgw.core.refusals import REFUSALS, Refusal
from llmgw.core.world import State

MADE: Final = "<!-- Made by `make docs`; edit the code instead. -->"


def lifecycle_page() -> str:
    """Draw the table of moves, once as a picture and once as a table."""
    moves = sorted(TRANSITIONS.items(), key=lambda move: (list(State).index(move[0][0]), move[0][1].value))
    arrows = [f"    {was.value} --> {becomes.value}: {happened.value}" for (was, happened), becomes in moves]
    rows = [f"| {was.value} | {happened.value} | {becomes.value} |" for (was, happened), becomes in moves]
    at_rest = ", ".join(f"`{state.value}`" for state in State if state in AT_REST)
    return _page(
        "States of a shard",
        "A move that is not in this table cannot happen; who asks for it is told so.",
        f"Nothing runs, and nothing is on its way, in {at_rest}.",
        "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]),
        "\n".join(["| state | what happens | next state |", "| --- | --- | --- |", *rows]),
    )


def refusals_page() -> str:
    """List every no with its code, its numbers, and what cures it."""
    return _page(
        "Refusals",
        "Every reason why something is not placed. The codes are stable, and link to their paragraphs here.",
        *(_refusal(kind) for kind in REFUSALS),
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
    }
)


def _page(title: str, *paragraphs: str) -> str:
    return "\n\n".join([f"# {title}", MADE, *paragraphs]) + "\n"


def _refusal(kind: type[Refusal]) -> str:
    numbers = list(inspect.signature(kind).parameters)
    cures = ", ".join(sorted(event.value for event in kind.cured_by))
    facts = f"- facts: {', '.join(f'`{name}`' for name in numbers)}\n" if numbers else ""
    return (
        f'<a id="{kind.code}"></a>\n\n## `{kind.code}`\n\n{inspect.getdoc(kind)}\n\n'
        f"{facts}- looked at again after: {cures}"
    )
