"""Errors of ours under test, by the code that names them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from assay_stream.errors import AssayStreamError, InputError


@contextmanager
def raises_code(
    code: str, path: str | None = None, *, kind: type[AssayStreamError] = InputError, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[AssayStreamError]]:
    """What runs inside fails with an error of this code.

    Args:
        code: the code that its message begins with.
        path: where in a document the error must lie; None does not check.
        kind: the class of the error.
        match: what else its message must say, as a regular expression.
    """
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.code == code
    assert path is None or caught.value.path == path
