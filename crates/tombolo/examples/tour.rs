//! A five-minute tour: `cargo run -p tombolo --example tour`.

use tombolo::{Batch, Db, Durability, ErrorKind, KeyspaceOptions, Result};

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("tombolo-tour-{}", std::process::id()));

    // A database lives in a directory, or at a URI: tables and manifest in an object store, and a
    // log beside them.
    let db = Db::from_path(&directory)?.open().wait()?;
    let orders = db.open_or_create_keyspace("orders", KeyspaceOptions::default()).wait()?;

    // Every verb starts at the call and returns an operation: wait for it, or `.await` it.
    orders.put("order/1", "two books").wait()?;

    // Writes are durable unless you say otherwise. Several share one sync: start them, then wait.
    let started: Vec<_> = (2..100).map(|number| orders.put(format!("order/{number}"), "a lamp")).collect();
    for write in started {
        write.wait()?;
    }
    orders.put_with("visits", "1", Durability::Accepted).wait()?;

    // A batch takes effect whole or not at all.
    let mut batch = Batch::new();
    batch.put(&orders, "order/1/paid", "yes").delete(&orders, "visits");
    db.write(batch).wait()?;

    // Reads: a copy, or a look at the bytes where they lie.
    let order = orders.get("order/1").wait()?;
    println!("order/1: {:?}", order.as_deref().map(String::from_utf8_lossy));
    let length = orders.get_with("order/2", <[u8]>::len).wait()?;
    println!("order/2 has {length:?} bytes");

    // A snapshot is one moment of all keyspaces.
    let before = db.snapshot();
    orders.delete("order/1").wait()?;
    println!("in the snapshot order/1 is still {:?}", before.get(&orders, "order/1").wait()?.is_some());

    // A scan is a cursor between the entries, forward and backward.
    for entry in orders.scan("order/10".."order/13") {
        let (key, value) = entry?;
        println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    // Another process takes the database over just by opening it; the first one learns it at its
    // next write.
    let successor = Db::from_path(&directory)?.open().wait()?;
    match orders.put("order/1", "too late").wait() {
        Err(error) if error.kind() == ErrorKind::Fenced => println!("the first handle: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    println!("the successor has {} orders", successor.keyspace("orders")?.scan("order/".."order0").count());
    successor.close().wait()?;
    let _ = std::fs::remove_dir_all(directory);
    Ok(())
}
