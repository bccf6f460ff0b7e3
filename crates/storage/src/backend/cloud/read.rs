//! Ranged reads, of one range or several; neighbours share a request.

use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};
use tombolo_env::{BoxFuture, all};

use super::failure::Failure;
use super::{Client, CloudObjectStore, Effect, wire};
use crate::{ObjectName, Request, Result};

/// Gaps that are read along rather than asked for around: what a round trip's time carries.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Bytes of one request that is put together from several ranges.
const SPAN_BYTES_MAX: u64 = 8 << 20;

/// Requests of one call on their way at once.
const SPANS_IN_FLIGHT_MAX: usize = 16;

/// No object ends here. Some servers take an end beyond 63 bits for no range at all.
const END_MAX: u64 = 1 << 50;

/// A request, and the ranges that it serves.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    range: Range<u64>,
    /// Indexes of the ranges.
    serves: Vec<usize>,
}

/// Which requests read `ranges`: near ones together, in order of offset.
fn plan(ranges: &[Range<u64>]) -> Vec<Span> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|index| ranges[*index].start < ranges[*index].end).collect();
    order.sort_unstable_by_key(|index| ranges[*index].start);
    let mut spans: Vec<Span> = Vec::new();
    for index in order {
        let range = ranges[index].clone();
        match spans.last_mut() {
            Some(last)
                if range.start <= last.range.end.saturating_add(GAP_BYTES_MAX)
                    && range.end.max(last.range.end) - last.range.start <= SPAN_BYTES_MAX =>
            {
                last.range.end = last.range.end.max(range.end);
                last.serves.push(index);
            }
            _ => spans.push(Span { range, serves: vec![index] }),
        }
    }
    spans
}

/// What of `bytes`, which begin at `start` of the object, lies in `range`.
fn cut(bytes: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let at = |position: u64| usize::try_from(position.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(at(range.start)..at(range.end).max(at(range.start)))
}

/// The bytes of an object, or of a range of it: all that the answer promised.
async fn get(client: &dyn Client, key: &Path, range: Option<GetRange>) -> object_store::Result<Bytes> {
    client.get_opts(key, GetOptions { range, ..GetOptions::default() }).await?.bytes().await
}

/// Reads a range whose answer the client could not use, from servers that are careless of ranges: one answers a range behind the end with success, one
/// a range that holds all as if there were none (200 instead of 206). `None`: it was something else.
async fn read_around(client: &dyn Client, key: &Path, range: &Range<u64>, status: u16) -> Option<std::result::Result<Bytes, Failure>> {
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
    pub(super) async fn read_range(&self, request: Request, name: &ObjectName, range: Range<u64>) -> Result<Bytes> {
        const DOING: &str = "reading an object";
        if range.start >= range.end {
            return self.head(request, name).await.map(|_| Bytes::new());
        }
        let (client, key, place) = (self.client(), self.key(name)?, self.bucket().place(name.as_str()));
        let wanted = match range.clone() {
            // All of it: some servers answer a range from the first byte on as if there were none, which the client does not take.
            Range { start: 0, end } if end > END_MAX => None,
            Range { start, end } if end > END_MAX => Some(GetRange::Offset(start)),
            range => Some(GetRange::Bounded(range)),
        };
        let work = async move {
            match wire::listen(get(&*client, &key, wanted)).await {
                Ok(bytes) => Ok(bytes),
                // The object is there and ends before the range begins. Some servers answer an empty object so, whatever the range.
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

    pub(super) async fn read_several(&self, request: Request, name: &ObjectName, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let spans = plan(ranges);
        if spans.is_empty() && !ranges.is_empty() {
            self.head(request, name).await?;
        }
        let reads =
            spans.iter().map(|span| -> BoxFuture<'_, Result<Bytes>> { Box::pin(self.read_range(request, name, span.range.clone())) });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ranges: &[Range<u64>]) -> Vec<(Range<u64>, Vec<usize>)> {
        plan(ranges).into_iter().map(|span| (span.range, span.serves)).collect()
    }

    #[test]
    fn neighbours_share_a_request_and_others_do_not() {
        let far = GAP_BYTES_MAX + 1;
        assert_eq!(spans(&[]), []);
        assert_eq!(spans(&[5..5, Range { start: 9, end: 3 }]), []);
        assert_eq!(spans(&[100..200, 0..50, 150..300]), [(0..300, vec![1, 0, 2])]);
        assert_eq!(spans(&[0..10, 10 + far..20 + far]), [(0..10, vec![0]), (10 + far..20 + far, vec![1])]);
        assert_eq!(spans(&[0..10, 10 + GAP_BYTES_MAX..20 + GAP_BYTES_MAX]).len(), 1);
        let half = SPAN_BYTES_MAX / 2;
        assert_eq!(spans(&[0..half, half..2 * half, 2 * half..2 * half + 1]).len(), 2);
        assert_eq!(spans(&[0..u64::MAX, 7..9]).len(), 2, "a range without an end stands alone");
    }

    #[test]
    fn pieces_are_cut_at_the_objects_end() {
        let bytes = Bytes::from_static(b"0123456789");
        assert_eq!(cut(&bytes, 100, &(102..104)), "23");
        assert_eq!(cut(&bytes, 100, &(108..200)), "89");
        assert_eq!(cut(&bytes, 100, &(150..200)), "");
    }
}
