"""``assay-stream console user``: who may sign in to the console with a password."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_stream.cli.options import AsJson
from assay_stream.cli.output import RowFormat, print_rows
from assay_stream.cli.shared import say
from assay_stream.errors import ConfigurationError, InputError, needing_extra

if TYPE_CHECKING:
    from assay_stream.console.users import User

user_app = typer.Typer(no_args_is_help=True, help="Users of the console that have a password.")

_Name = Annotated[str, typer.Argument(help="Name to sign in with.")]
_Identity = Annotated[
    Path, typer.Option("--identity", help="The console's identity file; `add` makes one where there is none.")
]
_DEFAULT = Path("console.toml")


@user_app.command()
def add(
    name: _Name,
    role: Annotated[str, typer.Option(help="viewer: looks; operator: decides, where the console does.")] = "viewer",
    identity: _Identity = _DEFAULT,
) -> None:
    """Add a user, or give one a new role and password. The password is asked for, or read from standard input."""
    with needing_extra("console"):
        from assay_stream.console.users import UserRole, new_user, write_users
    if role not in set(UserRole):
        raise ConfigurationError("bad_option", "--role is viewer or operator")
    if not identity.exists():
        users_file = identity.with_suffix(".users")
        users: dict[str, User] = {}
    else:
        users_file, users = _users_of(identity)
    users[name] = new_user(name, UserRole(role), _password())
    write_users(users_file, users)
    if not identity.exists():
        identity.write_text(f'[local]\nusers = "{users_file.name}"\n', encoding="utf-8")
        say(f"made {identity}")
    say(f"{name} may sign in as {role}: assay-stream console --identity {identity}")


@user_app.command()
def remove(name: _Name, identity: _Identity = _DEFAULT) -> None:
    """Remove a user; sessions of this user end at once."""
    with needing_extra("console"):
        from assay_stream.console.users import write_users
    users_file, users = _users_of(identity)
    if users.pop(name, None) is None:
        raise InputError("bad_user", "there is no such user: see `assay-stream console user list`")
    write_users(users_file, users)
    say(f"{name} is no user any more")


@user_app.command("list")
def list_users(identity: _Identity = _DEFAULT, as_json: AsJson = False) -> None:
    """List the users and their roles."""
    _, users = _users_of(identity)
    rows = [{"name": user.name, "role": user.role.value} for user in users.values()]
    print_rows(rows, ("name", "role"), RowFormat.JSON if as_json else RowFormat.TABLE, whole=True)


def _users_of(identity: Path) -> tuple[Path, dict[str, User]]:
    with needing_extra("console"):
        from assay_stream.console.identity import read_identity
        from assay_stream.console.users import read_users
    local = read_identity(identity).local
    if local is None:
        raise ConfigurationError("bad_identity", f"{identity} has no table [local]: its users have no passwords here")
    return local.users, read_users(local.users) if local.users.exists() else {}


def _password() -> str:
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    return sys.stdin.readline(4_096).rstrip("\r\n")
