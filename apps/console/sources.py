"""Facts that stand in our own source text alone: a field's sentence, a problem's message, a variable's name."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

_HOLE: Final = "…"


class Field(NamedTuple):
    """One attribute of a class, as its source has it."""

    name: str
    kind: str
    default: str
    says: str


class Told(NamedTuple):
    """One problem that validation can find: `…` stands where a value is filled in."""

    code: str
    message: str
    cure: str


def fields_of(source: str, name: str) -> tuple[Field, ...]:
    """Return the annotated attributes of a class with their default and the sentence below them."""
    body = next(
        node.body for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name
    )
    return tuple(
        Field(one.target.id, ast.unparse(one.annotation), ast.unparse(one.value) if one.value else "", _says(after))
        for one, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    )


def _says(after: ast.stmt | None) -> str:
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return " ".join(inspect.cleandoc(after.value.value).split())
    return ""


def variables_of(source: str) -> Mapping[str, str]:
    """Return the environment variables that `env.str("NAME", default=…)` and its like read, with their defaults."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("env.") and node.args
    ]
    named = [call for call in calls if isinstance(call.args[0], ast.Constant)]
    return {str(call.args[0].value): _default(call) for call in named if isinstance(call.args[0], ast.Constant)}


def _default(call: ast.Call) -> str:
    return next((ast.unparse(word.value) for word in call.keywords if word.arg == "default"), "")


def problems_of(*modules: ModuleType) -> tuple[Told, ...]:
    """Return every `Problem(field, code, message, cure)` that is made in these modules, in their order, each once."""
    told = [each for module in modules for each in _problems(ast.parse(inspect.getsource(module)))]
    return tuple(dict.fromkeys(told))


def _problems(tree: ast.Module) -> Iterator[Told]:
    outer = _assigned(tree.body)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        inner = _assigned(ast.walk(function))
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
            if ast.unparse(call.func) == "Problem" and len(call.args) == 4:
                # A name may be used again: what counts is the last assignment above.
                known = {name: value for line, name, value in sorted([*outer, *inner], key=_line) if line < call.lineno}
                codes, messages, cures = (_texts(argument, known) for argument in call.args[1:])
                yield from (Told(code, messages[0], " / ".join(cures)) for code in codes if code != _HOLE)


def _line(assigned: tuple[int, str, ast.expr]) -> int:
    return assigned[0]


def _assigned(statements: Iterable[ast.AST]) -> list[tuple[int, str, ast.expr]]:
    found = []
    for one in statements:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            found.append((one.lineno, one.targets[0].id, one.value))
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value:
            found.append((one.lineno, one.target.id, one.value))
    return found


def _texts(told: ast.expr, known: Mapping[str, ast.expr]) -> list[str]:
    """Return what an expression can say: both ways of a condition, with a hole for each value."""
    if isinstance(told, ast.IfExp):
        return [*_texts(told.body, known), *_texts(told.orelse, known)]
    if isinstance(told, ast.Name) and told.id in known:
        return _texts(known[told.id], {name: value for name, value in known.items() if name != told.id})
    if isinstance(told, ast.Constant):
        return [str(told.value)]
    if isinstance(told, ast.JoinedStr):
        return [re.sub(rf"{_HOLE}+", _HOLE, "".join(_piece(piece, known) for piece in told.values))]
    return [_HOLE]


def _piece(piece: ast.expr, known: Mapping[str, ast.expr]) -> str:
    """Fill a hole only with what is the same each time: a text that the module itself names."""
    inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
    if isinstance(inner, ast.Name) and isinstance(known.get(inner.id), ast.Constant):
        return _texts(inner, known)[0]
    return str(inner.value) if isinstance(inner, ast.Constant) else _HOLE
