"""Tombolo: an embedded LSM key-value engine whose data lives on shared storage.

    import tombolo

    with tombolo.open("file:///data/orders") as db:
        orders = db.keyspace("orders", create=True)
        orders[b"1"] = b"two books"
        for key, value in orders.items(prefix=b"1"):
            print(key, value)
"""

from . import _arrow, _tombolo, _transact
from ._tombolo import *  # noqa: F403
from ._tombolo import __version__  # noqa: F401

to_arrow = _arrow.to_arrow
transact = _transact.transact
__all__ = [name for name in dir(_tombolo) if not name.startswith("_")] + ["to_arrow", "transact"]
