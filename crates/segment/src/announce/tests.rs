//! Nodes are found while they live.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tombolo_env::simulated::World;
use tombolo_env::{Instant, TaskClass};

use super::*;
use crate::message::{NodeIncarnation, NodeMedium};
use crate::region::Regions;

fn status() -> NodeStatus {
    Regions::new(NodeIncarnation(7), 1 << 20).status(NodeMedium::Memory, "rack 1")
}

#[test]
fn an_announcement_comes_back_and_a_changed_bit_is_noticed() {
    let announcement = Announcement { address: "host:7420".into(), period: PERIOD, status: status() };
    let bytes = announcement.encode().expect("short");
    assert_eq!(Announcement::decode(&bytes), Ok(announcement));
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1 << (at % 8);
        assert!(Announcement::decode(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn who_looks_finds_the_nodes_that_live() {
    let world = World::new(1);
    let env = world.process("all").env();
    let uri = Uri::parse("mem://registry").expect("a URI");
    let store = Stores::with_defaults().open_object_store(&env, &uri).expect("memory");
    let place = || Place::Store(Arc::clone(&store));
    let addresses = |nodes: Vec<Announcement>| {
        nodes.into_iter().map(|node| node.address).collect::<std::collections::BTreeSet<_>>()
    };
    world.run_until(async {
        let announcer = |address: &str| Announcer::new(&env, place(), "near", address).expect("a name");
        let mut nodes = [announcer("a:1"), announcer("b:1"), announcer("c:1")];
        let mut registry = Registry::new(&env, place(), "near").expect("a name");
        for node in &mut nodes {
            node.announce(status()).await.expect("memory");
        }
        let [mut one, other, ending] = nodes;
        assert_eq!(
            addresses(registry.look().await.expect("memory")),
            ["a:1", "b:1", "c:1"].map(str::to_owned).into()
        );
        ending.withdraw().await.expect("memory");
        for _ in 0..6 {
            env.sleep(PERIOD).await;
            one.announce(status()).await.expect("memory");
        }
        // One node lives, one is silent, one has gone.
        registry.look().await.expect("memory");
        env.sleep(PERIOD * 2).await;
        one.announce(status()).await.expect("memory");
        assert_eq!(addresses(registry.look().await.expect("memory")), ["a:1".to_owned()].into());
        let left = store.list(objects::request(), "nodes/near/", None, 100).await.expect("memory");
        assert_eq!(left.objects.len(), 1, "{left:?}");
        drop(other);
        let mut stranger = Registry::new(&env, place(), "far").expect("a name");
        assert!(stranger.look().await.expect("memory").is_empty());
    });
    assert!(Registry::new(&env, place(), "a/../b").is_err());
}

/// What of etcd a registry needs, in a few lines: entries, and leases by the clock of this world.
#[derive(Debug, Default)]
struct FakeEtcd {
    entries: BTreeMap<String, (String, u64)>,
    leases: BTreeMap<u64, Instant>,
    granted: u64,
}

impl FakeEtcd {
    const TTL: Duration = Duration::from_secs(15);

    fn answer(&mut self, now: Instant, path: &str, request: &Value) -> (u16, Value) {
        self.leases.retain(|_, end| *end > now);
        self.entries.retain(|_, (_, lease)| self.leases.contains_key(lease));
        let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
        let lease = |name: &str| text(name).parse::<u64>().unwrap_or(0);
        match path {
            "/v3/lease/grant" => {
                self.granted += 1;
                self.leases.insert(self.granted, now + FakeEtcd::TTL);
                (200, json!({"ID": self.granted.to_string(), "TTL": "15"}))
            }
            "/v3/lease/keepalive" => match self.leases.get_mut(&lease("ID")) {
                Some(end) => {
                    *end = now + FakeEtcd::TTL;
                    (200, json!({"result": {"ID": text("ID"), "TTL": "15"}}))
                }
                // As etcd says it: zeros are left out.
                None => (200, json!({"result": {"ID": text("ID")}})),
            },
            "/v3/lease/revoke" => {
                self.leases.remove(&lease("ID"));
                (200, json!({}))
            }
            "/v3/kv/put" if !self.leases.contains_key(&lease("lease")) => {
                (404, json!({"message": "etcdserver: requested lease not found", "code": 5}))
            }
            "/v3/kv/put" => {
                self.entries.insert(text("key"), (text("value"), lease("lease")));
                (200, json!({}))
            }
            "/v3/kv/range" => {
                let entries: Vec<Value> = self
                    .entries
                    .iter()
                    .map(|(key, (value, _))| json!({"key": key, "value": value}))
                    .collect();
                (200, json!({"kvs": entries}))
            }
            other => (404, json!({"message": format!("no {other}")})),
        }
    }

    async fn serve(env: Env, address: &'static str) {
        let mut etcd = FakeEtcd::default();
        let mut listener = env.network().listen(address).await.expect("a free port");
        loop {
            let Ok(mut connection) = listener.accept().await else { continue };
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            let (path, body) = loop {
                let count = connection.read(&mut buffer).await.unwrap_or(0);
                request.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                if head.contains(&format!("Content-Length: {}\r\n", body.len()))
                    || head.ends_with(&format!("Content-Length: {}", body.len()))
                {
                    break (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned());
                }
            };
            let (status, said) = etcd.answer(env.now(), &path, &serde_json::from_str(&body).expect("JSON"));
            let said = said.to_string();
            let answer = format!("HTTP/1.0 {status} x\r\nContent-Length: {}\r\n\r\n{said}", said.len());
            connection.write_all(answer.as_bytes()).await.expect("it reads");
        }
    }
}

#[test]
fn a_node_that_died_vanishes_from_etcd_with_its_lease() {
    let world = World::new(2);
    let server = world.add_host("etcd").process("etcd");
    server.spawn(TaskClass::Foreground, "etcd", FakeEtcd::serve(server.env(), "etcd:2379")).detach();
    let env = world.add_host("all").process("all").env();
    let stores = Stores::with_defaults();
    // The first member is not there.
    let place = || Place::open(&env, &stores, "etcd://gone:2379,etcd:2379").expect("an etcd");
    world.run_until(async {
        let announcer = |address: &str| Announcer::new(&env, place(), "near", address).expect("a name");
        let [mut one, mut other, mut ending] = [announcer("a:1"), announcer("b:1"), announcer("c:1")];
        let mut registry = Registry::new(&env, place(), "near").expect("a name");
        for node in [&mut one, &mut other, &mut ending] {
            node.announce(status()).await.expect("etcd answers");
        }
        let addresses = |nodes: Vec<Announcement>| {
            nodes.into_iter().map(|node| node.address).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(
            addresses(registry.look().await.expect("etcd answers")),
            ["a:1", "b:1", "c:1"].map(str::to_owned).into()
        );
        ending.withdraw().await.expect("etcd answers");
        for _ in 0..4 {
            env.sleep(one.period()).await;
            one.announce(status()).await.expect("etcd answers");
        }
        assert_eq!(addresses(registry.look().await.expect("etcd answers")), ["a:1".to_owned()].into());
        // Its lease has ended meanwhile: it takes another.
        env.sleep(FakeEtcd::TTL * 2).await;
        assert!(registry.look().await.expect("etcd answers").is_empty());
        one.announce(status()).await.expect("etcd answers");
        assert_eq!(addresses(registry.look().await.expect("etcd answers")).len(), 1);
    });
    let other = world.add_host("web").process("web");
    let web = other.env();
    let serve = async move {
        let mut listener = web.network().listen("web:80").await.expect("a free port");
        while let Ok(mut connection) = listener.accept().await {
            let _asked = connection.read(&mut [0; 4096]).await;
            connection
                .write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
                .await
                .expect("it reads");
        }
    };
    other.spawn(TaskClass::Foreground, "web", serve).detach();
    // A wrong member does not keep a right one from being asked.
    let mixed = Place::open(&env, &stores, "etcd://web:80,etcd:2379").expect("addresses");
    let mut registry = Registry::new(&env, mixed, "near").expect("a name");
    assert_eq!(world.run_until(registry.look()).expect("etcd answers").len(), 1);
    let wrong = Place::open(&env, &stores, "etcd://web:80").expect("an address");
    let error = world
        .run_until(async { Registry::new(&env, wrong, "near").expect("a name").look().await })
        .expect_err("no etcd");
    assert!(error.to_string().contains("is no etcd"), "{error}");
    server.kill();
    let error = world
        .run_until(async { Registry::new(&env, place(), "near").expect("a name").look().await })
        .expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Retry);
}
