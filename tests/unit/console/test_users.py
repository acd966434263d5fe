"""The file of local users."""

import os
from pathlib import Path

import argon2
import pytest

from assay_stream.console.identity import LocalUsers, User, UserRole, changing_users, is_password, new_user, read_users
from assay_stream.console.sessions import Throttle
from assay_stream.errors import ConfigurationError, InputError

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD = "correct horse battery"


def a_user(name: str = "alice", role: UserRole = UserRole.OPERATOR, password: str = PASSWORD) -> User:
    return User(name=name, role=role, hash=CHEAP.hash(password))


def users_file(folder: Path, *users: User) -> Path:
    path = folder / "console.users"
    with changing_users(path) as there:
        there.clear()
        there.update((user.name, user) for user in users)
    return path


def a_backend(path: Path) -> LocalUsers:
    return LocalUsers(path, Throttle(lambda: 0), decides=True)


def test_users_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Into a file of the owner's alone; comments and blank lines are allowed."""
    alice, victor = a_user(), a_user("victor", UserRole.VIEWER)
    path = users_file(tmp_path, alice, victor)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + "\n# a comment\n")
    assert read_users(path) == {"alice": alice, "victor": victor}
    assert not list(tmp_path.glob(".part.*"))


def test_a_password_is_kept_as_its_argon2id_hash(tmp_path: Path) -> None:
    first, second = (new_user("alice", UserRole.OPERATOR, PASSWORD) for _ in range(2))
    assert first.hash.startswith("$argon2id$")
    assert first.hash != second.hash
    assert PASSWORD not in users_file(tmp_path, first).read_text()
    assert is_password(first.hash, PASSWORD)
    assert not is_password(first.hash, PASSWORD + " ")


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("", PASSWORD),
        ("a:b", PASSWORD),
        ("-a", PASSWORD),
        ("a b", PASSWORD),
        ("a\nb", PASSWORD),
        ("a" * 65, PASSWORD),
        ("alice", "too short"),
        ("alice", "x" * 1_025),
    ],
)
def test_a_user_that_cannot_be_is_refused(name: str, password: str) -> None:
    with pytest.raises(InputError, match="bad_user") as raised:
        new_user(name, UserRole.VIEWER, password)
    assert password not in str(raised.value)


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice:admin:" + CHEAP.hash(PASSWORD),
        "al ice:viewer:" + CHEAP.hash(PASSWORD),
        "alice:viewer:" + PASSWORD,
        "alice:viewer:",
        "alice:viewer:" + argon2.PasswordHasher(1, 8, 1, type=argon2.Type.I).hash(PASSWORD),
        "alice:viewer:$argon2id$v=19$m=4194304,t=100,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "alice:viewer:" + CHEAP.hash(PASSWORD) + "\nalice:operator:" + CHEAP.hash(PASSWORD),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    """By its number, not by what it holds; a hash that would take minutes is refused."""
    path = tmp_path / "users"
    path.write_text("# users\n" + line + "\n")
    with pytest.raises(ConfigurationError, match=r"bad_users.*line [23]") as raised:
        read_users(path)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "users"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="bad_users"):
        a_backend(path)


def test_a_change_of_the_file_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While it cannot be read, nobody can sign in."""
    path = users_file(tmp_path, a_user())
    users = a_backend(path)
    assert users.get("alice") is not None
    users_file(tmp_path, a_user("bob"))
    assert (users.get("alice"), users.get("bob") is None) == (None, False)
    path.write_text("damaged:$argon2id$")
    assert users.get("bob") is None
    assert "damaged" not in caplog.text
    assert "nobody can sign in" in caplog.text
    path.unlink()
    assert users.get("bob") is None
    users_file(tmp_path, a_user("bob"))
    assert users.get("bob") is not None


def test_an_unknown_user_costs_what_a_known_one_does(tmp_path: Path) -> None:
    """The hash that is checked for one has the parameters of the costliest hash, and no password."""
    costly = argon2.PasswordHasher(time_cost=2, memory_cost=16, parallelism=1).hash(PASSWORD)
    users = a_backend(users_file(tmp_path, a_user(), User(name="bob", role=UserRole.VIEWER, hash=costly)))
    nobody = users.dummy_hash()
    assert argon2.extract_parameters(nobody) == argon2.extract_parameters(costly)
    assert not is_password(nobody, PASSWORD)
    assert nobody != users.dummy_hash()
    assert not is_password(a_backend(users_file(tmp_path)).dummy_hash(), "")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bad_users"), changing_users(tmp_path / "missing" / "users"):
        pass
    assert os.listdir(tmp_path) == []


def test_two_who_change_the_file_at_once_lose_no_user(tmp_path: Path) -> None:
    """The second one is refused, before it has read what the first is about to replace."""
    path = users_file(tmp_path, a_user())
    with changing_users(path) as users:
        with pytest.raises(ConfigurationError, match="output_in_use"), changing_users(path) as others:
            others.clear()
        users["bob"] = a_user("bob")
    assert sorted(read_users(path)) == ["alice", "bob"]
