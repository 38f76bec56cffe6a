"""Publishes the routing table: after each commit that changed it, and again whenever Redis has another one."""

from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from redis import RedisError, WatchError

from apps.gateway import queries
from apps.gateway.models import PublicationRow
from apps.nodes.redis import client
from llmgw.core import wire
from llmgw.core.routing import Table, decode, encode

log = structlog.get_logger(__name__)


def request(**_: Any) -> None:
    """Publish once the present transaction is committed; asked many times in one, it is done once."""
    connection = transaction.get_connection()
    if not any(hook is publish for _, hook, *_ in connection.run_on_commit):
        # Robust: what was committed is not undone by a table that could not be made; the next tick sees to it.
        transaction.on_commit(publish, robust=True)


def check(**_: Any) -> None:
    """See to it that Redis has the table that was last published, also when it has come back empty."""
    present = _in_redis()
    last = queries.published()
    if present != last or last.open is not settings.LLMGW_ROUTER_OPEN:
        # A Redis that outlives the database has seen higher revisions, which routers would not go back from.
        table, _new = _renew(at_least=present.revision + 1 if present and present.revision >= last.revision else 1)
        _put(table)


def publish() -> Table:
    """Make the table anew; if its content is new, put it where routers look."""
    table, is_new = _renew()
    if is_new:
        _put(table)
    return table


def _renew(*, at_least: int = 1) -> tuple[Table, bool]:
    """Make the table anew and keep it if its content is new, or its revision too low; tell whether that was so."""
    with transaction.atomic():
        # Locked before anything is read, so that what is published last has also been read last.
        row, _ = PublicationRow.objects.select_for_update().get_or_create(pk=1)
        content = queries.content_of(queries.table())
        is_new = content != row.content or row.revision < at_least
        if is_new:
            row.revision = max(row.revision + 1, at_least)
            row.content = content
            row.published_at = Now()
            row.save()
    return queries.table_of(row), is_new


def revision_in_redis() -> int | None:
    """Return the revision of the table that routers find now; None when there is none, or Redis is away."""
    try:
        present = _in_redis()
    except RedisError:
        return None
    return present.revision if present else None


def _in_redis() -> Table | None:
    raw = client().get(wire.ROUTES_KEY)
    return decode(raw) if isinstance(raw, bytes) else None


def _put(table: Table) -> None:
    """Write the table unless a newer one is there; two that publish at once may come here in either order."""
    try:
        with client().pipeline() as pipe:
            while not _written(pipe, table):
                pass
    except RedisError as error:
        log.warning(
            "the routing table could not be published: Redis is away", revision=table.revision, error=str(error)
        )


def _written(pipe: Any, table: Table) -> bool:
    """Try once; False when somebody else wrote meanwhile."""
    pipe.watch(wire.ROUTES_KEY)
    raw = pipe.get(wire.ROUTES_KEY)
    present = decode(raw) if raw else None
    if present is not None and present.revision > table.revision:
        return True
    pipe.multi()
    pipe.set(wire.ROUTES_KEY, encode(table))
    pipe.publish(wire.ROUTES_CHANNEL, table.revision)
    try:
        pipe.execute()
    except WatchError:
        return False
    return True
