"""Makes the door that an identity file describes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from assay_stream.console.door import CALLBACK, Door, Way
from assay_stream.console.identity import Identity, secret_of
from assay_stream.console.oidc import OidcWay
from assay_stream.console.sessions import Sessions
from assay_stream.console.throttle import Throttle
from assay_stream.console.users import Users
from assay_stream.console.ways import LocalWay, ProxyWay
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits


def now_us() -> int:
    """Return the time now, microseconds since the epoch."""
    return time.time_ns() // 1_000


def open_door(
    identity: Identity,
    *,
    decides: bool,
    is_tls: bool = False,
    clock: Callable[[], int] = now_us,
    limits: ConsoleLimits = CONSOLE_LIMITS,
) -> Door:
    """Return the door.

    Args:
        decides: whether anything can be decided in this console.
        is_tls: whether the console itself speaks TLS.

    Raises:
        ConfigurationError: ``bad_identity``, ``bad_users``, ``bad_secret_file``, ``bad_tls_file``.
    """
    key = secrets.token_bytes(32)
    by_source = Throttle(limits.source_attempts_max, clock, key, limits=limits)
    way: Way
    if identity.local is not None:
        by_user = Throttle(limits.user_attempts_max, clock, key, limits=limits)
        users = Users(identity.local.users)
        way = LocalWay(users, by_user=by_user, by_source=by_source, decides=decides, limits=limits)
    elif identity.proxy is not None:
        proxy = identity.proxy
        secret = secret_of(proxy.secret_file, proxy.secret_env, name="proxy.secret")
        way = ProxyWay(identity, proxy, secret=secret, decides=decides, limits=limits)
    else:
        assert identity.oidc is not None  # noqa: S101 -- the file has one way
        oidc = identity.oidc
        way = OidcWay(
            oidc,
            redirect=f"{identity.address}{CALLBACK}",
            secret=secret_of(oidc.client_secret_file, oidc.client_secret_env, name="oidc.client_secret"),
            by_source=by_source,
            decides=decides,
            clock=clock,
            limits=limits,
        )
    return Door(Sessions(clock, limits=limits), way=way, identity=identity, is_tls=is_tls, limits=limits)
