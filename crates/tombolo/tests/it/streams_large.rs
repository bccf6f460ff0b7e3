//! Writes to a keyspace of a stream that go past its memtable.

use tombolo::{
    Bring, Db, Env, Ingest, IngestOptions, Keyspace, KeyspaceOptions, Registry, Result, TableFileBuilder,
};

/// A write that is no put.
#[derive(Clone, Copy)]
pub enum Large {
    /// A table comes over all that the keyspace holds.
    Table(Bring),
    /// It takes the place of all that.
    Exchange,
    /// A sorted batch that becomes tables.
    Sorted,
}

/// Makes it, of these entries; durable when it ends.
pub async fn make(
    env: &Env,
    db: &Db,
    keys: &Keyspace,
    large: Large,
    number: usize,
    value: &[u8],
) -> Result<()> {
    if let Large::Sorted = large {
        let mut batch = db.sorted_batch();
        for key in LARGE_KEYS {
            batch.put(keys, key, value).await?;
        }
        return batch.publish().await.map(drop);
    }
    let place = format!("file:///parts/{number}.table");
    let options = KeyspaceOptions::default();
    let mut table =
        TableFileBuilder::create_with(env.clone(), Registry::with_defaults(), place.as_str(), options)
            .await?;
    for key in LARGE_KEYS {
        table.put(key, value).await?;
    }
    table.finish().await?;
    let (tables, options) = (Ingest::new().table(keys, place.as_str()), IngestOptions::default());
    let tables = match large {
        Large::Table(bring) => tables.options(IngestOptions { bring, ..options }),
        _ => tables.exchange(keys),
    };
    db.ingest(tables).await.map(drop)
}

pub const LARGE_KEYS: [&[u8]; 2] = [b"key-2", b"key-4"];
