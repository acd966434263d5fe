"""How commands declare options: as defaults of parameters, shared by annotation, or as the fields of a group."""

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

_DECLARED = "declared"


def option(help_: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare an option: as the default of a parameter or field, or in ``Annotated`` if it is required or shared."""
    return field(default=default, metadata={_DECLARED: typer.Option(..., *names, help=help_, **settings)})


def flag(help_: str, *names: str) -> Any:
    """Declare an option without a value, whose name is the parameter's by default."""
    return option(help_, *names, default=False)


def argument(help_: str, **settings: Any) -> Any:
    return field(default=None, metadata={_DECLARED: typer.Argument(help=help_, **settings)})


def grouped(command: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command the options that its parameters declare; each field of a dataclass among them is an option.

    What it returns is the exit code.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            for each in fields(groups[name]):
                options[each.name] = _parameter(each.name, types[each.name], each if each.metadata else each.default)
        else:
            options[name] = _parameter(name, hints[name], parameter.default)

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        if code := command(**given):
            raise typer.Exit(int(code))

    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in options.items()}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as typer declares them."""
    declared = default if isinstance(default, Field) else None
    if declared is not None:
        default = declared.default
    elif get_origin(annotation) is Annotated and isinstance(annotation.__metadata__[0], Field):
        annotation, declared = get_args(annotation)
    if declared is not None:
        info = copy(declared.metadata[_DECLARED])
        if annotation is bool and not info.param_decls:
            info.param_decls = (f"--{name.replace('_', '-')}",)  # and no --no-...
        annotation = Annotated[annotation, info]
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
