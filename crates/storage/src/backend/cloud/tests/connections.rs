//! Connections that misbehave between a client and a server that does not: a proxy cuts, halves,
//! delays and freezes them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::Env;

use super::promises::{name, pattern, placement, request};
use super::server::Server;
use crate::backend::cloud::CloudObjectStore;
use crate::backend::cloud::writer::PART_BYTES;
use crate::object::read_whole;
use crate::{Error, ErrorKind, ObjectStore, PutOutcome, Uri};

/// What becomes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing.
    Pass,
    /// It ends as soon as something is sent.
    Cut,
    /// The way back ends at once, the way there stays open: requests arrive, and nothing answers.
    HalfClosed,
    /// The way back ends after so many bytes.
    AnswerCut(usize),
    /// So many bytes come back, and then nothing, although it stays open.
    AnswerFrozen(usize),
    /// The server's end is gone after so many bytes were sent.
    RequestCut(usize),
    /// Each piece waits, in both directions.
    Slow(Duration),
}

/// Between a client and a server. The next connections have the fates that were asked for; then all
/// pass.
struct Proxy {
    address: String,
    fates: Arc<Mutex<VecDeque<Fate>>>,
    is_ended: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: &Server) -> Proxy {
        let target = server.url().trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (fates, is_ended) = (Arc::<Mutex<VecDeque<Fate>>>::default(), Arc::<AtomicBool>::default());
        let (asked, ended) = (Arc::clone(&fates), Arc::clone(&is_ended));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let fate = asked.lock().pop_front().unwrap_or(Fate::Pass);
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(&target)) {
                    join(client, server, fate);
                }
            }
        });
        Proxy { address, fates, is_ended }
    }

    /// A store behind it, with connections of its own, that waits a second for an answer.
    fn store(&self, env: &Env) -> Arc<dyn ObjectStore> {
        let uri = format!("s3://bucket/db?endpoint=http://{}&anonymous=yes&timeout_seconds=1", self.address);
        Arc::new(CloudObjectStore::open(env, &Uri::parse(&uri).expect("a URI")).expect("a store"))
    }

    fn next(&self, fates: &[Fate]) {
        *self.fates.lock() = fates.iter().copied().collect();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _woken = TcpStream::connect(&self.address);
    }
}

/// Moves bytes both ways on threads of their own, as `fate` says. A thread ends with its
/// connection.
fn join(client: TcpStream, server: TcpStream, fate: Fate) {
    let ends = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
    std::thread::spawn(move || there(client, server, fate));
    std::thread::spawn(move || back(ends.1, ends.0, fate));
}

fn there(mut client: TcpStream, mut server: TcpStream, fate: Fate) {
    let (mut piece, mut sent) = ([0; 4096], 0);
    while let Ok(length @ 1..) = client.read(&mut piece) {
        match fate {
            Fate::Cut => break,
            Fate::RequestCut(most) if sent + length > most => break,
            Fate::Slow(pause) => std::thread::sleep(pause),
            _ => {}
        }
        sent += length;
        if server.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _closed = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn back(mut server: TcpStream, mut client: TcpStream, fate: Fate) {
    if fate == Fate::HalfClosed {
        let _half = client.shutdown(Shutdown::Write);
    }
    let (mut piece, mut come) = ([0; 4096], 0);
    while let Ok(length @ 1..) = server.read(&mut piece) {
        let most = match fate {
            Fate::HalfClosed => 0,
            Fate::AnswerCut(most) | Fate::AnswerFrozen(most) => most,
            _ => usize::MAX,
        };
        if let Fate::Slow(pause) = fate {
            std::thread::sleep(pause);
        }
        let passes = length.min(most - come.min(most));
        come += length;
        if client.write_all(&piece[..passes]).is_err() {
            break;
        }
        if come > most && matches!(fate, Fate::AnswerCut(_)) {
            let _closed = client.shutdown(Shutdown::Both);
            break;
        }
    }
    // Half closed and frozen ones stay as they are until the client gives up.
    if !matches!(fate, Fate::HalfClosed | Fate::AnswerFrozen(_)) {
        let _closed = client.shutdown(Shutdown::Both);
    }
}

const FATES: [Fate; 9] = [
    Fate::Cut,
    Fate::HalfClosed,
    Fate::AnswerCut(0),
    Fate::AnswerCut(20),
    Fate::AnswerCut(100),
    Fate::AnswerFrozen(0),
    Fate::AnswerFrozen(20),
    Fate::RequestCut(10),
    Fate::Slow(Duration::from_millis(20)),
];

/// A read ends as `Retry` that names the object, in the time that was said, and the next one is
/// answered.
#[test]
fn a_read_over_a_connection_that_misbehaves_ends_in_time_and_can_be_made_again() {
    let (env, server) = (Env::real(), Server::start());
    let proxy = Proxy::start(&server);
    server.plant("db/a", b"0123456789");
    for fate in FATES {
        let store = proxy.store(&env);
        proxy.next(&[fate]);
        let read = env.block_on(store.read(request(), &name("a"), 2..5));
        match (fate, read) {
            (Fate::Slow(_), read) => assert_eq!(read.expect("slow, not wrong"), "234"),
            (_, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Retry, "{fate:?}: {error}");
                assert!(
                    error.object_name().is_some_and(|object| object == "s3://bucket/db/a"),
                    "{fate:?}: {error}"
                );
                assert!(error.next_step().is_some_and(|step| step.contains("network")), "{fate:?}: {error}");
                assert!(
                    error.message().contains("in time") || error.message().contains("connection"),
                    "{fate:?}: {error}"
                );
            }
            (_, Ok(bytes)) => panic!("{fate:?} was answered: {bytes:?}"),
        }
        assert!(proxy.fates.lock().is_empty(), "the connection had its fate");
        assert_eq!(
            env.block_on(store.read(request(), &name("a"), 2..5)).expect("a new connection"),
            "234",
            "{fate:?}"
        );
        proxy.next(&[fate]);
        let listed = env.block_on(proxy.store(&env).list(request(), "", None, 9));
        match listed {
            Ok(listed) => assert!(matches!(fate, Fate::Slow(_)) && listed.objects.len() == 1, "{fate:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{fate:?}: {error}"),
        }
    }
}

/// A put finds out what became of it: it is there once, and whole, and this call's.
#[test]
fn a_put_over_a_connection_that_misbehaves_is_made_once() {
    let (env, server) = (Env::real(), Server::start());
    let proxy = Proxy::start(&server);
    for (number, fate) in FATES.into_iter().enumerate() {
        let (store, key) = (proxy.store(&env), format!("put-{number}"));
        proxy.next(&[fate, fate]);
        let bytes = Bytes::from(vec![7; 10_000]);
        let put = env.block_on(store.put_if_absent(request(), &name(&key), placement(), bytes.clone()));
        assert_eq!(put.unwrap_or_else(|error| panic!("{fate:?}: {error}")), PutOutcome::Created, "{fate:?}");
        assert_eq!(server.object(&format!("db/{key}")).as_deref(), Some(&bytes[..]), "{fate:?}");
        proxy.next(&[fate]);
        let again = env.block_on(proxy.store(&env).put_if_absent(request(), &name(&key), placement(), bytes));
        assert_eq!(again.unwrap_or_else(|error| panic!("{fate:?}: {error}")), PutOutcome::Exists, "{fate:?}");
    }
}

/// A table that goes up in parts arrives whole, or its end says that nobody knows.
#[test]
fn an_upload_over_connections_that_misbehave_is_whole() {
    let (env, server) = (Env::real(), Server::start());
    let proxy = Proxy::start(&server);
    let bytes = pattern(2 * PART_BYTES + 77);
    for (number, fate) in
        [Fate::Cut, Fate::HalfClosed, Fate::AnswerCut(20), Fate::RequestCut(1 << 20)].into_iter().enumerate()
    {
        let key = name(&format!("table-{number}"));
        let store = proxy.store(&env);
        env.block_on(async {
            let mut writer = store.create(request(), &key, placement()).await?;
            proxy.next(&[fate, fate, Fate::Pass, fate]);
            for piece in bytes.chunks(1_000_003) {
                writer.append(Bytes::copy_from_slice(piece)).await?;
            }
            writer.finish().await?;
            assert_eq!(read_whole(&*store, request(), &key, u64::MAX - 1).await?, bytes);
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|error| panic!("{fate:?}: {error}"));
    }
    assert_eq!(server.object("db/table-0").map(|found| found.len()), Some(bytes.len()));
}
