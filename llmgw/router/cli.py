"""`llmgw-router`: the data plane by itself. Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from llmgw import logs, telemetry
from llmgw.core.units import MIB
from llmgw.local.port_holder import who_holds
from llmgw.router import endpoints_file, server
from llmgw.router.server import Options
from llmgw.router.shared import Limits

DONE, FAILED, USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = _parser()
    told = parser.parse_args(argv)
    try:
        options = _options(told)
    except ValueError as wrong:
        return _say(USAGE, str(wrong))
    logs.configure("router")
    telemetry.configure("router")
    try:
        server.run(options)
    except OSError as no:
        return _say(FAILED, _cannot_listen(options, no))
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmgw-router", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="take requests on an address and pass them to ready replicas")
    source = run.add_mutually_exclusive_group()
    source.add_argument(
        "--redis", metavar="URL", help="where the control plane publishes, without a password (default: $REDIS_URL)"
    )
    source.add_argument("--endpoints", type=Path, metavar="FILE", help="a static list instead, JSON; see the README")
    run.add_argument("--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="default: %(default)s")
    run.add_argument("--state", type=Path, metavar="DIR", help="remember the table here over restarts")
    run.add_argument("--drain-s", type=float, default=30.0, help="how long open requests may finish (%(default)s)")
    run.add_argument("--reuse-port", action="store_true", help="let several routers listen on one address")
    run.add_argument("--log-every", type=int, default=0, metavar="N", help="log each Nth request; 0 logs none")
    limits = run.add_argument_group("limits")
    limits.add_argument("--body-limit-mib", type=int, default=32, help="largest request body (%(default)s)")
    limits.add_argument("--head-timeout-s", type=float, default=10.0, help="for a request's headers (%(default)s)")
    limits.add_argument("--body-timeout-s", type=float, default=60.0, help="for a request's body (%(default)s)")
    limits.add_argument("--idle-timeout-s", type=float, default=75.0, help="between two requests (%(default)s)")
    limits.add_argument("--connect-timeout-s", type=float, default=3.0, help="to reach an engine (%(default)s)")
    return parser


def _options(told: argparse.Namespace) -> Options:
    """Check what was typed; raises ValueError with a sentence."""
    host, port = parse_address(told.listen)
    redis_url = None if told.endpoints else told.redis or os.environ.get("REDIS_URL")
    if told.endpoints:
        _check_endpoints(told.endpoints)
    elif not redis_url:
        raise ValueError("where does the table come from? Give --redis URL (or REDIS_URL) or --endpoints FILE")
    elif told.redis and _holds_password(told.redis):
        raise ValueError("everybody on this machine can read a password after --redis; put the URL into REDIS_URL")
    elif not redis_url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("--redis takes a URL that starts with redis://, rediss:// or unix://")
    return Options(
        host=host,
        port=port,
        redis_url=redis_url,
        endpoints=told.endpoints,
        state=told.state,
        drain_s=told.drain_s,
        reuse_port=told.reuse_port,
        log_every=told.log_every,
        limits=Limits(
            body=told.body_limit_mib * MIB,
            head_s=told.head_timeout_s,
            body_s=told.body_timeout_s,
            idle_s=told.idle_timeout_s,
            connect_s=told.connect_timeout_s,
        ),
    )


def _holds_password(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.password) or "password" in parse_qs(parts.query)


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, with IPv6 addresses in brackets."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{text!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def _check_endpoints(file: Path) -> None:
    try:
        found = endpoints_file.parse(file.read_bytes())
    except OSError as wrong:
        raise ValueError(f"cannot read {file}: {wrong.strerror}") from wrong
    if isinstance(found, str):
        raise ValueError(f"{file}: {found}")  # noqa: TRY004 - a wrong file, not a wrong type


def _cannot_listen(options: Options, no: OSError) -> str:
    where = f"{options.host}:{options.port}"
    if no.errno != errno.EADDRINUSE:
        return f"cannot listen on {where}: {no.strerror or no}"
    holder = who_holds(options.port)
    return f"cannot listen on {where}: the port is taken" + (f" by {holder}" if holder else "")


def _say(code: int, message: str) -> int:
    print(f"llmgw-router: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
