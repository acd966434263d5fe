"""What a server that is started gets of our environment."""

from pathlib import Path

import pytest

from assay_stream.observe.listing.transport import ListingError, environment_of
from tests.support.listing import servers

OURS = {"PATH": "/bin", "HOME": "/root", "ASSAY_STREAM_SASL_PASSWORD": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_a_server_gets_none_of_our_settings(tmp_path: Path) -> None:
    """They hold the password of the brokers; what it needs comes from files."""
    file = tmp_path / "key"
    file.write_text("its-own\n")
    [server] = servers({"command": ["x"], "env_files": {"API_KEY": str(file)}})
    assert environment_of(server, OURS) == {"PATH": "/bin", "HOME": "/root", "API_KEY": "its-own"}


def test_a_variable_without_its_file_starts_nothing(tmp_path: Path) -> None:
    """The server might do something else without it."""
    [server] = servers({"command": ["x"], "env_files": {"API_KEY": str(tmp_path / "missing")}})
    with pytest.raises(ListingError, match="credentials"):
        environment_of(server, OURS)
