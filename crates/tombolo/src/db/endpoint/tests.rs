use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_env::{Connection, Env};

use super::{CONNECTION_TIME_MAX, CONNECTIONS_MAX, MetricsServer};

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";
/// More than a connection holds of what nobody reads.
const TEXT_BYTES: usize = 4 << 20;

async fn server(env: &Env) -> MetricsServer {
    MetricsServer::start(env, "0.0.0.0:9464", || async { Ok("x".repeat(TEXT_BYTES)) }).await.unwrap()
}

async fn connected(env: &Env, said: &[u8]) -> Box<dyn Connection> {
    let mut connection = env.network().connect("host-0:9464").await.unwrap();
    connection.write_all(said).await.unwrap();
    connection
}

/// All that comes until the end, or until the connection breaks.
async fn answer(connection: &mut dyn Connection) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 64 << 10]);
    while let Ok(count @ 1..) = connection.read(&mut buffer).await {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

/// Takes all places with clients that have said `said` and go no further, then asks; says how long
/// the answer took, and what the first of them can still read.
fn behind_clients_that_stay(said: &'static [u8]) -> (Duration, usize) {
    let world = World::new(35);
    let (serving, client) = (world.process("writer"), world.add_host("elsewhere").process("prometheus"));
    let (serving, env) = (serving.env(), client.env());
    let asked = async {
        let _server = server(&serving).await;
        let mut staying = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            staying.push(connected(&env, said).await);
        }
        let began = env.now();
        let whole = answer(connected(&env, REQUEST).await.as_mut()).await;
        assert!(whole.starts_with(b"HTTP/1.1 200 OK\r\n") && whole.len() > TEXT_BYTES, "{}", whole.len());
        let took = env.now() - began;
        (took, answer(staying[0].as_mut()).await.len())
    };
    world.run_until_timeout(asked, CONNECTION_TIME_MAX * 10).expect("an answer")
}

#[test]
fn a_client_that_reads_nothing_is_cut_off_and_the_next_is_answered() {
    let (took, read) = behind_clients_that_stay(REQUEST);
    assert!(took > CONNECTION_TIME_MAX / 2, "all places were taken: {took:?}");
    assert!(took < CONNECTION_TIME_MAX * 2, "{took:?}");
    assert!(read < TEXT_BYTES, "{read} bytes came after the connection was given up");
}

#[test]
fn a_client_that_asks_nothing_is_cut_off_and_the_next_is_answered() {
    let (took, read) = behind_clients_that_stay(b"GET /metr");
    assert!(took > CONNECTION_TIME_MAX / 2, "all places were taken: {took:?}");
    assert!(took < CONNECTION_TIME_MAX * 2, "{took:?}");
    assert_eq!(read, 0, "nothing was asked");
}
