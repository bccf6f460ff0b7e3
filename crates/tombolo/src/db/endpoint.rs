//! An HTTP endpoint that Prometheus reads: `GET /metrics`, and nothing else.
//!
//! Bounded: so many connections at once, so many bytes of a request, so long for each. One request
//! a connection. Who may connect reads all that the database says of itself, so that it belongs on
//! the loopback address, or behind something that asks who is there.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tombolo_env::{BoxFuture, Connection, Env, Listener, Task, TaskClass, within};
use tombolo_storage::{Error, Result};

use crate::db::Db;
use crate::op::Op;

/// Connections at once; those beyond wait for the listener.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a connection may take in all.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// How long it waits for a place, or after a failure to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// What answers a request.
type Source = dyn Fn() -> BoxFuture<'static, Result<String>> + Send + Sync;

/// Serves metrics as long as it lives.
pub struct MetricsServer {
    address: String,
    _accepting: Task,
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Serves at `address`, `host:port`, the text that `source` gives for each request; port 0
    /// picks a free one. Without a database: `tombolo metrics` asks a writer.
    ///
    /// # Errors
    /// Those of the operating system: the address is in use, or not of this host.
    pub fn start<F>(
        env: &Env,
        address: &str,
        source: impl Fn() -> F + Send + Sync + 'static,
    ) -> Op<MetricsServer>
    where
        F: Future<Output = Result<String>> + Send + 'static,
    {
        let (world, address) = (env.clone(), address.to_owned());
        let source: Arc<Source> = Arc::new(move || Box::pin(source()));
        Op::start(env, TaskClass::Foreground, "start of the metrics endpoint", async move {
            let failed = |error| Error::io(error, "listening for Prometheus", &address);
            let listener = world.network().listen(&address).await.map_err(failed)?;
            let at = listener.local_address().map_err(failed)?;
            let accepting = world.clone().spawn(
                TaskClass::Foreground,
                "metrics endpoint",
                accept(world.clone(), listener, source),
            );
            Ok(MetricsServer { address: at, _accepting: accepting })
        })
    }

    /// Where it listens, with its port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Db {
    /// Serves [`Db::metrics_text`] over HTTP at `address`, such as `127.0.0.1:9464`, under
    /// `/metrics`, as long as what this gives lives. Who can connect reads it: an address that is
    /// not the loopback's needs something before it that asks who is there. `database` names it.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db) -> tombolo::Result<()> {
    /// let server = db.serve_metrics("127.0.0.1:9464", "orders").wait()?;
    /// println!("http://{}/metrics", server.address());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MetricsServer::start`].
    pub fn serve_metrics(&self, address: &str, database: &str) -> Op<MetricsServer> {
        let handle = Arc::downgrade(&self.handle);
        let (limit, database) = (self.limit, database.to_owned());
        // The endpoint keeps no database open.
        let source = move || {
            let text = match handle.upgrade() {
                Some(handle) => Ok(Db { handle, limit }.metrics_text(&database)),
                None => Err(Error::new(tombolo_storage::ErrorKind::Closed, "the database was closed")),
            };
            std::future::ready(text)
        };
        MetricsServer::start(&self.engine().env, address, source)
    }
}

async fn accept(env: Env, mut listener: Box<dyn Listener>, source: Arc<Source>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            env.sleep(PAUSE).await;
            continue;
        }
        let Ok(mut connection) = listener.accept().await else {
            env.sleep(PAUSE).await;
            continue;
        };
        let place = Place(Arc::clone(&open));
        open.fetch_add(1, Ordering::Relaxed);
        let (world, source) = (env.clone(), Arc::clone(&source));
        let serving = async move {
            let _place = place;
            match within(&world, CONNECTION_TIME_MAX, serve(connection.as_mut(), &*source)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(%error, "a request for metrics was cut off"),
                None => tracing::debug!("a request for metrics took too long"),
            }
        };
        env.spawn(TaskClass::Foreground, "metrics", serving).detach();
    }
}

/// One of the connections, counted until it ends, however it does.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(connection: &mut dyn Connection, source: &Source) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = connection.read(&mut buffer).await?;
        head.extend_from_slice(&buffer[..read]);
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return answer(connection, "400 Bad Request", "text/plain", "this is no request\n", true).await;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    match (verb, path) {
        ("GET" | "HEAD", "/metrics") => match source().await {
            Ok(text) => answer(connection, "200 OK", "text/plain; version=0.0.4", &text, verb == "GET").await,
            Err(error) => {
                let said = format!("{error}\n");
                answer(connection, "503 Service Unavailable", plain, &said, verb == "GET").await
            }
        },
        ("GET" | "HEAD", _) => {
            answer(connection, "404 Not Found", plain, "metrics are at /metrics\n", verb == "GET").await
        }
        _ => answer(connection, "405 Method Not Allowed", plain, "GET /metrics\n", true).await,
    }
}

async fn answer(
    connection: &mut dyn Connection,
    status: &str,
    kind: &str,
    body: &str,
    with_body: bool,
) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await?;
    if with_body { connection.write_all(body.as_bytes()).await } else { Ok(()) }
}

#[cfg(test)]
mod tests;
