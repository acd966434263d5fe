"""An OpenID Connect provider with real keys that lies where a test tells it to."""

import hashlib
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.readmodel import NOW_US

NOW_S = NOW_US // 1_000_000
CLIENT_ID = "console & co"
SECRET = "planted-client-secret"


def a_key(kid: str = "first") -> RSAKey:
    return RSAKey.generate_key(2_048, {"kid": kid, "use": "sig"})


_first_key = cache(a_key)
"""The provider's in all tests: making one takes longer than a test does."""


@dataclass
class Provider:
    """What it knows, and how it lies.

    Args:
        claims: those of the ID token that differ; ``None`` leaves one out.
        metadata: the same of its metadata.
        answers: what an address answers in place of the truth: status and body.
    """

    address: str = ""
    key: RSAKey = field(default_factory=_first_key)
    signs_with: Any = None
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "RS256", "kid": "first"})
    claims: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    secret: str | None = SECRET

    def sign(self, location: str) -> dict[str, str]:
        """What a browser brings back that was sent to this address and whose user agreed."""
        query = dict(parse_qsl(urlsplit(location).query, strict_parsing=True))
        assert location.startswith(f"{self.address}/authorize?")
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT_ID)
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.address}

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path in self.answers:
            status, body = self.answers[request.path]
            return web.Response(status=status, body=body, content_type="application/json")
        if request.path == "/.well-known/openid-configuration":
            found = {
                "issuer": self.address,
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                "jwks_uri": f"{self.address}/keys",
                "authorization_response_iss_parameter_supported": True,
            }
            return web.json_response(_without_none(found | self.metadata))
        if request.path == "/keys":
            odd = {"kty": "EC", "use": "enc", "crv": "P-256"}
            return web.json_response({"keys": [self.key.as_dict(private=False), odd, {"kty": "new"}, "odd"]})
        return self._token(request, dict(await request.post()))

    def _token(self, request: web.Request, form: dict[str, Any]) -> web.Response:
        query = self.codes.pop(form["code"], None)
        if query is None or not self._is_client(request, form):
            return web.json_response({"error": "invalid_grant"}, status=400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert urlsafe_b64encode(digest).decode().rstrip("=") == query["code_challenge"]
        assert form["redirect_uri"] == query["redirect_uri"]
        claims = {
            "iss": self.address,
            "aud": CLIENT_ID,
            "sub": "1",
            "exp": NOW_S + 300,
            "iat": NOW_S,
            "nonce": query["nonce"],
            "email": "alice@example.com",
            "groups": ["staff", "soc"],
        }
        key = self.signs_with or self.key
        token = jwt.encode(self.header, _without_none(claims | self.claims), key, algorithms=["RS256", "HS256"])
        return web.json_response({"id_token": token, "access_token": "planted-access-token", "token_type": "Bearer"})

    def _is_client(self, request: web.Request, form: dict[str, Any]) -> bool:
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = b64decode(value).decode().partition(":")
            return (unquote_plus(name), unquote_plus(secret)) == (CLIENT_ID, self.secret)
        return (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, self.secret)


@asynccontextmanager
async def a_provider() -> AsyncIterator[Provider]:
    provider = Provider()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider.handle)
    async with TestServer(app) as server:
        provider.address = str(server.make_url("/")).rstrip("/")
        yield provider


def _without_none(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
