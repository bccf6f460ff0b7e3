"""The package as programs use it."""

import asyncio
import threading

import pytest
import tombolo


@pytest.fixture
def db(tmp_path):
    with tombolo.open(f"file://{tmp_path}/database", memory_bytes="32MiB") as opened:
        yield opened


@pytest.fixture
def orders(db):
    return db.keyspace("orders", create=True, filter_bits=12)


def test_a_keyspace_is_a_dictionary(orders):
    orders[b"1"] = b"two books"
    orders["2"] = bytearray(b"a lamp")
    orders[memoryview(b"3")] = b""
    assert orders[b"1"] == b"two books"
    assert b"2" in orders and b"9" not in orders
    assert orders.get(b"9") is None and orders.get(b"9", 7) == 7
    assert orders.get_many([b"3", b"9"]) == [b"", None]
    assert list(orders) == [b"1", b"2", b"3"]
    assert list(reversed(orders)) == [b"3", b"2", b"1"]
    del orders[b"1"]
    with pytest.raises(KeyError) as missing:
        orders[b"1"]
    assert missing.value.args == (b"1",)
    assert orders.name == "orders"


def test_ranges(orders):
    expected = [(b"%04d" % number, b"v%d" % number) for number in range(1000)]
    for key, value in expected:
        orders.put(key, value, durability="accepted")
    assert list(orders.items()) == expected
    assert list(orders.items(reverse=True)) == expected[::-1]
    assert list(orders.keys(b"0100", b"0103")) == [b"0100", b"0101", b"0102"]
    assert list(orders.values(prefix=b"099")) == [b"v%d" % number for number in range(990, 1000)]
    orders[b"\xff\xff"] = b"last"
    assert list(orders.keys(prefix=b"\xff")) == [b"\xff\xff"]
    with pytest.raises(tombolo.Invalid):
        orders.keys(b"a", prefix=b"b")
    orders.delete_range(b"0000", b"0999")
    assert list(orders) == [b"0999", b"\xff\xff"]


def test_a_view_is_no_copy_and_outlives_all(tmp_path):
    db = tombolo.open(f"file://{tmp_path}/database")
    keyspace = db.keyspace()
    keyspace[b"k"] = b"x" * 100_000
    view = memoryview(keyspace.view(b"k"))
    assert view.readonly and len(view) == 100_000 and view[99_999] == ord("x")
    assert keyspace.view(b"absent") is None
    del keyspace[b"k"]
    db.close()
    assert bytes(view[:3]) == b"xxx"
    with pytest.raises(TypeError):
        view[0] = 1


def test_batches_are_whole_or_absent(db, orders):
    with db.batch() as batch:
        batch.put(orders, b"1", b"a")
        batch.put(orders, b"2", b"b")
        batch.delete(orders, b"1")
        assert len(batch) == 3 and b"2" not in orders
    assert list(orders.items()) == [(b"2", b"b")]
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch.put(orders, b"3", b"c")
            1 / 0
    assert b"3" not in orders
    sums = db.keyspace("sums", create=True, operator="add_u64")
    batch = db.batch(durability="accepted")
    batch.merge(sums, b"n", (2).to_bytes(8, "little"))
    batch.delete_range(orders, b"0", b"9")
    batch.write()
    sums.merge(b"n", (3).to_bytes(8, "little"))
    assert int.from_bytes(sums[b"n"], "little") == 5 and list(orders) == []


def test_a_snapshot_stays(db, orders):
    orders[b"1"] = b"before"
    with db.snapshot() as snapshot:
        orders[b"1"] = b"after"
        orders[b"2"] = b"new"
        db.flush()
        assert snapshot.get(orders, b"1") == b"before"
        assert snapshot.get(orders, b"2", b"none") == b"none"
        assert list(orders.items(snapshot=snapshot)) == [(b"1", b"before")]
        assert snapshot.sequence > 0
    assert orders[b"1"] == b"after"


def test_asyncio(db, orders):
    async def work():
        await asyncio.gather(*(orders.aput(b"%d" % number, b"v") for number in range(100)))
        batch = db.batch()
        batch.put(orders, b"batched", b"too")
        await batch.awrite()
        await orders.adelete(b"0")
        cancelled = orders.aput(b"cancelled", b"goes on")
        cancelled.cancel()
        with pytest.raises(tombolo.Invalid):
            await orders.aput(b"x" * 70_000, b"")
        return await asyncio.gather(orders.aget(b"0"), orders.aget(b"99"), orders.aget(b"batched"))

    assert asyncio.run(work()) == [None, b"v", b"too"]


def test_without_a_running_loop_nothing_is_begun(db, orders):
    batch = db.batch()
    batch.put(orders, b"batched", b"")
    for begin in (lambda: orders.aput(b"put", b""), batch.awrite):
        with pytest.raises(RuntimeError):
            begin()
    assert list(orders) == [] and len(batch) == 1
    with pytest.raises(RuntimeError):
        orders.aget(b"1")


def test_errors_by_kind(db, orders, tmp_path):
    with pytest.raises(tombolo.NotFound):
        db["absent"]
    with pytest.raises(tombolo.Invalid):
        orders[b"x" * 70_000] = b""
    with pytest.raises(tombolo.Invalid):
        orders.put(b"k", b"v", durability="for ever")
    with pytest.raises(tombolo.Invalid):
        orders.put(b"k", b"v", ttl=-1)
    with pytest.raises(tombolo.Invalid):
        tombolo.open(f"file://{tmp_path}/other", no_such_setting=1)
    with pytest.raises(tombolo.InUse):
        tombolo.open(f"file://{tmp_path}/database", take_over="never")
    with pytest.raises(tombolo.NotFound):
        tombolo.open(f"file://{tmp_path}/other", mode="open")
    assert issubclass(tombolo.Fenced, tombolo.Error)
    for wrong in (7, None, object()):
        with pytest.raises((TypeError, BufferError)):
            orders[wrong] = b""


def test_after_close_all_answer_closed(tmp_path):
    db = tombolo.open(f"file://{tmp_path}/database")
    keyspace = db.keyspace()
    keyspace[b"1"] = b"a"
    walk, snapshot, batch = keyspace.items(), db.snapshot(), db.batch()
    db.close()
    db.close()
    for call in (lambda: keyspace[b"1"], lambda: keyspace.put(b"1", b""), db.flush, db.sync):
        with pytest.raises(tombolo.Closed):
            call()
    batch.put(keyspace, b"1", b"")
    with pytest.raises(tombolo.Closed):
        batch.write()
    with pytest.raises(tombolo.Closed):
        snapshot.get(keyspace, b"1")
    list(walk)


def test_reopening_and_reading_only(tmp_path):
    uri = f"file://{tmp_path}/database"
    with tombolo.open(uri, mode="create") as db:
        db.keyspace()[b"1"] = b"a"
        db.checkpoint("noon")
        assert db.checkpoints() == ["noon"]
        db.delete_checkpoint("noon")
        with tombolo.open(uri, mode="read") as look:
            assert look.keyspace()[b"1"] == b"a"
            with pytest.raises(tombolo.PermissionDenied):
                look.keyspace()[b"1"] = b""
    with tombolo.open(str(tmp_path / "database"), mode="open") as db:
        assert db.keyspaces() == ["default"] and db.keyspace()[b"1"] == b"a"
        db.set_options(automatic_compaction=False)
        db.compact()
        assert db.properties()["tables"] == 1 and db.properties()["failure"] == ""
        assert 'tombolo_writes_total{database="orders"}' in db.metrics("orders")
    tombolo.destroy(uri)


def test_threads(orders):
    def work(name):
        for number in range(200):
            orders.put(b"%d-%d" % (name, number), b"v", durability="accepted")
            assert orders[b"%d-%d" % (name, number)] == b"v"

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(1 for _ in orders) == 800


def test_arrow(orders):
    pyarrow = pytest.importorskip("pyarrow")
    for number in range(100):
        orders.put(b"%03d" % number, b"v" * number, durability="accepted")
    table = tombolo.to_arrow(orders, b"010", b"020")
    assert table.column("key").to_pylist() == [b"%03d" % number for number in range(10, 20)]
    assert table.column("value").to_pylist() == [b"v" * number for number in range(10, 20)]
    assert table.schema.field("key").type == pyarrow.large_binary()
    assert tombolo.to_arrow(orders, limit=3).num_rows == 3
    assert tombolo.to_arrow(orders, prefix=b"x").num_rows == 0


def test_a_transaction_sees_its_writes_and_commits_whole(db, orders):
    orders[b"a"] = b"1"
    orders[b"z"] = b"1"
    with db.transaction(id=b"first") as transaction:
        assert transaction.get(orders, b"a", for_update=True) == b"1"
        transaction.put(orders, b"b", b"2")
        transaction.put(orders, b"c", b"3", ttl=3600.0)
        transaction.delete(orders, b"z")
        transaction.set_savepoint()
        transaction.delete_range(orders, b"a", b"c")
        assert transaction.get(orders, b"b") is None
        transaction.roll_back_to_savepoint()
        with pytest.raises(tombolo.Invalid):
            transaction.roll_back_to_savepoint()
        seen = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
        assert list(transaction.items(orders)) == seen
        assert list(transaction.items(orders, b"b", reverse=True)) == seen[:0:-1]
        assert b"b" not in orders
    assert list(orders) == [b"a", b"b", b"c"]
    assert db.outcome(b"first") == "committed" and db.outcome(b"second") is None
    with pytest.raises(tombolo.Invalid):
        transaction.put(orders, b"d", b"4")
    # An exception undoes it.
    with pytest.raises(KeyError):
        with db.transaction() as transaction:
            transaction.put(orders, b"d", b"4")
            raise KeyError
    assert b"d" not in orders
    transaction = db.transaction()
    transaction.put(orders, b"d", b"4")
    transaction.roll_back()
    assert b"d" not in orders


def test_conflicts_and_locks(db, orders):
    orders[b"a"] = b"1"
    transaction = db.transaction()
    assert transaction.get(orders, b"a", for_update=True) == b"1"
    orders[b"a"] = b"2"
    transaction.put(orders, b"b", b"3")
    with pytest.raises(tombolo.Conflict):
        transaction.commit()
    one, other = db.transaction(locking="pessimistic"), db.transaction(locking="pessimistic", lock_wait=0.01)
    one.lock_range(orders, prefix=b"k")
    with pytest.raises(tombolo.Error):
        other.put(orders, b"key", b"1")
    one.roll_back()
    for wrong in ({"locking": "none"}, {"isolation": "none"}, {"durability": "none"}, {"lock_wait": -1.0}):
        with pytest.raises(tombolo.Invalid):
            db.transaction(**wrong)


def test_counters_of_many_threads(db, orders):
    def add(transaction):
        count = int(transaction.get(orders, b"n", b"0", for_update=True)) + 1
        transaction.put(orders, b"n", b"%d" % count)
        return count

    def work():
        for _ in range(20):
            tombolo.transact(db, add, attempts=1000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert orders[b"n"] == b"80"


def test_two_phase_commit(db, orders):
    transaction = db.transaction(locking="pessimistic")
    transaction.put(orders, b"a", b"1")
    transaction.prepare(b"both")
    assert db.in_doubt() == [b"both"] and b"a" not in orders
    db.decide(b"both", True)
    assert db.in_doubt() == [] and orders[b"a"] == b"1"
