//! Conformance of `Network`, and the faults of the simulated one.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_env::{Connection, Env, TaskClass, completion};

use crate::worlds::each_world;

/// Listens at `address` and sends back whatever comes until the end of each stream.
async fn echo(env: Env, address: &str, ready: tombolo_env::Completer<String>) {
    let mut listener = env.network().listen(address).await.unwrap();
    ready.complete(listener.local_address().unwrap());
    while let Ok(mut connection) = listener.accept().await {
        env.spawn(TaskClass::Foreground, "echo", async move {
            let mut buffer = [0; 700];
            while let Ok(count) = connection.read(&mut buffer).await {
                if count == 0 || connection.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
}

async fn read_all(connection: &mut dyn Connection, length: usize) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    let mut buffer = [0; 500];
    while read.len() < length {
        match connection.read(&mut buffer).await? {
            0 => break,
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(read)
}

#[test]
fn streams_carry_bytes_in_order() {
    each_world(|env, _| {
        let (ready, address) = completion();
        let server = env.clone();
        env.spawn(TaskClass::Foreground, "server", async move { echo(server, "localhost:0", ready).await })
            .detach();
        env.block_on(async {
            let address = address.await.unwrap();
            let sent: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
            let connection = env.network().connect(&address).await.unwrap();
            let (mut reader, mut writer) = connection.split();
            let bytes = sent.clone();
            let writing = env.spawn(TaskClass::Foreground, "write", async move {
                for piece in bytes.chunks(30_000) {
                    writer.write_all(piece).await.unwrap();
                }
            });
            let mut received = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let count = reader.read(&mut buffer).await.unwrap();
                if count == 0 {
                    break;
                }
                received.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(writing.await, Some(()));
            assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        });
    });
}

#[test]
fn nobody_listens() {
    each_world(|env, _| {
        env.block_on(async {
            let listener = env.network().listen("localhost:0").await.unwrap();
            let address = listener.local_address().unwrap();
            assert_eq!(env.network().listen(&address).await.unwrap_err().kind(), ErrorKind::AddrInUse);
            drop(listener);
            assert_eq!(
                env.network().connect(&address).await.unwrap_err().kind(),
                ErrorKind::ConnectionRefused
            );
            assert!(env.network().connect("no port").await.is_err());
        });
    });
}

struct Pair {
    world: World,
    server: tombolo_env::simulated::Process,
    client: tombolo_env::simulated::Process,
}

/// A server on host 1 that echoes at port 7000, and a client on host 2.
fn pair(seed: u64) -> Pair {
    let world = World::new(seed);
    let server = world.add_host("server").process("server");
    let client = world.add_host("client").process("client");
    let (ready, address) = completion();
    let env = server.env();
    server.spawn(TaskClass::Foreground, "server", async move { echo(env, ":7000", ready).await }).detach();
    assert_eq!(world.run_until(address).as_deref(), Some("server:7000"));
    Pair { world, server, client }
}

async fn ask(env: Env) -> std::io::Result<Vec<u8>> {
    let mut connection = env.network().connect("server:7000").await?;
    connection.write_all(b"ping").await?;
    read_all(&mut *connection, 4).await
}

#[test]
fn a_partition_delays_and_heals() {
    for seed in 0..20 {
        let Pair { world, server, client } = pair(seed);
        let env = client.env();
        assert_eq!(client.run(ask(env.clone())).unwrap().unwrap(), b"ping");
        world.partition(&server.host(), &client.host());
        let before = world.now();
        assert_eq!(client.run(ask(env.clone())).unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(world.now().since(before) >= Duration::from_secs(20));
        // Cut in the middle of a conversation: the answer comes after the cut is healed.
        world.heal(&server.host(), &client.host());
        let mut connection = world.run_until(env.network().connect("server:7000")).unwrap();
        world.partition_one_way(&server.host(), &client.host());
        world.run_until(connection.write_all(b"late")).unwrap();
        let mut buffer = [0; 4];
        assert!(world.run_until_timeout(connection.read(&mut buffer), Duration::from_secs(60)).is_none());
        world.heal(&server.host(), &client.host());
        assert_eq!(world.run_until(read_all(&mut *connection, 4)).unwrap(), b"late");
    }
}

#[test]
fn the_end_of_a_process_ends_its_connections() {
    let mut outcomes = [0; 2];
    for seed in 0..40 {
        let Pair { world, server, client } = pair(seed);
        let env = client.env();
        let mut connection = world.run_until(env.network().connect("server:7000")).unwrap();
        world.run_for(Duration::from_millis(10));
        server.kill();
        let mut buffer = [0; 4];
        match world.run_until(connection.read(&mut buffer)) {
            Ok(count) => {
                assert_eq!(count, 0);
                outcomes[0] += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                outcomes[1] += 1;
            }
        }
        world.run_for(Duration::from_millis(10));
        assert!(world.run_until(connection.write_all(b"anybody?")).is_err());
        assert_eq!(client.run(ask(env)).unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    assert!(outcomes[0] > 5 && outcomes[1] > 5, "{outcomes:?}");
}

#[test]
fn a_host_without_power_is_silent() {
    let Pair { world, server, client } = pair(5);
    let mut connection = world.run_until(client.network().connect("server:7000")).unwrap();
    world.run_for(Duration::from_millis(10));
    server.host().power_loss();
    let mut buffer = [0; 4];
    assert!(world.run_until_timeout(connection.read(&mut buffer), Duration::from_secs(600)).is_none());
    world.run_until(connection.write_all(b"anybody?")).unwrap();
    assert_eq!(world.run_until(connection.read(&mut buffer)).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn connections_can_be_reset() {
    let Pair { world, server, client } = pair(6);
    let mut connection = world.run_until(client.network().connect("server:7000")).unwrap();
    world.reset_connections(&server.host(), &client.host());
    let mut buffer = [0; 4];
    assert_eq!(world.run_until(connection.read(&mut buffer)).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(world.run_until(connection.write_all(b"x")).is_err());
    assert_eq!(client.run(ask(client.env())).unwrap().unwrap(), b"ping");
}

#[test]
fn a_full_pipe_makes_the_writer_wait() {
    let world = World::new(7);
    let (server, client) = (world.process("server"), world.process("client"));
    let mut listener = world.run_until(server.network().listen(":7000")).unwrap();
    let mut writing = world.run_until(client.network().connect("host-0:7000")).unwrap();
    let mut reading = world.run_until(listener.accept()).unwrap();
    let bytes: Arc<Vec<u8>> = Arc::new((0..3u32 << 18).flat_map(u32::to_le_bytes).collect());
    let sent = Arc::clone(&bytes);
    let task = client.spawn(TaskClass::Foreground, "write", async move {
        writing.write_all(&sent).await.unwrap();
    });
    world.run_for(Duration::from_secs(10));
    assert!(!task.is_finished(), "three megabytes are under way");
    let read = world.run_until(read_all(&mut *reading, bytes.len())).unwrap();
    assert!(read == *bytes);
    assert_eq!(world.run_until(task), Some(()));
}

#[test]
fn the_network_is_deterministic() {
    let history = |seed| {
        let Pair { world, client, .. } = pair(seed);
        for _ in 0..5 {
            client.run(ask(client.env())).unwrap().unwrap();
        }
        (world.digest(), world.now())
    };
    for seed in 0..10 {
        assert_eq!(history(seed), history(seed));
    }
    assert_ne!(history(1), history(2));
}
