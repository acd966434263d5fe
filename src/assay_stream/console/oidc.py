"""OpenID Connect: the authorization code flow with PKCE (RFC 6749, RFC 7636, OpenID Connect Core 1.0, section 3.1)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
from cryptography.fernet import Fernet, InvalidToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from assay_stream.console.identity import Oidc, encrypted
from assay_stream.console.throttle import Throttle
from assay_stream.console.ways import Admitted, is_name, limited, may_not_look
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.client import open_session, read_body

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""With a key that only the provider has: no shared secret, and not none."""

_KEY_TYPES = frozenset(("RSA", "EC", "OKP"))
_DEVICE = b"device"
"""What a browser that has signed somebody in keeps, encrypted."""

_ERROR = re.compile(r"[a-z_]{1,64}")


class OidcWay:
    """The word of a provider.

    Args:
        throttle, known: count failed attempts, from browsers that have signed somebody in before apart from others.
        redirect: the address that the provider sends browsers back to.
        secret: of the client; ``None`` for a public one.
        clock: the time now, microseconds since the epoch.
        new_token: makes what nobody can guess.
        key: of Fernet: what a browser holds while it is with the provider means something to this process only.
    """

    def __init__(
        self,
        table: Oidc,
        throttle: Throttle,
        known: Throttle,
        *,
        redirect: str,
        secret: str | None,
        decides: bool,
        clock: Callable[[], int],
        new_token: Callable[[], str] = secrets.token_urlsafe,
        key: bytes | None = None,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._table = table
        self._redirect = redirect
        self._secret = secret
        self._throttle, self._known = throttle, known
        self._decides = decides
        self._clock = clock
        self._new_token = new_token
        self._fernet = Fernet(key or Fernet.generate_key())
        self._limits = limits
        self._tls = _trust(table)
        self._session: aiohttp.ClientSession | None = None
        self._metadata: dict[str, Any] = {}
        self._metadata_us = 0
        self._failed: tuple[OperatingError, int] | None = None
        self._asking = asyncio.Lock()
        self._keys = KeySet([])
        self._keys_us: int | None = None

    async def begin(self, address: str) -> tuple[str, str]:
        """Return where to send a browser, and what it has to hold until it comes back.

        Args:
            address: the page to show then.

        Raises:
            OperatingError: ``provider_failing``.
        """
        metadata = await self._discovered()
        pending = {name: self._new_token() for name in ("state", "nonce", "verifier")} | {"address": address}
        challenge = urlsafe_b64encode(hashlib.sha256(pending["verifier"].encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._table.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self._table.scopes),
            "state": pending["state"],
            "nonce": pending["nonce"],
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = metadata["authorization_endpoint"]
        note = self._fernet.encrypt_at_time(json.dumps(pending).encode(), self._now_s()).decode()
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}", note

    async def finish(self, query: Mapping[str, str], note: str, source: str, device: str = "") -> tuple[Admitted, str]:
        """Return who came back from the provider, and the page to show.

        Args:
            query: of the address that the provider sent the browser to.
            note: what the browser held meanwhile.
            source: the network that it is in.
            device: what the browser kept from an earlier sign-in, if it did.

        Raises:
            InputError: ``sign_in_refused``, ``sign_in_limited``, ``may_not_look``.
            OperatingError: ``provider_failing``.
        """
        # 1. This browser began it, not long ago.
        try:
            pending = json.loads(self._fernet.decrypt_at_time(note, self._limits.pending_s, self._now_s()))
        except (InvalidToken, ValueError):
            raise _refused("it was not begun in this browser, or too long ago: sign in again") from None
        # 2. It is the one that this browser began.
        if not hmac.compare_digest(query.get("state", "").encode(), pending["state"].encode()):
            raise _refused("another sign-in was begun meanwhile: sign in again")
        # 3. The answer is this provider's, not that of another which the browser was sent to (RFC 9207).
        metadata = await self._discovered()
        is_stated = metadata.get("authorization_response_iss_parameter_supported") is True
        if query.get("iss", None if is_stated else self._table.issuer) != self._table.issuer:
            raise _refused("the answer is not this provider's")
        # 4. The provider agreed.
        if "code" not in query:
            error = query.get("error", "")
            raise _refused(f"the provider answered {error if _ERROR.fullmatch(error) else 'no code'}")
        # 5. The code is good, for whoever holds the verifier.
        if self._is_device(device):
            throttle, counted, most = self._known, device, self._limits.user_attempts_max
        else:
            device = self._fernet.encrypt_at_time(_DEVICE, self._now_s()).decode()
            throttle, counted, most = self._throttle, source, self._limits.source_attempts_max
        if not throttle.take(counted, most):
            raise limited(self._limits)
        try:
            token = await self._token(metadata, query["code"], pending["verifier"])
            # 6. The ID token is the provider's, for this console, of now, and for this sign-in.
            claims = await self._claims(token, pending["nonce"])
        except OperatingError:  # it was not looked at
            throttle.forgive(counted)
            raise
        admitted = self._admitted(claims)
        throttle.forgive(counted)
        return replace(admitted, device=device), pending["address"]

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        if self._session is not None:
            await self._session.close()

    def _is_device(self, device: str) -> bool:
        try:
            return self._fernet.decrypt_at_time(device, self._limits.device_s, self._now_s()) == _DEVICE
        except (InvalidToken, ValueError):
            return False

    def _admitted(self, claims: Mapping[str, Any]) -> Admitted:
        name, groups = claims.get(self._table.name_claim), claims.get(self._table.groups_claim, [])
        if not isinstance(name, str) or not name or not is_name(name, self._limits.identity_chars_max):
            raise _refused(f"the provider gave no {self._table.name_claim}: ask for its scope, or set name_claim")
        if self._table.name_claim == "email" and claims.get("email_verified", True) not in (True, "true"):
            raise _refused("the provider has not verified your address")
        groups = [groups] if isinstance(groups, str) else groups
        known = {each for each in groups if isinstance(each, str)} if isinstance(groups, list) else set()
        operator = self._table.operator("oidc", name, known, decides=self._decides)
        if operator is None:
            raise may_not_look()
        return Admitted(operator=operator)

    async def _discovered(self) -> dict[str, Any]:
        async with self._asking:  # however many people wait for it
            now_us = self._clock()
            if self._metadata and now_us - self._metadata_us < self._limits.provider_keep_s * 1_000_000:
                return self._metadata
            if self._failed is not None and now_us - self._failed[1] < self._limits.provider_pause_s * 1_000_000:
                raise self._failed[0]
            try:
                self._metadata, self._metadata_us = await self._described(), now_us
            except OperatingError as error:
                self._failed = error, now_us
                raise
            return self._metadata

    async def _described(self) -> dict[str, Any]:
        issuer = self._table.issuer
        found = await self._asked("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise _failing("it names itself otherwise than issuer in the configuration: copy the issuer exactly")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            try:
                encrypted(str(found.get(name)))
            except ValueError:
                raise _failing(f"its {name} is missing, or not https") from None
        return found

    async def _token(self, metadata: Mapping[str, Any], code: str, verifier: str) -> str:
        data = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": verifier,
            "client_id": self._table.client_id,
        }
        headers = {}
        if self._secret is not None:
            methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in methods:
                quoted = [urlencode({"": each})[1:] for each in (self._table.client_id, self._secret)]
                headers["Authorization"] = f"Basic {b64encode(':'.join(quoted).encode()).decode()}"
            else:
                data["client_secret"] = self._secret
        token = (await self._asked("POST", metadata["token_endpoint"], data=data, headers=headers)).get("id_token")
        if not isinstance(token, str):
            raise _failing("it gave no ID token")
        return token

    async def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        registry = jwt.JWTClaimsRegistry(
            now=self._now_s(),
            leeway=self._limits.clock_skew_s,
            iss={"essential": True, "value": self._table.issuer},
            aud={"essential": True, "value": self._table.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True},
        )
        try:
            found = await self._verified(token)
            registry.validate(found.claims)
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(f"the provider's ID token is not valid ({type(error).__name__})") from None
        claims = found.claims
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise _refused("the provider's ID token is of another sign-in")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self._table.client_id) != self._table.client_id:
            raise _refused("the provider's ID token is for another client")
        return claims

    async def _verified(self, token: str) -> jwt.Token:
        """Return a token whose signature is right; a key that is new is looked for once."""
        try:
            return jwt.decode(token, await self._known_keys(), algorithms=_ALGORITHMS)
        except (JoseError, ValueError):
            return jwt.decode(token, await self._known_keys(is_old=True), algorithms=_ALGORITHMS)

    async def _known_keys(self, *, is_old: bool = False) -> KeySet:
        limit_s = self._limits.provider_again_s if is_old else self._limits.provider_keep_s
        now_us = self._clock()
        if self._keys_us is None or now_us - self._keys_us >= limit_s * 1_000_000:
            found = (await self._asked("GET", (await self._discovered())["jwks_uri"])).get("keys")
            usable = [
                key
                for key in (found if isinstance(found, list) else ())
                if isinstance(key, dict) and key.get("kty") in _KEY_TYPES and key.get("use", "sig") == "sig"
            ]
            self._keys, self._keys_us = KeySet.import_key_set({"keys": usable}), now_us
        return self._keys

    async def _asked(self, method: str, address: str, **given: Any) -> dict[str, Any]:
        """Return the object that the provider answers.

        Raises:
            InputError: ``sign_in_refused`` where it refuses what it was sent.
            OperatingError: ``provider_failing``.
        """
        if self._session is None:  # it needs a running loop
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            timeout = aiohttp.ClientTimeout(total=self._limits.provider_limit_s)
            self._session = open_session(self._tls, timeout, headers=headers, trust_env=True)
        try:
            async with self._session.request(method, address, allow_redirects=False, **given) as answer:
                body = await read_body(answer, self._limits.provider_bytes_max)
            if len(body) > self._limits.provider_bytes_max:
                raise _failing(f"it answers more than {self._limits.provider_bytes_max} bytes")
            found = json.loads(body) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError) as error:
            raise _failing(f"it does not answer ({type(error).__name__})") from None
        except (ValueError, RecursionError):
            raise _failing("its answer is not JSON") from None
        if method == "POST" and answer.status in (400, 401, 403):
            raise _refused("the provider does not take its code: it was used before, or the client's secret is wrong")
        if not isinstance(found, dict):
            raise _failing(f"it answers with status {answer.status}")
        return found

    def _now_s(self) -> int:
        return self._clock() // 1_000_000


def _trust(table: Oidc) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=table.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("bad_tls_file", f"cannot use [oidc] ca_file: {error}") from None


def _refused(why: str) -> InputError:
    return InputError("sign_in_refused", f"you are not signed in: {why}")


def _failing(why: str) -> OperatingError:
    return OperatingError("provider_failing", f"the provider cannot be used now: {why}")
