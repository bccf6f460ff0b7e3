mod full;
mod real;
mod simulated;

use bytes::Bytes;

use super::*;
use crate::{Epoch, Life, ObjectKind, Purpose};

fn name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

fn placement() -> Placement {
    Placement::new(ObjectKind::Other, Life::Short)
}

/// Bytes that differ from object to object and from place to place.
fn pattern(seed: u64, length: usize) -> Bytes {
    let byte = |index: u64| (index.wrapping_mul(31) ^ seed.wrapping_mul(131)).to_le_bytes()[0] | 1;
    // They come again after 256.
    let mut bytes: Vec<u8> = (0..256).map(byte).collect::<Vec<u8>>().repeat(length.div_ceil(256));
    bytes.truncate(length);
    bytes.into()
}

async fn put(store: &LocalObjectStore, to: &str, bytes: Bytes) -> Result<PutOutcome> {
    store.put_if_absent(request(), &name(to), placement(), bytes).await
}

async fn read(store: &LocalObjectStore, from: &str) -> Result<Bytes> {
    store.read(request(), &name(from), 0..u64::MAX).await
}

async fn listed(store: &LocalObjectStore, prefix: &str) -> Result<Vec<String>> {
    let page = store.list(request(), prefix, None, 1000).await?;
    Ok(page.objects.iter().map(|info| info.name.to_string()).collect())
}
