//! Ranged reads, of one range or several.
//!
//! Where the blocks of a table lie is remembered ([`crate::backend::handles`]), so that a miss asks
//! a DataNode and nobody else. What was remembered may be out of date, since blocks move: a read
//! that fails asks the NameNode once more. Everything else is looked up for each read: who asks for
//! a record of the manifest asks what the name holds now.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hdfs_native::file::FileReader;
use tombolo_env::{BoxFuture, all};

use super::client::Connected;
use super::failure::Failure;
use super::{HdfsObjectStore, PIECE_BYTES};
use crate::backend::remote::Effect;
use crate::spans::{cut, plan};
use crate::{ObjectName, Purpose, Request, Result};

/// Gaps that are read along rather than asked for around.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Requests of one call on their way at once.
const SPANS_IN_FLIGHT_MAX: usize = 16;

/// An object whose blocks are known. Neither they nor its length ever change; where they lie may.
pub(super) struct Located {
    reader: FileReader,
    connected: Arc<Connected>,
}

impl fmt::Debug for Located {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Located").field("length", &self.reader.file_length()).finish_non_exhaustive()
    }
}

/// How many times the usual limit a read of so many bytes may take.
fn times(length: usize) -> u32 {
    u32::try_from(length / PIECE_BYTES).unwrap_or(u32::MAX - 1) + 1
}

impl HdfsObjectStore {
    async fn locate(&self, name: &ObjectName) -> std::result::Result<Arc<Located>, Failure> {
        let connected = self.cluster().connected();
        let path = self.place().path(name.as_str());
        match self.cluster().wait(&connected, 1, connected.client.read(&path)).await {
            Ok(reader) => Ok(Arc::new(Located { reader, connected })),
            Err(failure) if failure.is_no_file => Err(Failure::absent()),
            Err(failure) => Err(failure),
        }
    }

    /// Reads on the runtime. With `kept` where the blocks lie is remembered, and asked for again
    /// when that is out of date.
    pub(super) async fn read_now(
        &self,
        name: &ObjectName,
        range: Range<u64>,
        kept: Option<Request>,
    ) -> std::result::Result<Bytes, Failure> {
        let keeps = kept.is_some_and(|request| {
            matches!(request.purpose, Purpose::Get | Purpose::Scan | Purpose::Compaction)
        });
        let remembered = if keeps { self.shared.located.get(name) } else { None };
        if let Some(located) = &remembered {
            match self.fetch(located, &range).await {
                Ok(bytes) => return Ok(bytes),
                Err(_) => self.shared.located.forget(name),
            }
        }
        let located = self.locate(name).await?;
        let bytes = self.fetch(&located, &range).await?;
        if keeps {
            self.shared.located.insert(name, located);
        }
        Ok(bytes)
    }

    async fn fetch(&self, located: &Located, range: &Range<u64>) -> std::result::Result<Bytes, Failure> {
        let length = located.reader.file_length();
        let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(length);
        let (start, end) = (at(range.start), at(range.end));
        if start >= end {
            return Ok(Bytes::new());
        }
        let read = located.reader.read_range(start, end - start);
        let bytes = self.cluster().wait(&located.connected, times(end - start), read).await?;
        if bytes.len() == end - start { Ok(bytes) } else { Err(Failure::short(end - start, bytes.len())) }
    }

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
        let (store, name) = (self.clone(), name.clone());
        let work = async move {
            let read = store.read_now(&name, range, Some(request)).await;
            read.map_err(|failure| failure.error(DOING, &store.place().shown(name.as_str())))
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
