"""An alert's records from the store, as the alert's story takes them."""

from collections import deque

from assay_stream.alerts.formats.view import AlertView, view_of
from assay_stream.alerts.index import Life
from assay_stream.limits.store import STORE_ALERT_HEAD
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertHistory


def life_of(history: AlertHistory) -> Life:
    """Return the records of an alert that the store has, as far as they are shown."""
    views = [view_of(record) for record in history.records]
    return Life(count=history.count, first=views[:STORE_ALERT_HEAD], latest=deque(views[STORE_ALERT_HEAD:]))


def pinned_digest(store: Store, view: AlertView) -> str | None:
    """Return the full digest of what an operator pinned, where the alert is about a pin and it was ever seen."""
    expected = view.fact("mcp_pin_expected")
    if not expected or view.fact("mcp_digest_before"):
        return None
    found = store.definitions(expected)
    return found[0].full_digest if found else None
