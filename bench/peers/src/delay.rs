//! A server that is far away: a proxy between an engine and the server, which makes each request
//! take as long as one to a store of the cloud does.
//!
//! `first bytes of a request → time drawn → its answer waits until then, and then comes at the rate of one connection`.
//! Both engines' requests pass through it, so that neither its latencies nor its cost are to
//! anyone's advantage. One request at a time on a connection, as HTTP/1.1 without pipelining has
//! it. All that passes is counted, and each program that connects to the counter gets the counts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tombolo_env::Env;
use tombolo_storage::layer::throttle::Latency;

const PIECE_BYTES: usize = 64 << 10;

/// What passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Requests begun.
    pub requests: u64,
    /// Bytes to the server, heads of requests included.
    pub sent: u64,
    /// Bytes from the server.
    pub received: u64,
}

impl Moved {
    /// Asks a proxy's counter.
    pub fn ask(counter: &str) -> Result<Moved, String> {
        let mut text = String::new();
        let answer = TcpStream::connect(counter).and_then(|mut stream| stream.read_to_string(&mut text));
        answer.map_err(|error| format!("asking the counter at {counter}: {error}"))?;
        let line: Value =
            serde_json::from_str(&text).map_err(|error| format!("the counter says {text:?}: {error}"))?;
        let number = |name: &str| line[name].as_u64().ok_or_else(|| format!("the counter says {text:?}"));
        Ok(Moved { requests: number("requests")?, sent: number("sent")?, received: number("received")? })
    }
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The request of a connection.
struct Exchange {
    /// Whether its answer has begun, or there was none yet: the next bytes of the client begin
    /// another.
    is_answered: bool,
    /// When the answer's next bytes may be passed on.
    due: Instant,
}

struct Proxy {
    latency: Latency,
    env: Env,
    counts: Counts,
}

/// Serves until the process ends; says on standard output where.
pub fn serve(server: &str, latency: &str) -> Result<(), String> {
    let latency = Latency::parse(latency).map_err(|error| error.to_string())?;
    let proxy = Arc::new(Proxy { latency, env: Env::real(), counts: Counts::default() });
    let failed = |error: std::io::Error| format!("listening: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let counter = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address =
        |listener: &TcpListener| listener.local_addr().map(|address| address.to_string()).map_err(failed);
    println!("{}", json!({"address": address(&listener)?, "counter": address(&counter)?}));
    let telling = Arc::clone(&proxy);
    std::thread::spawn(move || {
        for mut stream in counter.incoming().flatten() {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = &telling.counts;
            let line = json!({
                "requests": of(&counts.requests),
                "sent": of(&counts.sent),
                "received": of(&counts.received),
            });
            // Who asked may be gone.
            let _ = write!(stream, "{line}");
        }
    });
    for client in listener.incoming().flatten() {
        // A server that refuses shows as a connection that ends.
        if let Ok(upstream) = TcpStream::connect(server) {
            proxy.join(client, upstream).map_err(failed)?;
        }
    }
    Ok(())
}

impl Proxy {
    /// Two threads carry a connection, one each way.
    fn join(self: &Arc<Proxy>, client: TcpStream, server: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let exchange = Arc::new(Mutex::new(Exchange { is_answered: true, due: Instant::now() }));
        let (from_client, to_client) = (client.try_clone()?, client);
        let (from_server, to_server) = (server.try_clone()?, server);
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        let shared = Arc::clone(&exchange);
        std::thread::spawn(move || carry(from_client, to_server, |bytes| there.sent(&shared, bytes)));
        std::thread::spawn(move || carry(from_server, to_client, |bytes| back.received(&exchange, bytes)));
        Ok(())
    }

    /// Time that moving so many bytes takes.
    fn moving(&self, bytes: usize) -> Duration {
        match self.latency.bytes_per_second {
            0 => Duration::ZERO,
            #[allow(clippy::cast_precision_loss, reason = "a time")]
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        }
    }

    fn sent(&self, exchange: &Mutex<Exchange>, bytes: usize) {
        let mut exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if exchange.is_answered {
            exchange.is_answered = false;
            exchange.due = Instant::now() + self.latency.draw(&self.env);
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
        }
        exchange.due += self.moving(bytes);
        self.counts.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn received(&self, exchange: &Mutex<Exchange>, bytes: usize) {
        self.counts.received.fetch_add(bytes as u64, Ordering::Relaxed);
        let due = {
            let mut exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
            exchange.is_answered = true;
            exchange.due = exchange.due.max(Instant::now() - Duration::from_millis(1)) + self.moving(bytes);
            exchange.due
        };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Passes bytes on until either side ends.
fn carry(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(usize)) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(bytes) = from.read(&mut piece) {
        if bytes == 0 {
            break;
        }
        before(bytes);
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    // Both may have ended already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
