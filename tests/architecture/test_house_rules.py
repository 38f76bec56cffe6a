"""House rules that a tool off the shelf does not check, each with its reason."""

import ast

from tests.architecture.tree import PACKAGES, ROOT, our_files, our_modules

LONGEST_FUNCTION = 60
DRAWERS = {"utils", "util", "helpers", "helper", "managers", "misc"}
# Written in pieces, so that this file does not name them itself.
REGISTRY_HOSTS = tuple(
    ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org"))
)


def sentence_of(source):
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def test_every_module_opens_with_a_sentence():
    silent = [
        str(path)
        for path in our_modules(*PACKAGES, "tests", "manage.py")
        if not sentence_of((ROOT / path).read_text("utf-8")).endswith((".", "?", "!"))
    ]
    assert not silent, f"A reader learns from a module's first sentence whether to read on; these have none: {silent}"


def test_no_function_is_too_long():
    long = [
        f"{path}:{node.lineno} {node.name} ({length} lines)"
        for path in our_modules(*PACKAGES, "tests", "manage.py")
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert not long, f"Nobody holds more than {LONGEST_FUNCTION} lines in mind at once; split by step: {long}"


def test_no_module_is_a_drawer():
    drawers = [
        str(path) for path in our_modules(*PACKAGES) if DRAWERS & {part.removesuffix(".py") for part in path.parts}
    ]
    assert not drawers, f"A name that fits everything collects everything; name it by what it promises: {drawers}"


def test_the_top_package_holds_nothing():
    body = ast.parse((ROOT / "llmgw/__init__.py").read_text("utf-8")).body
    names = [ast.unparse(statement).split(" ")[0] for statement in body[1:]]
    assert isinstance(body[0], ast.Expr)
    assert names == ["__version__"], (
        "Nodes import llmgw.core through llmgw/__init__.py: what stands there runs everywhere"
    )


def test_no_file_names_a_package_registry():
    naming = [
        f"{path}: {host}"
        for path in our_files()
        for host in REGISTRY_HOSTS
        if host.encode() in (ROOT / path).read_bytes()
    ]
    assert not naming, f"Where packages come from is each site's own setting (a closed network has a mirror): {naming}"


def test_no_lock_file_with_addresses():
    locks = [str(path) for path in our_files() if path.name in {"uv.lock", "poetry.lock", "Pipfile.lock"}]
    assert not locks, f"These write the registry's addresses into the repository; requirements/ is the lock: {locks}"
