//! Ranged reads, of one range or several; neighbours share a request.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};
use tombolo_env::{BoxFuture, all};

use super::failure::Failure;
use super::{Client, CloudObjectStore, wire};
use crate::backend::remote::Effect;
use crate::spans::{cut, plan};
use crate::{ObjectName, Request, Result};

/// Gaps that are read along rather than asked for around: what a round trip's time carries.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Requests of one call on their way at once.
const SPANS_IN_FLIGHT_MAX: usize = 16;

/// No object ends here. Some servers take an end beyond 63 bits for no range at all.
const END_MAX: u64 = 1 << 50;

/// The bytes of an object, or of a range of it: all that the answer promised.
async fn get(client: &dyn Client, key: &Path, range: Option<GetRange>) -> object_store::Result<Bytes> {
    client.get_opts(key, GetOptions { range, ..GetOptions::default() }).await?.bytes().await
}

/// Reads a range whose answer the client could not use, from servers that are careless of ranges:
/// one answers a range behind the end with success, one a range that holds all as if there were
/// none (200 instead of 206). `None`: it was something else.
async fn read_around(
    client: &dyn Client,
    key: &Path,
    range: &Range<u64>,
    status: u16,
) -> Option<std::result::Result<Bytes, Failure>> {
    let meta = wire::listen(client.head(key)).await.ok()?;
    if range.start >= meta.size {
        return Some(Ok(Bytes::new()));
    }
    if status != 200 {
        return None;
    }
    Some(wire::listen(get(client, key, None)).await.map(|whole| cut(&whole, 0, range)))
}

impl CloudObjectStore {
    pub(super) async fn read_range(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
    ) -> Result<Bytes> {
        const DOING: &str = "reading an object";
        if range.start >= range.end {
            return self.head(request, name).await.map(|_| Bytes::new());
        }
        let (client, key, place) = (self.client(), self.key(name)?, self.bucket().place(name.as_str()));
        let wanted = match range.clone() {
            // All of it: some servers answer a range from the first byte on as if there were none,
            // which the client does not take.
            Range { start: 0, end } if end > END_MAX => None,
            Range { start, end } if end > END_MAX => Some(GetRange::Offset(start)),
            range => Some(GetRange::Bounded(range)),
        };
        let work = async move {
            match wire::listen(get(&*client, &key, wanted)).await {
                Ok(bytes) => Ok(bytes),
                // The object is there and ends before the range begins. Some servers answer an
                // empty object so, whatever the range.
                Err(Failure { status: Some(416), .. }) => Ok(Bytes::new()),
                Err(failure) => match failure.success {
                    Some(status) => read_around(&*client, &key, &range, status).await.unwrap_or(Err(failure)),
                    None => Err(failure),
                }
                .map_err(|failure| failure.error(DOING, &place)),
            }
        };
        self.run(request, DOING, Effect::Nothing, work).await
    }

    pub(super) async fn read_several(
        &self,
        request: Request,
        name: &ObjectName,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let spans = plan(ranges, GAP_BYTES_MAX);
        if spans.is_empty() && !ranges.is_empty() {
            self.head(request, name).await?;
        }
        let reads = spans.iter().map(|span| -> BoxFuture<'_, Result<Bytes>> {
            Box::pin(self.read_range(request, name, span.range.clone()))
        });
        let read = all(reads.collect(), SPANS_IN_FLIGHT_MAX).await;
        let mut found = vec![Bytes::new(); ranges.len()];
        for (span, bytes) in spans.iter().zip(read) {
            let bytes = bytes?;
            for &index in &span.serves {
                found[index] = cut(&bytes, span.range.start, &ranges[index]);
            }
        }
        Ok(found)
    }
}
