"""The file that says who may use the console."""

from pathlib import Path

import pytest

from assay_stream.console.identity import Members, read_identity, secret_of
from assay_stream.errors import ConfigurationError, InputError
from tests.support.errors import raises_code

LOCAL = '[local]\nusers = "u"\n'
PROXY = '[proxy]\nuser_header = "X-User"\nviewers = ["*"]\n'
OIDC = '[oidc]\nissuer = "https://login.example"\nclient_id = "console"\noperators = ["a@example.com"]\n'


def a_file(folder: Path, text: str) -> Path:
    path = folder / "console.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    local = read_identity(a_file(tmp_path, LOCAL)).local
    assert local is not None
    assert local.users == tmp_path / "u"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"one of the tables \[local\], \[proxy\] and \[oidc\]"),
        (LOCAL + 'proxies = ["10.0.0.1"]\n' + PROXY, "local.proxies: no such setting"),
        ('proxies = ["10.0.0.1"]\n' + LOCAL + PROXY, "one of the tables"),
        ("[local]\n", "local.users: is missing"),
        ("x = 1\n" + LOCAL, "x: no such setting"),
        ("local = 1", "local: "),
        ("[local", "not TOML"),
        ('address = "http://console.example"\n' + LOCAL, "address: use https"),
        ('address = "console.example"\n' + LOCAL, "address: give an address such as"),
        ('address = "https://console.example/console"\n' + LOCAL, "address: give scheme and host only"),
        ('address = "https://user@console.example"\n' + LOCAL, "address: give scheme and host only"),
        ('address = "https://[::1"\n' + LOCAL, "address: "),
        (PROXY, "anybody could send the header"),
        ('proxies = ["10.0.0.1"]\n[proxy]\nuser_header = "X-User"\n', "proxy: nobody may come in"),
        ('proxies = ["10.0.0.1"]\n' + PROXY + 'operators = ["*"]\n', "proxy.operators: .*everybody among viewers only"),
        ('proxies = ["10.0.0.1/8"]\n' + PROXY, "proxies"),
        ('proxies = ["10.0.0.1"]\n[proxy]\nuser_header = "X User"\nviewers = ["*"]\n', "proxy.user_header"),
        (PROXY + 'secret_header = "X-Secret"\n', "secret_header goes with"),
        *(
            (f'proxies = ["10.0.0.1"]\n{PROXY}groups_format = {form}\n', "proxy.groups_format")
            for form in ('""', '"csv"', "'\\'", '"a"', '"||||"')
        ),
        ('proxies = ["10.0.0.1"]\n' + PROXY + 'secret_env = "S"\n', "secret_header goes with"),
        (OIDC, "needs address"),
        ('address = "https://c.example"\n' + OIDC.replace("https", "http"), "oidc.issuer: use https"),
        ('address = "https://c.example"\n' + OIDC + 'scopes = ["email"]\n', "openid"),
        (
            'address = "https://c.example"\n' + OIDC + 'client_secret = "planted"\n',
            "oidc.client_secret: no such setting",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_what_and_where(tmp_path: Path, text: str, said: str) -> None:
    """And quotes no value: somebody may have put a secret there."""
    path = a_file(tmp_path, text)
    with raises_code("bad_identity", kind=ConfigurationError, match=said) as raised:
        read_identity(path)
    assert str(path) in raised.value.message
    assert "planted" not in raised.value.message


@pytest.mark.parametrize(
    ("name", "groups", "may_decide"),
    [
        ("alice", (), True),
        ("bob", ("soc",), True),
        ("victor", (), False),
        ("carol", ("audit", "soc"), True),
        ("carol", ("audit",), False),
        ("mallory", ("SOC", "guests"), None),
        ("*", (), None),
        ("soc", (), None),
    ],
)
def test_who_is_let_in_is_named_or_in_a_group(name: str, groups: tuple[str, ...], may_decide: bool | None) -> None:
    members = Members(
        operators=frozenset({"alice"}),
        operator_groups=frozenset({"soc"}),
        viewers=frozenset({"victor"}),
        viewer_groups=frozenset({"audit"}),
    )
    if may_decide is None:
        with pytest.raises(InputError, match="may_not_look"):
            members.operator("proxy", name, groups, decides=True)
        return
    found = members.operator("proxy", name, groups, decides=True)
    assert (found.may_decide, found.name) == (may_decide, f"proxy:{name}")
    assert not members.operator("proxy", name, groups, decides=False).may_decide


def test_everybody_may_look_only_where_the_file_says_so() -> None:
    assert not Members(viewers=frozenset({"*"})).operator("oidc", "anybody", (), decides=True).may_decide
    with pytest.raises(InputError, match="may_not_look"):
        Members(operators=frozenset({"a"})).operator("oidc", "anybody", (), decides=True)


def test_secrets_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one of them, and an empty one is none."""
    path = tmp_path / "secret"
    path.write_text("planted\n")
    monkeypatch.setenv("A_SECRET", "other")
    assert secret_of(path, None, name="s") == "planted"
    assert secret_of(None, "A_SECRET", name="s") == "other"
    assert secret_of(None, None, name="s") is None
    for file, variable in ((path, "A_SECRET"), (None, "NOT_SET"), (tmp_path / "missing", None)):
        with pytest.raises(ConfigurationError, match=r"s_file|s_env") as raised:
            secret_of(file, variable, name="s")
        assert "planted" not in str(raised.value)
