"""Addresses, as people write them into settings and proxies into headers: what they name, and who could read along."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def encrypted(address: str) -> str:
    """Return ``address`` if it is https or loopback, so that it cannot be eavesdropped on.

    Raises:
        ValueError: for any other address, with a message for the operator.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("give an address such as https://login.example")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("use https: only addresses of this machine may be http")
    return address


def place_of(url: str) -> str:
    """Return scheme, host and port of an address: what may be logged of it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def is_in_the_clear(url: str) -> bool:
    """Return True if others could read what is posted there: plain HTTP beyond this machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and parts.hostname not in _LOOPBACK


def is_one_word(url: Any) -> bool:
    """Return True if an address needs no further escaping."""
    return isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url


def is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and is_host(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def is_host(name: str | None) -> bool:
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


def address_in(hop: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address with an optional port, as some proxies write hops: ``192.0.2.7:443``, ``[2001:db8::7]:443``."""
    text = hop or ""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found


def network_of(hop: str | None) -> str:
    """Return the source that a hop counts as: a single IPv4 address, or a customer-sized IPv6 network."""
    found = address_in(hop)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return "" if found is None else str(found)
