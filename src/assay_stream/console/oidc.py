"""OpenID Connect: the authorization code flow with PKCE (RFC 6749, RFC 7636, OpenID Connect Core 1.0, section 3.1)."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import quote_plus

import aiohttp
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from cryptography.fernet import Fernet, InvalidToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from assay_stream.console.identity import Oidc
from assay_stream.console.sessions import SignedIn, Throttle, is_name
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.upstreams import open_session, read_body
from assay_stream.text.urls import encrypted

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""With a key that only the provider has: no shared secret, and not none."""

_KEY_TYPES = frozenset(("RSA", "EC", "OKP"))
_DEVICE = b"device"
"""What a browser that has signed somebody in keeps, encrypted."""

_ERROR = re.compile(r"[a-z_]{1,64}")


@dataclass(eq=False, repr=False)
class OidcProvider:
    table: Oidc
    throttle: Throttle
    _: KW_ONLY
    redirect: str
    secret: str | None
    decides: bool
    clock: Callable[[], int]
    limits: ConsoleLimits = CONSOLE_LIMITS

    def __post_init__(self) -> None:
        # What a browser holds while it is with the provider means something to this process only.
        self._fernet = Fernet(Fernet.generate_key())
        try:
            self._tls = ssl.create_default_context(cafile=self.table.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("bad_tls_file", f"cannot use [oidc] ca_file: {error}") from None
        self._session: aiohttp.ClientSession | None = None
        self._asking = asyncio.Lock()
        self._found: tuple[dict[str, Any], KeySet] | None = None
        self._found_us = 0
        self._failed: OperatingError | None = None
        self._failed_us = 0

    async def begin(self, address: str) -> tuple[str, str]:
        """Return the authorization URL, and the state that the browser must keep until it returns."""
        metadata, _ = await self._provider(self.limits.provider_keep_s)
        state, nonce, verifier = (secrets.token_urlsafe() for _ in range(3))
        location = prepare_grant_uri(
            metadata["authorization_endpoint"],
            client_id=self.table.client_id,
            response_type="code",
            redirect_uri=self.redirect,
            scope=self.table.scopes,
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        pending = json.dumps({"state": state, "nonce": nonce, "verifier": verifier, "address": address})
        return location, self._fernet.encrypt_at_time(pending.encode(), self._now_s()).decode()

    async def finish(self, query: Mapping[str, str], held: str, source: str, device: str) -> tuple[SignedIn, str]:
        """Complete a sign-in; return the user and the page to show."""
        # 1. This browser began it, not long ago.
        try:
            pending = json.loads(self._fernet.decrypt_at_time(held, self.limits.pending_s, self._now_s()))
        except (InvalidToken, ValueError):
            raise _refused("it was not begun in this browser, or too long ago: sign in again") from None
        # 2. It is the one that this browser began.
        if not hmac.compare_digest(query.get("state", "").encode(), pending["state"].encode()):
            raise _refused("another sign-in was begun meanwhile: sign in again")
        # 3. The answer is this provider's, not that of another which the browser was sent to (RFC 9207).
        metadata, _ = await self._provider(self.limits.provider_keep_s)
        is_stated = metadata.get("authorization_response_iss_parameter_supported") is True
        if query.get("iss", None if is_stated else self.table.issuer) != self.table.issuer:
            raise _refused("the answer is not this provider's")
        # 4. The provider agreed.
        if "code" not in query:
            error = query.get("error", "")
            raise _refused(f"the provider answered {error if _ERROR.fullmatch(error) else 'no code'}")
        # 5. The code is good, for the holder of the verifier; 6. the ID token is the provider's, and of this sign-in.
        is_known, counted = self._is_device(device), {device: self.limits.user_attempts_max}
        if not is_known:
            counted = {source: self.limits.source_attempts_max}
            device = self._fernet.encrypt_at_time(_DEVICE, self._now_s()).decode()
        with self.throttle.attempt(counted, is_known=is_known):
            token = await self._token(metadata, query["code"], pending["verifier"])
            signed_in = self._signed_in(await self._claims(token, pending["nonce"]), device)
        return signed_in, pending["address"]

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _is_device(self, device: str) -> bool:
        try:
            return self._fernet.decrypt_at_time(device, self.limits.device_s, self._now_s()) == _DEVICE
        except (InvalidToken, ValueError):
            return False

    def _signed_in(self, claims: Mapping[str, Any], device: str) -> SignedIn:
        name, groups = claims.get(self.table.name_claim), claims.get(self.table.groups_claim, [])
        if not isinstance(name, str) or not is_name(name, self.limits):
            raise _refused(f"the provider gave no {self.table.name_claim}: ask for its scope, or set name_claim")
        if self.table.name_claim == "email" and claims.get("email_verified", True) not in (True, "true"):
            raise _refused("the provider has not verified your address")
        groups = [groups] if isinstance(groups, str) else groups
        known = {each for each in groups if isinstance(each, str)} if isinstance(groups, list) else set()
        return SignedIn(operator=self.table.operator("oidc", name, known, decides=self.decides), device=device)

    async def _token(self, metadata: Mapping[str, Any], code: str, verifier: str) -> str:
        address, client_id, secret, method = metadata["token_endpoint"], self.table.client_id, self.secret, "none"
        if secret is not None:
            methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
            if method == "client_secret_basic":  # encodes both (RFC 6749, section 2.3.1), which Authlib leaves out
                client_id, secret = quote_plus(client_id), quote_plus(secret)
        body = prepare_token_request(
            "authorization_code", redirect_uri=self.redirect, code=code, code_verifier=verifier
        )
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        _, headers, body = ClientAuth(client_id, secret, method).prepare("POST", address, headers, body)
        token = (await self._ask("POST", address, data=body, headers=headers)).get("id_token")
        if not isinstance(token, str):
            raise _failing("it gave no ID token")
        return token

    async def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        client_id, limits = self.table.client_id, self.limits
        options = {"iss": {"value": self.table.issuer}, "aud": {"value": client_id}}
        try:
            try:
                _, keys = await self._provider(limits.provider_keep_s)
                found = jwt.decode(token, keys, algorithms=_ALGORITHMS)
            except (JoseError, ValueError):  # perhaps by a key that is new
                _, keys = await self._provider(limits.provider_again_s)
                found = jwt.decode(token, keys, algorithms=_ALGORITHMS)
            claims = CodeIDToken(found.claims, found.header, options, {"nonce": nonce, "client_id": client_id})
            claims.validate(self._now_s(), limits.clock_skew_s)
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(f"the provider's ID token is not valid ({type(error).__name__})") from None
        return dict(claims)

    async def _provider(self, age_max_s: int) -> tuple[dict[str, Any], KeySet]:
        """Return the provider's metadata and keys, fetched again if they are older than this."""
        async with self._asking:  # however many people wait for it
            now_us, limits = self.clock(), self.limits
            if self._found is not None and now_us - self._found_us < age_max_s * 1_000_000:
                return self._found
            if self._failed is not None and now_us - self._failed_us < limits.provider_pause_s * 1_000_000:
                raise self._failed
            try:
                self._found = await self._fetched()
            except OperatingError as error:
                self._failed, self._failed_us = error, now_us
                raise
            self._found_us = now_us
            return self._found

    async def _fetched(self) -> tuple[dict[str, Any], KeySet]:
        issuer = self.table.issuer
        found = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise _failing("it names itself otherwise than issuer in the configuration: copy the issuer exactly")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            try:
                encrypted(str(found.get(name)))
            except ValueError:
                raise _failing(f"its {name} is missing, or not https") from None
        keys = (await self._ask("GET", found["jwks_uri"])).get("keys")
        usable = [
            key
            for key in (keys if isinstance(keys, list) else ())
            if isinstance(key, dict) and key.get("kty") in _KEY_TYPES and key.get("use", "sig") == "sig"
        ]
        try:
            return found, KeySet.import_key_set({"keys": usable})
        except (JoseError, ValueError, TypeError):
            raise _failing("its keys cannot be read") from None

    async def _ask(self, method: str, address: str, **given: Any) -> dict[str, Any]:
        if self._session is None:  # it needs a running loop
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            timeout = aiohttp.ClientTimeout(total=self.limits.provider_limit_s)
            self._session = open_session(self._tls, timeout, headers=headers, trust_env=True)
        try:
            async with self._session.request(method, address, allow_redirects=False, **given) as answer:
                body = await read_body(answer, self.limits.provider_bytes_max)
            if len(body) > self.limits.provider_bytes_max:
                raise _failing(f"it answers more than {self.limits.provider_bytes_max} bytes")
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
        return self.clock() // 1_000_000


def _refused(why: str) -> InputError:
    return InputError("sign_in_refused", f"you are not signed in: {why}")


def _failing(why: str) -> OperatingError:
    return OperatingError("provider_failing", f"the provider cannot be used now: {why}")
