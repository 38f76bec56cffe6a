"""Django settings of the control plane: embedded defaults, overridden by the environment alone."""

from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent.parent
STATE_DIR = Path(env.str("LLMGW_STATE", default=str(BASE_DIR / ".state"))).absolute()


def _kept(name: str) -> str:
    """Return what `manage.py up` keeps under this name in the state folder; empty where there is no such thing."""
    try:
        return (STATE_DIR / name).read_text("utf-8").strip()
    except OSError:
        return ""


# --- security ----------------------------------------------------------------------------------------------------
# `manage.py up` keeps one in the state folder, production gives its own.
SECRET_KEY = (
    env.str("LLMGW_SECRET_KEY", default="") or _kept("secret_key") or "unsafe-only-for-commands-that-sign-nothing"
)
DEBUG = env.bool("LLMGW_DEBUG", default=False)
ALLOWED_HOSTS = env.list("LLMGW_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("LLMGW_TRUSTED_ORIGINS", default=[])
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = env.bool("LLMGW_SECURE_COOKIES", default=False)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE

# --- what Django is made of here ---------------------------------------------------------------------------------
INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",  # brings its looks; the site is ours
    "apps.console.apps.ConsoleSiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "apps.audit",
    "apps.accounts",
    "apps.catalog",
    "apps.nodes",
    "apps.replicas",
    "apps.gateway",
    "apps.console",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "apps.console.middleware.ContentSecurityPolicy",
    "apps.console.middleware.DatabaseAway",
]
ROOT_URLCONF = "llmgw.urls"
ASGI_APPLICATION = "llmgw.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "apps/console/templates"],  # before those of packages: some replace Unfold's
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
LANGUAGE_CODE = "en"
LOGGING_CONFIG = None  # llmgw.logs sees to it, for every process alike
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # serves the packages' own static files without a collect step
WHITENOISE_AUTOREFRESH = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- database ----------------------------------------------------------------------------------------------------
_DATABASE_URL = env.str("DATABASE_URL", default="") or f"sqlite:///{STATE_DIR}/llmgw.sqlite3"
if _DATABASE_URL.partition("://")[0] not in {"sqlite", "postgres", "postgresql"}:
    # The URL is not repeated: a password may be in it.
    raise ImproperlyConfigured("DATABASE_URL must begin with postgres:// or sqlite:///")
DATABASES = {"default": env.db_url_config(_DATABASE_URL)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # WAL lets readers go on while one writes; an immediate transaction waits for its turn at its beginning, where
    # the busy time-out holds, instead of failing in its middle.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 60
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True

# --- Redis and Celery --------------------------------------------------------------------------------------------
REDIS_URL = env.str("REDIS_URL", default="") or _kept("redis_url") or "redis://127.0.0.1:6379/0"

# --- llmgw -------------------------------------------------------------------------------------------------------
LLMGW_HEARTBEAT_S = env.float("LLMGW_HEARTBEAT_S", default=2.0)
"""Seconds between two ticks."""
LLMGW_UNREACHABLE_TICKS = env.int("LLMGW_UNREACHABLE_TICKS", default=3)
"""Missed ticks until a node is unreachable: its replicas stay in the routing table, nothing new goes there."""
LLMGW_LOST_TICKS = env.int("LLMGW_LOST_TICKS", default=9)
"""Missed ticks until a node is lost and its replicas are replaced."""
LLMGW_RECONCILE_S = env.float("LLMGW_RECONCILE_S", default=5.0)
"""Seconds between two looks of beat whether a pass is due: the net below the events."""
LLMGW_DRAIN_S = env.float("LLMGW_DRAIN_S", default=300.0)
"""How long a draining replica may finish its open requests, in seconds."""
LLMGW_ORDER_RESEND_S = env.float("LLMGW_ORDER_RESEND_S", default=5.0)
"""After how many seconds without an answer an order is sent again; doubles with each sending up to a minute."""
LLMGW_ROUTER_URL = env.str("LLMGW_ROUTER_URL", default="http://127.0.0.1:8080")
"""Where clients reach the router: printed and linked, not listened on."""
LLMGW_ROUTER_OPEN = env.bool("LLMGW_ROUTER_OPEN", default=False)
"""Whether the router lets requests in without a key."""

# --- the doors: apps.console holds what is named here -------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.console.api.authentication.BearerToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["apps.console.api.authentication.MayAsk"],
    "DEFAULT_PARSER_CLASSES": ["apps.console.api.parsing.Json"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "apps.console.api.problems.answer",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "llmgw",
    "DESCRIPTION": "The management API: models, nodes, replicas and what became of them.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "/static/console/icon.svg",
    "POSTPROCESSING_HOOKS": ["apps.console.api.describing.add_shapes"],
}
UNFOLD = {
    "SITE_TITLE": "llmgw",
    "SITE_HEADER": "llmgw",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_BACK_BUTTON": False,
    "STYLES": ["apps.console.look.stylesheet"],
    "SCRIPTS": ["apps.console.look.script"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "apps.console.look.icon"}],
    "COLORS": {
        "primary": {
            "50": "oklch(97% .014 254)",
            "100": "oklch(93.2% .032 255)",
            "200": "oklch(88.2% .059 254)",
            "300": "oklch(80.9% .105 252)",
            "400": "oklch(70.7% .14 254)",
            "500": "oklch(60% .15 256)",
            "600": "oklch(49.5% .14 256)",
            "700": "oklch(44% .13 257)",
            "800": "oklch(39% .11 258)",
            "900": "oklch(34% .09 259)",
            "950": "oklch(26% .07 261)",
        },
    },
    "SIDEBAR": {
        "show_search": True,
        "command_search": True,
        "navigation": "apps.console.look.navigation",
    },
    "COMMAND": {"search_callback": "apps.console.search.found"},
}
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
