"""How things look: the side menu, and the sign and tone of each state word."""

from types import MappingProxyType
from typing import Any, Final

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse, reverse_lazy

# A word says it; sign and colour only help the eye, and differ without each other too.
TONES: Final = MappingProxyType(
    {
        "ready": ("●", "good"),
        "valid": ("●", "good"),
        "acknowledged": ("●", "good"),
        "active": ("●", "good"),
        "pass": ("●", "good"),
        "joining": ("○", "busy"),
        "queued": ("○", "busy"),
        "pending": ("○", "busy"),
        "placed": ("◔", "busy"),
        "fetching": ("◔", "busy"),
        "launching": ("◑", "busy"),
        "loading": ("◕", "busy"),
        "sent": ("◑", "busy"),
        "draining": ("◐", "warn"),
        "stopping": ("◐", "warn"),
        "cordoned": ("◧", "warn"),
        "unreachable": ("◌", "warn"),
        "warn": ("◐", "warn"),
        "init": ("◔", "warn"),
        "armed": ("◔", "warn"),
        "expired": ("◇", "calm"),
        "stopped": ("□", "calm"),
        "retired": ("□", "calm"),
        "revoked": ("□", "calm"),
        "unknown": ("?", "calm"),
        "down": ("✕", "bad"),
        "fail": ("✕", "bad"),
        "refused": ("✕", "bad"),
        "failed": ("✕", "bad"),
        "crash-looping": ("✕", "bad"),
        "lost": ("✕", "bad"),
    }
)
UNKNOWN: Final = ("·", "calm")


def tone(word: str) -> str:
    """Return the tone of a state word: `good`, `busy`, `warn`, `bad` or `calm`."""
    return TONES.get(word, UNKNOWN)[1]


def sign(word: str) -> str:
    """Return the sign that stands before a state word."""
    return TONES.get(word, UNKNOWN)[0]


def node_url(name: str) -> str:
    """Return the address of a node's page."""
    return reverse("admin:nodes_noderow_change", args=[quote(name)])


def model_url(name: str) -> str:
    """Return the address of a model's page."""
    return reverse("admin:catalog_modelrow_change", args=[quote(name)])


def replica_url(pk: int) -> str:
    """Return the address of a replica's page."""
    return reverse("admin:replicas_replicarow_change", args=[pk])


def stylesheet(request: HttpRequest) -> str:
    """Return the address of our one stylesheet."""
    return static("console/console.css")


def icon(request: HttpRequest) -> str:
    """Return the address of the icon that a browser shows beside the title."""
    return static("console/icon.svg")


def script(request: HttpRequest) -> str:
    """Return the address of our one script."""
    return static("console/console.js")


_MENU: Final = (
    (
        "",
        (
            ("Overview", "monitor_heart", "admin:index", ""),
            ("Nodes", "dns", "admin:nodes_noderow_changelist", "nodes.view_noderow"),
            ("Models", "deployed_code", "admin:catalog_modelrow_changelist", "catalog.view_modelrow"),
            ("Replicas", "stacks", "admin:replicas_replicarow_changelist", "replicas.view_replicarow"),
        ),
    ),
    (
        "What was done",
        (
            ("Passes", "rule", "admin:replicas_passrow_changelist", "replicas.view_passrow"),
            ("Orders", "outbox", "admin:replicas_orderrow_changelist", "replicas.view_orderrow"),
            ("Audit", "history_edu", "admin:audit_auditrow_changelist", "audit.view_auditrow"),
        ),
    ),
    (
        "Who may",
        (
            ("Inference keys", "key", "admin:accounts_inferencekeyrow_changelist", "accounts.view_inferencekeyrow"),
            ("API tokens", "token", "admin:accounts_apitokenrow_changelist", "accounts.view_apitokenrow"),
            ("People", "person", "admin:auth_user_changelist", "auth.view_user"),
            ("Roles", "groups", "admin:auth_group_changelist", "auth.view_group"),
        ),
    ),
    ("", (("API", "api", "api-docs", ""),)),
)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the side menu: what this person may look at."""
    groups = [
        {
            "title": title,
            "separator": index > 0,
            "items": [
                {"title": name, "icon": icon, "link": reverse_lazy(target)}
                for name, icon, target, permission in items
                if not permission or request.user.has_perm(permission)
            ],
        }
        for index, (title, items) in enumerate(_MENU)
    ]
    return [group for group in groups if group["items"]]
