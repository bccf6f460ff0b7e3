//! foyer's hybrid cache, of blocks in objects that are arrays of them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, PsyncIoEngineConfig,
};
use tombolo::Env;
use tombolo_storage::layer::trace::Tracer;
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request};

use super::{FLASH_BYTES, KEYS, LATENCY, MEMORY_BYTES, Reads, Result, VALUE_BYTES, failed, store, value};

/// Where the objects lie beside the database.
const BLOCKS: &str = "blocks";
/// Of its disk; Tombolo's regions are as large.
const PIECE_BYTES: usize = 1 << 20;
/// Entries of a block: a key of 8 bytes and a value, 8 KiB as in Tombolo's tables.
const BLOCK_KEYS: u64 = 20;
const ENTRY_BYTES: usize = 8 + VALUE_BYTES;
const BLOCK_BYTES: u64 = BLOCK_KEYS * ENTRY_BYTES as u64;
/// Blocks of an object.
const OBJECT_BLOCKS: u64 = 1000;

/// The cache, on blocks that it fetches.
pub(super) struct Foyer {
    runtime: tokio::runtime::Runtime,
    cache: HybridCache<u64, Vec<u8>>,
    objects: Arc<dyn ObjectStore>,
}

impl Foyer {
    pub(super) fn open(data: &Path, latency: &str, flash: &Path) -> Result<(Foyer, Tracer)> {
        let (objects, _, tracer, _) = store(&data.join(BLOCKS), latency)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(failed)?;
        let device = FsDeviceBuilder::new(flash).with_capacity(FLASH_BYTES).build().map_err(failed)?;
        let cache = runtime.block_on(async {
            HybridCacheBuilder::new()
                .memory(MEMORY_BYTES)
                .with_weighter(|_key: &u64, value: &Vec<u8>| value.len())
                .storage()
                .with_io_engine_config(PsyncIoEngineConfig::new())
                .with_engine_config(BlockEngineConfig::new(device).with_block_size(PIECE_BYTES))
                .build()
                .await
        });
        Ok((Foyer { runtime, cache: cache.map_err(failed)?, objects }, tracer))
    }

    pub(super) fn close(self) -> Result<()> {
        self.runtime.block_on(self.cache.close()).map_err(failed)
    }
}

fn object(number: u64) -> Result<ObjectName> {
    ObjectName::new(format!("table/{number}")).map_err(failed)
}

impl Reads for Foyer {
    fn get(&self, key: u64) -> Result<Vec<u8>> {
        let (block, objects) = (key / BLOCK_KEYS, Arc::clone(&self.objects));
        let fetch = move || async move {
            let name = object(block / OBJECT_BLOCKS).map_err(std::io::Error::other)?;
            let start = block % OBJECT_BLOCKS * BLOCK_BYTES;
            let read = objects
                .read(Request::new(Purpose::Get, Epoch::NONE), &name, start..start + BLOCK_BYTES)
                .await;
            read.map(|bytes| bytes.to_vec()).map_err(std::io::Error::other)
        };
        let entry =
            self.runtime.block_on(async { self.cache.get_or_fetch(&block, fetch).await }).map_err(failed)?;
        let start = usize::try_from(key % BLOCK_KEYS).map_err(failed)? * ENTRY_BYTES;
        let found = entry.value().get(start..start + ENTRY_BYTES).ok_or("a block that is too short")?;
        if found[..8] == key.to_be_bytes() {
            Ok(found[8..].to_vec())
        } else {
            Err(format!("key {key} is missing"))
        }
    }
}

/// Makes the array of blocks, with the database's values.
pub(super) fn fill(data: &Path) -> Result<()> {
    let (env, (objects, ..)) = (Env::real(), store(&data.join(BLOCKS), LATENCY)?);
    let object_keys = OBJECT_BLOCKS * BLOCK_KEYS;
    let mut state = 1;
    for number in 0..KEYS.div_ceil(object_keys) {
        let keys = number * object_keys..KEYS.min((number + 1) * object_keys);
        let bytes: Vec<u8> =
            keys.flat_map(|key| [key.to_be_bytes().to_vec(), value(&mut state)].concat()).collect();
        let name = object(number)?;
        let (request, placement) =
            (Request::new(Purpose::Flush, Epoch::NONE), Placement::new(ObjectKind::Other, Life::Long));
        env.block_on(objects.put_if_absent(request, &name, placement, Bytes::from(bytes))).map_err(failed)?;
    }
    Ok(())
}
