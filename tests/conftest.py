"""What every test may ask for: a Redis, a database on SQLite or PostgreSQL, processes that end, and waiting."""

import importlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from django.conf import settings

from tests import processes as started
from tests import servers

# How long one example takes says more of the other jobs on these cores than of our code: tests are not timed.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")

STATE = pytest.StashKey[Path]()
REDIS = pytest.StashKey[servers.Valkey]()
POSTGRES = pytest.StashKey[servers.Postgres]()

# What a developer has set for his own llmgw must not reach the tests, nor their results it.
OURS = ("LLMGW_", "DATABASE_URL", "REDIS_URL", "OTEL_")
USES_DATABASE = {"db", "transactional_db", "django_db_reset_sequences", "live_server", "admin_client", "admin_user"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="What Django's tests run on: a file, or a real PostgreSQL that is started for them.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before the settings are read from it; pytest-django completes the set-up after this."""
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        pytest.exit("unset DJANGO_SETTINGS_MODULE: with it the settings are read before the tests' own are in place", 2)
    for name in [name for name in os.environ if name.startswith(OURS)]:
        del os.environ[name]
    state = config.stash[STATE] = Path(tempfile.mkdtemp(prefix="llmgw-tests-"))
    os.environ |= {
        "LLMGW_STATE": str(state),
        "LLMGW_SECRET_KEY": "only-for-tests-" + "x" * 50,
        "DATABASE_URL": database_url(config),
    }
    if not only_hands_out(config):
        config.stash[REDIS] = servers.Valkey(state / "redis").start()
        os.environ |= {"REDIS_URL": config.stash[REDIS].url, "DJANGO_SETTINGS_MODULE": "llmgw.settings"}
        # Reads the settings, and names the app that tasks are sent by.
        importlib.import_module("llmgw.celery")


def only_hands_out(config: pytest.Config) -> bool:
    """Tell whether this process runs no test itself: its workers inherit its environment and come here too."""
    return _from_controller(config) is None and bool(config.getoption("numprocesses", None))


def database_url(config: pytest.Config) -> str:
    """Start PostgreSQL if asked: one for the whole run, in which each xdist worker has a database."""
    if config.getoption("database") == "sqlite":
        return f"sqlite:///{config.stash[STATE]}/not-used.sqlite3"
    if (given := _from_controller(config)) is not None:
        return str(given["database_url"])
    config.stash[POSTGRES] = servers.Postgres().start()
    return config.stash[POSTGRES].url


def _from_controller(config: pytest.Config) -> dict[str, Any] | None:
    return getattr(config, "workerinput", None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker where the controller started PostgreSQL."""
    if POSTGRES in node.config.stash:
        node.workerinput["database_url"] = node.config.stash[POSTGRES].url


def pytest_unconfigure(config: pytest.Config) -> None:
    if (redis := config.stash.get(REDIS, None)) is not None:
        redis.kill()
    if (postgres := config.stash.get(POSTGRES, None)) is not None:
        postgres.stop()
    if (state := config.stash.get(STATE, None)) is not None:
        shutil.rmtree(state, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the database, so that `-m database` finds it, and skip what its kind cannot run."""
    for item in items:
        if item.get_closest_marker("django_db") or USES_DATABASE & set(getattr(item, "fixturenames", ())):
            item.add_marker("database")
        if item.get_closest_marker("postgres") and config.getoption("database") != "postgres":
            item.add_marker(pytest.mark.skip(reason="holds on PostgreSQL only: --database postgres"))


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Keep SQLite in a real file: a database in memory is not shared by threads and processes."""
    default = settings.DATABASES["default"]
    if default["ENGINE"].endswith("sqlite3"):
        default.setdefault("TEST", {})["NAME"] = str(request.config.stash[STATE] / "test.sqlite3")


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> str:
    """Return the url of this process's own real Redis; `settings.REDIS_URL` is the same."""
    return request.config.stash[REDIS].url


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """Return the url of this process's own real Redis, empty."""
    server = request.config.stash[REDIS]
    with server.client() as client:
        client.flushall()
    return server.url


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[servers.Valkey]:
    """Lend a Redis that the test may kill and start again; it keeps what it was told."""
    server = servers.Valkey(tmp_path / "own-redis", keeps=True).start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a program that was run inside the test has done to the log of this process."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    structured = structlog.get_config()
    yield
    structlog.configure(**structured)
    for one, handlers, level, propagate in before:
        one.handlers[:] = handlers
        one.setLevel(level)
        one.propagate = propagate


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """`eventually(condition, timeout=10)`: ask until it is true."""
    return servers.eventually


@pytest.fixture
def processes() -> Iterator[started.Processes]:
    """`processes.start(argv)`, `processes.manage("plan")`: ended after the test, with all that they started."""
    yield from started.ended_afterwards()
