//! What an append to nodes costs, beside a bare round trip of the same size in the same run.
//!
//! `latency node ADDRESS` runs a node; `latency ADDRESS…` measures appends of 512 B to nodes,
//! acknowledged by a majority, one after another. Set `SECRET` for both to encrypt,
//! `SHARED=/dev/shm/…` for both to share memory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tombolo_env::{Completion, Env};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{encode_header, first_digest};
use tombolo_segment::message::{Answer, Body, RegionId, Request};
use tombolo_segment::node::{Node, NodeOptions};
use tombolo_segment::peer::Peer;
use tombolo_segment::shared::SharedPeer;
use tombolo_segment::tcp::TcpPeer;
use tombolo_segment::wire::credentials::Credentials;
use tombolo_segment::wire::secret::Secret;
use tombolo_storage::{Epoch, Result};

const APPENDS: usize = 20_000;
const PAYLOAD: usize = 512;
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let secret = std::env::var("SECRET")
        .ok()
        .map(|text| Secret::new(text.as_bytes()).expect("a secret of 16 bytes or more").into());
    match &arguments[..] {
        [node, address] if node == "node" => serve(address, secret),
        addresses if !addresses.is_empty() => measure(addresses, secret.as_ref()),
        _ => eprintln!("latency node ADDRESS | latency ADDRESS…"),
    }
}

fn serve(address: &str, secret: Option<Credentials>) {
    let env = Env::real();
    let options = NodeOptions {
        listen: address.to_owned(),
        bytes_max: 1 << 30,
        domain: String::new(),
        credentials: secret,
        connections_max: 16,
        disk: None,
        share: std::env::var_os("SHARED").map(|root| std::path::Path::new(&root).join(address)),
        rdma: None,
    };
    let _node = env.block_on(Node::start(&env, options)).expect("it starts");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn report(what: &str, mut nanos: Vec<u64>) {
    nanos.sort_unstable();
    let at = |thousandths: usize| Duration::from_nanos(nanos[(nanos.len() - 1) * thousandths / 1000]);
    println!("{what}: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}", at(500), at(990), at(999));
}

fn bare() -> Vec<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("TCP");
        let mut buffer = [0; PAYLOAD];
        while stream.read_exact(&mut buffer).is_ok() {
            stream.write_all(&buffer).expect("it reads");
        }
    });
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("TCP");
    let mut buffer = [7; PAYLOAD];
    let mut round = || {
        let began = Instant::now();
        stream.write_all(&buffer).expect("it reads");
        stream.read_exact(&mut buffer).expect("it writes");
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    (0..APPENDS).map(|_| round()).collect()
}

/// Waits until `count` of the answers are there.
async fn some_of(answers: &mut [Option<Completion<Result<Answer>>>], count: usize) {
    std::future::poll_fn(|context| {
        for slot in answers.iter_mut() {
            if let Some(answer) = slot
                && let Poll::Ready(said) = Pin::new(answer).poll(context)
            {
                assert!(matches!(said, Some(Ok(Answer::Held(_)))), "{said:?}");
                *slot = None;
            }
        }
        if answers.iter().filter(|slot| slot.is_none()).count() >= count {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn measure(addresses: &[String], secret: Option<&Credentials>) {
    report("bare round trip of 512 B", bare());
    let env = Env::real();
    let peers: Vec<Box<dyn Peer>> = addresses.iter().map(|address| peer(&env, address, secret)).collect();
    let lives: Vec<_> = peers
        .iter()
        .map(|peer| env.block_on(peer.status()).expect("answered").expect("a status").incarnation)
        .collect();
    let region = RegionId((u128::from(env.random_u64()) << 64) | u128::from(env.random_u64()));
    let send = |body: &Body| -> Vec<Option<Completion<Result<Answer>>>> {
        let request = |incarnation| Request { incarnation, region, epoch: Epoch(1), body: body.clone() };
        peers.iter().zip(&lives).map(|(peer, life)| Some(peer.call(request(*life)))).collect()
    };
    let all = peers.len();
    env.block_on(some_of(
        &mut send(&Body::Create { database: 1, segment: SEGMENT, bytes_max: 64 << 20 }),
        all,
    ));
    let (mut offset, mut predecessor) = (0, first_digest(1, &SEGMENT));
    let payload = [7; PAYLOAD];
    let mut nanos = Vec::new();
    for _ in 0..APPENDS {
        let began = Instant::now();
        let (header, digest) = encode_header(predecessor, offset, 0, &payload);
        let records = Bytes::from([&header[..], &payload].concat());
        let bytes = u32::try_from(records.len()).expect("short");
        let mut answers = send(&Body::Append { offset, predecessor, records });
        env.block_on(some_of(&mut answers, all / 2 + 1));
        nanos.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        // The minority comes along, so that it does not fall behind for ever.
        env.block_on(some_of(&mut answers, all));
        (offset, predecessor) = (offset + bytes, digest);
    }
    report(&format!("append of 512 B, {} of {all} nodes", all / 2 + 1), nanos);
    env.block_on(async {
        for peer in &peers {
            let _ = peer.status().await;
        }
    });
    let freed = peers.iter().zip(&lives).map(|(peer, life)| {
        peer.call(Request { incarnation: *life, region, epoch: Epoch(1), body: Body::Free })
    });
    for answer in freed.collect::<Vec<_>>() {
        env.block_on(answer);
    }
}

fn peer(env: &Env, address: &str, secret: Option<&Credentials>) -> Box<dyn Peer> {
    match std::env::var_os("SHARED") {
        Some(_) => Box::new(SharedPeer::new(env, address, secret.cloned())),
        None => Box::new(TcpPeer::new(env, address, secret.cloned())),
    }
}
