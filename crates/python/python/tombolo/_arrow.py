"""Ranges as tables of Arrow, which pandas and others take without a copy."""


def to_arrow(keyspace, start=None, end=None, *, prefix=None, limit=None, snapshot=None):
    """Keys and values of a range as a table with the columns `key` and `value`.

    Needs pyarrow. The bytes are gathered once, and not copied after that.
    """
    import pyarrow

    count, *parts = keyspace._columns(start, end, prefix=prefix, limit=limit, snapshot=snapshot)
    key_offsets, key_bytes, value_offsets, value_bytes = map(pyarrow.py_buffer, parts)
    column = pyarrow.large_binary()
    keys = pyarrow.Array.from_buffers(column, count, [None, key_offsets, key_bytes])
    values = pyarrow.Array.from_buffers(column, count, [None, value_offsets, value_bytes])
    return pyarrow.table({"key": keys, "value": values})
