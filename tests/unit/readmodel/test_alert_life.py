"""An alert's records, as its story takes them."""

from assay_stream.readmodel.alert_life import life_of
from assay_stream.readmodel.queries import load
from assay_stream.readmodel.rows import AlertFilter
from tests.support.readmodel import history


def test_a_life_has_every_record_that_the_store_has() -> None:
    """In the order of the log: the first ones apart, and as many as were counted."""
    store = load(history())
    for row in store.alerts(AlertFilter(state=None)).rows:
        alert = store.alert(row.uid)
        life = life_of(alert)
        assert len(life.first) + len(life.latest) == len(alert.records)
        assert life.count == alert.count
        assert life.last.uid == row.uid
