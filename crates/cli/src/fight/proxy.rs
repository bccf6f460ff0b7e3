//! Bad connections between a process and its store: a proxy that passes, cuts, freezes, refuses and
//! half closes them, as the weather says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng;
use tombolo_storage::Uri;

use crate::failure::{Failure, Result};

/// How connections fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// All pass.
    Calm,
    /// Of each hundred pieces that are sent some are not passed on.
    Rough,
    /// Nothing passes.
    Down,
}

/// What befalls a piece in rough weather, in thousandths.
const CUT_PERMILLE: u32 = 6;
const REFUSED_PERMILLE: u32 = 15;
const FROZEN_PERMILLE: u32 = 4;
const SILENT_PERMILLE: u32 = 3;
/// The longest that a frozen connection stands: longer than the clients' time limit for an answer.
const FREEZE_MS_MAX: u64 = 4_000;
/// What the server says when it does not want to, as S3 does.
const SLOW_DOWN: &[u8] = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const PIECE_BYTES: usize = 16 << 10;

/// The scheme whose host is where its server listens.
const HDFS: &str = "hdfs";

#[derive(Debug, Default)]
struct Shared {
    weather: AtomicU8,
    injected: AtomicU64,
    is_ended: AtomicBool,
}

impl Shared {
    fn weather(&self) -> Weather {
        match self.weather.load(Ordering::Relaxed) {
            0 => Weather::Calm,
            1 => Weather::Rough,
            _ => Weather::Down,
        }
    }

    fn count(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }
}

/// A proxy before one server. Ends when dropped; connections that it has joined end with their
/// clients.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free port, for a server at `target`.
    pub fn start(target: String, seed: u64) -> Result<Proxy> {
        let failed = |error| Failure::io(error, "starting a proxy");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                if serving.is_ended.load(Ordering::Relaxed) {
                    return;
                }
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(&target)) {
                    join(client, server, &serving, seed ^ number);
                }
            }
        });
        Ok(Proxy { address, shared })
    }

    /// The same store by way of the proxy, with a short time limit for each answer.
    pub fn uri(&self, uri: &Uri, endpoint: &Endpoint) -> Uri {
        let mut uri = uri.clone();
        match uri.scheme.as_str() {
            HDFS => uri.rest = format!("{}{}", self.address, endpoint.path),
            _ => drop(
                uri.parameters
                    .insert("endpoint".to_owned(), format!("http://{}{}", self.address, endpoint.path)),
            ),
        }
        uri.parameters.insert("timeout_seconds".to_owned(), "2".to_owned());
        uri
    }

    /// Changes the weather.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.store(weather as u8, Ordering::Relaxed);
    }

    /// Pieces and connections that did not pass.
    pub fn injected(&self) -> u64 {
        self.shared.injected.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection; without one it would wait until the process
        // ends, which harms nobody.
        let _ = TcpStream::connect(&self.address);
    }
}

/// Where a store's server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host and port.
    pub address: String,
    /// What follows them.
    pub path: String,
}

impl Endpoint {
    /// That of a URI with `endpoint=http://…`, or of the one NameNode of `hdfs://host:port`, whose
    /// DataNodes are asked directly; other stores cannot be reached by way of a proxy.
    pub fn of(uri: &Uri) -> Option<Endpoint> {
        let rest = match uri.scheme.as_str() {
            HDFS => Some(&*uri.rest)
                .filter(|rest| rest.split('/').next().is_some_and(|host| host.contains(':')))?,
            _ => uri.parameter("endpoint")?.strip_prefix("http://")?,
        };
        let (address, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        Some(Endpoint { address: address.to_owned(), path: path.trim_end_matches('/').to_owned() })
    }
}

/// Moves bytes both ways on threads of their own, which end with their connection.
fn join(client: TcpStream, server: TcpStream, shared: &Arc<Shared>, seed: u64) {
    let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
    for end in [&client, &server] {
        // A short message shall not wait for more: the servers would look slower than they are.
        let _ = end.set_nodelay(true);
    }
    let (there, back) = (Arc::clone(shared), Arc::clone(shared));
    std::thread::spawn(move || pump(client, to_server, &there, seed << 1, true));
    std::thread::spawn(move || pump(server, to_client, &back, seed << 1 | 1, false));
}

/// Passes what comes from one end to the other. `asks`: from the client, whose requests may be
/// refused before the server sees them.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, seed: u64, asks: bool) {
    let mut random = tombolo_workload::random(seed, 0);
    let mut piece = vec![0; PIECE_BYTES];
    let mut is_silent = false;
    // Nobody to tell when an end has gone: then both have.
    while let Ok(length @ 1..) = from.read(&mut piece) {
        match shared.weather() {
            Weather::Calm => {}
            Weather::Down => {
                shared.count();
                break;
            }
            Weather::Rough => {
                let chance = random.random_range(0..1000);
                let frozen = CUT_PERMILLE + FROZEN_PERMILLE;
                if chance < frozen + SILENT_PERMILLE {
                    shared.count();
                }
                if chance < CUT_PERMILLE {
                    break;
                } else if chance < frozen {
                    std::thread::sleep(Duration::from_millis(random.random_range(0..FREEZE_MS_MAX)));
                } else if chance < frozen + SILENT_PERMILLE {
                    // Swallowed, with all that follows: the one end waits for what the other
                    // believes to have sent. To pass on what follows would be a stream with a hole,
                    // which no network makes.
                    is_silent = true;
                } else if asks
                    && random.random_range(0..1000) < REFUSED_PERMILLE
                    && begins_request(&piece[..length])
                {
                    shared.count();
                    let _ = from.write_all(SLOW_DOWN);
                    break;
                }
            }
        }
        if !is_silent && to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn begins_request(piece: &[u8]) -> bool {
    ["GET /", "PUT /", "HEAD /", "POST /", "DELETE /"].iter().any(|verb| piece.starts_with(verb.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_by_the_proxy_is_the_same_store() {
        let direct = "az://bucket/fight?account=dev&endpoint=http%3A%2F%2F127.0.0.1%3A10000%2Fdev";
        let direct = Uri::parse(direct).unwrap();
        let endpoint = Endpoint::of(&direct).unwrap();
        assert_eq!(endpoint, Endpoint { address: "127.0.0.1:10000".to_owned(), path: "/dev".to_owned() });
        let proxy = Proxy { address: "127.0.0.1:9".to_owned(), shared: Arc::default() };
        let detour = proxy.uri(&direct, &endpoint);
        assert_eq!((&*detour.rest, detour.parameter("account")), ("bucket/fight", Some("dev")));
        assert_eq!(detour.parameter("endpoint"), Some("http://127.0.0.1:9/dev"));
        let hdfs = Uri::parse("hdfs://127.0.0.1:8020/data/db?user=u").unwrap();
        let endpoint = Endpoint::of(&hdfs).unwrap();
        assert_eq!(endpoint, Endpoint { address: "127.0.0.1:8020".to_owned(), path: "/data/db".to_owned() });
        let detour = proxy.uri(&hdfs, &endpoint);
        assert_eq!(
            (&*detour.rest, detour.parameter("user"), detour.parameter("endpoint")),
            ("127.0.0.1:9/data/db", Some("u"), None)
        );
        assert_eq!(Endpoint::of(&Uri::parse("hdfs://service/db").unwrap()), None);
        assert_eq!(Endpoint::of(&Uri::parse("s3://bucket/db").unwrap()), None);
        assert_eq!(Endpoint::of(&Uri::parse("s3://bucket/db?endpoint=https://s3.example").unwrap()), None);
    }
}
