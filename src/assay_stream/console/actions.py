"""What forms do: each action asks the store, and returns what is to be published."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay_stream.console.deciding import decide
from assay_stream.console.forms import Decided, Form
from assay_stream.readmodel.queries import Store

Action = Callable[[Store, Form], Decided]

ACTIONS: Mapping[str, Action] = {"/decide": decide}
"""Every action by the path that its form is posted to."""
