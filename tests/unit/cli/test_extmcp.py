"""The command that serves agentgateway."""

from pathlib import Path

import pytest

from tests.support.command import run_command_text

pytest.importorskip("grpc", reason="the extra extmcp is not installed")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--prefix", "github_"), "bad_prefix"),
        (("--server", "github"), "bad_option"),
        (("--client-ca", "ca.pem"), "bad_option"),
        (("--tls-cert", "missing.pem"), "cannot_listen"),
        (("--listen", "nowhere"), "cannot_listen"),
        (("--listen", "0.0.0.0:0"), "bad_option"),
        (("--listen", "[::]:0"), "bad_option"),
        (("--listen", "192.0.2.1:0", "--behind-tls"), "cannot_listen"),
        (("--server-id", " "), "bad_identifier"),
    ],
)
def test_a_mistake_in_the_options_is_named(tmp_path: Path, options: tuple[str, ...], code: str) -> None:
    done = run_command_text("extmcp", "--output", str(tmp_path / "o.ndjson"), *options)
    assert done.returncode == 2
    assert f"{code}: " in done.stderr
