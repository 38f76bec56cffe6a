"""Filters of the console's pages: times, durations, sizes, states."""

import re
from datetime import datetime
from typing import Any, Final

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.console import look
from apps.replicas.models import ReplicaRow
from llmgw.core.lifecycle import state_word
from llmgw.core.units import gib as core_gib
from llmgw.core.world import State

register = template.Library()


@register.filter
def when(at: datetime | str | None) -> SafeString | str:
    """Say a moment: absolute here, and the browser adds how long ago, in the reader's own zone."""
    if at is None or at == "":
        return "–"
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    return format_html(
        '<time class="c-time" datetime="{}">{}</time>', moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    )


_TICKED: Final = re.compile(r"`([^`]+)`")


@register.filter
def prose(text: object) -> SafeString:
    """Show what stands between backticks as code."""
    parts = _TICKED.split(str(text))  # every second part stood between two
    shown = (("<code>{}</code>" if at % 2 else "{}", part) for at, part in enumerate(parts))
    return format_html_join("", "{}", ((format_html(form, part),) for form, part in shown))


@register.filter
def seconds(amount: float | None) -> str:
    """Say a duration as precisely as it matters: `0.4 s`, `12 s`, `3 min 12 s`, `2 h 5 min`."""
    if amount is None:
        return "–"
    if amount < 10:
        return f"{max(amount, 0):.1f} s"
    whole = round(amount)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


@register.filter
def gib(amount: Any) -> str:
    """Say bytes in GiB; `–` for what is not known."""
    return core_gib(amount) if isinstance(amount, int) else "–"


@register.filter
def state(word: object) -> SafeString:
    """Show a state word with its sign and tone."""
    told = str(word)
    return format_html(
        '<span class="c-state c-{}"><span class="c-sign" aria-hidden="true">{}</span>{}</span>',
        look.tone(told),
        look.sign(told),
        told,
    )


@register.filter
def unlocalized(number: float) -> str:
    """Write a number as style sheets want it, whatever the reader's language."""
    return f"{number:g}"


@register.filter
def node_url(name: str) -> str:
    """Return the address of a node's page."""
    return look.node_url(name)


@register.filter
def model_url(name: str) -> str:
    """Return the address of a model's page."""
    return look.model_url(name)


@register.filter
def replica_url(pk: int) -> str:
    """Return the address of a replica's page."""
    return look.replica_url(pk)


@register.filter
def word(row: ReplicaRow) -> str:
    """Return the word for a replica's state."""
    return state_word(State(row.state), row.failures)


@register.filter
def revoke_url(opts: Any) -> str:
    """Return the name of the address where a key or a token is revoked."""
    return f"admin:{opts.app_label}_{opts.model_name}_revoke"
