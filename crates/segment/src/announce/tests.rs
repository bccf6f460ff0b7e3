//! Nodes are found while they live.

use tombolo_env::simulated::World;
use tombolo_storage::registry::{Registry as Stores, Uri};

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
    let addresses = |nodes: Vec<Announcement>| nodes.into_iter().map(|node| node.address).collect::<std::collections::BTreeSet<_>>();
    world.run_until(async {
        let announcer = |address: &str| Announcer::new(&env, Arc::clone(&store), "near", address).expect("a name");
        let mut nodes = [announcer("a:1"), announcer("b:1"), announcer("c:1")];
        let mut registry = Registry::new(&env, Arc::clone(&store), "near").expect("a name");
        for node in &mut nodes {
            node.announce(status()).await.expect("memory");
        }
        let [mut one, other, ending] = nodes;
        assert_eq!(addresses(registry.look().await.expect("memory")), ["a:1", "b:1", "c:1"].map(str::to_owned).into());
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
        let left = store.list(request(), "nodes/near/", None, 100).await.expect("memory");
        assert_eq!(left.objects.len(), 1, "{left:?}");
        drop(other);
        let mut stranger = Registry::new(&env, Arc::clone(&store), "far").expect("a name");
        assert!(stranger.look().await.expect("memory").is_empty());
    });
    assert!(Registry::new(&env, store, "a/../b").is_err());
}
