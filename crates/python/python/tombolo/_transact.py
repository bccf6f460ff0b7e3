"""Transactions that are begun again when somebody else was there."""

import random
import time

from . import _tombolo


def transact(database, function, *, attempts=10, **options):
    """Runs `function(transaction)` in a transaction, and commits it; gives what it returns.

    After a conflict it is run again in a new transaction, up to `attempts` times, with a pause that
    grows. So it should have no effect but on the transaction. Other exceptions undo all of it.
    """
    for attempt in range(attempts):
        try:
            with database.transaction(**options) as transaction:
                return function(transaction)
        except _tombolo.Conflict:
            if attempt + 1 == attempts:
                raise
        time.sleep(random.random() * 0.001 * 2 ** min(attempt, 8))
    raise ValueError(f"attempts={attempts}: at least one is expected")
