//! A store of SlateDB's that is as slow as one of Tombolo's with `?latency=`:
//! `request → latency drawn → waited for → the inner store`.
//!
//! The latencies are drawn by the same code, and waited for by the same timer, which wakes to the
//! microsecond where tokio's wakes to the millisecond. What takes none there takes none here: the
//! pieces of an upload, whose end does; requests that are not made at all, such as each page of a
//! list.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tombolo_env::Env;
use tombolo_storage::layer::throttle::Latency;

/// Bytes of an object that lie on one node, as in Tombolo's layer.
const CHUNK_BYTES: u64 = 64 << 10;

/// Wraps a store; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Slow {
    inner: Arc<dyn ObjectStore>,
    latency: Latency,
    env: Env,
}

impl Slow {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>, latency: Latency) -> Slow {
        Slow { inner, latency, env: Env::real() }
    }

    async fn wait(&self) {
        self.env.sleep(self.latency.draw(&self.env)).await;
    }

    /// What a read takes beyond a draw: its node, and the way of its bytes.
    fn beyond(&self, result: &GetResult, location: &Path) -> Duration {
        let mut hasher = DefaultHasher::new();
        (location.as_ref(), result.range.start / CHUNK_BYTES).hash(&mut hasher);
        let is_slow = self.latency.nodes > 0 && hasher.finish() % u64::from(self.latency.nodes) == 0;
        let node = if is_slow { self.latency.slow_node } else { Duration::ZERO };
        #[allow(clippy::cast_precision_loss, reason = "a time")]
        let way = match self.latency.bytes_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64((result.range.end - result.range.start) as f64 / rate as f64),
        };
        node + way
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, made slow", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.wait().await;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(SlowUpload { upload, store: self.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.wait().await;
        let result = self.inner.get_opts(location, options).await?;
        self.env.sleep(self.beyond(&result, location)).await;
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let slowly = locations.then(move |location| {
            let store = store.clone();
            async move {
                store.wait().await;
                location
            }
        });
        self.inner.delete_stream(slowly.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, listed) = (self.clone(), self.inner.list(prefix));
        let slowly = stream::once(async move {
            store.wait().await;
            listed
        });
        slowly.flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.wait().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.wait().await;
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload whose end takes a latency.
#[derive(Debug)]
struct SlowUpload {
    upload: Box<dyn MultipartUpload>,
    store: Slow,
}

#[async_trait]
impl MultipartUpload for SlowUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.wait().await;
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use slatedb::object_store::ObjectStoreExt;
    use slatedb::object_store::memory::InMemory;

    use super::*;

    #[test]
    fn each_request_waits_for_a_latency_and_a_whole_upload_for_one() {
        let latency = Latency::fixed(Duration::from_millis(5));
        let (env, slow) = (Env::real(), Slow::new(Arc::new(InMemory::new()), latency));
        let least =
            |requests: u32, begun: tombolo_env::Instant| assert!(env.now() >= begun + latency.p50 * requests);
        env.block_on(async {
            let (path, begun) = (Path::from("a/b"), env.now());
            slow.put(&path, PutPayload::from_static(b"bytes")).await.unwrap();
            least(1, begun);
            assert_eq!(slow.get(&path).await.unwrap().bytes().await.unwrap().as_ref(), b"bytes");
            least(2, begun);
            assert_eq!(slow.list(None).count().await, 1);
            least(3, begun);
            let mut upload = slow.put_multipart(&Path::from("c")).await.unwrap();
            upload.put_part(PutPayload::from_static(b"more")).await.unwrap();
            upload.complete().await.unwrap();
            least(4, begun);
            slow.delete(&path).await.unwrap();
            least(5, begun);
        });
    }
}
