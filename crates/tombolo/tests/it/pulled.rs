//! Clones on another store than their source's: they serve at once, pull their tables behind, and
//! let go of the source when they have all.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo::{Builder, Db, Env, ErrorKind, KeyspaceOptions, Options, Registry, Shape};
use tombolo_env::simulated::World;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultPlan, Rule};
use tombolo_storage::{Epoch, Purpose, Request, Uri};

use crate::stores::faulty_registry;

type State = BTreeMap<(String, Vec<u8>), Vec<u8>>;

const SOURCE: &str = "file:///source";
const CLONE: &str = "mem://far/clone";

#[derive(Clone)]
struct Two {
    env: Env,
    registry: Registry,
    /// Of the clone's store, and of the source's.
    far: FaultPlan,
    near: FaultPlan,
}

impl Two {
    fn at(&self, uri: &str) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
        Db::builder(uri).env(self.env.clone()).registry(self.registry.clone()).options(options)
    }

    async fn settle(&self) {
        self.env.sleep(Duration::from_secs(300)).await;
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Two) -> F) {
    let process = World::new(1).process("process");
    let env = process.env();
    let (far, near) = (FaultPlan::scripted(), FaultPlan::scripted());
    let registry = faulty_registry(&Registry::with_defaults(), "mem", &far);
    let registry = faulty_registry(&registry, "file", &near);
    process.run(test(Two { env, registry, far, near })).unwrap();
}

async fn contents(db: &Db) -> tombolo::Result<State> {
    let mut state = State::new();
    for keyspace in db.keyspaces() {
        let mut scan = keyspace.scan::<&[u8]>(..);
        while let Some((key, value)) = scan.next_async().await? {
            state.insert((keyspace.name().to_owned(), key.to_vec()), value.to_vec());
        }
    }
    Ok(state)
}

/// Keyspaces of each shape, one of them with values apart, and deletes.
async fn fill(db: &Db) {
    let shapes = [
        ("leveled", Shape::Leveled, 0),
        ("tiered", Shape::Tiered, 0),
        ("fifo", Shape::Fifo, 0),
        ("apart", Shape::Leveled, 1024),
    ];
    for (name, shape, separate_bytes) in shapes {
        let fifo_bytes = (shape == Shape::Fifo).then_some(1 << 30);
        let options = KeyspaceOptions { shape, fifo_bytes, separate_bytes, ..KeyspaceOptions::default() };
        let keys = db.create_keyspace(name, options).await.unwrap();
        for number in 0..240u32 {
            let bytes = if separate_bytes > 0 { 2000 } else { 150 };
            keys.put(format!("key {:03}", number * 7 % 200), vec![number as u8; bytes]).await.unwrap();
            if number % 60 == 59 {
                keys.delete(format!("key {number:03}")).await.unwrap();
                db.flush().await.unwrap();
            }
        }
    }
    db.flush().await.unwrap();
}

fn shared(db: &Db) -> u64 {
    db.property("tables-shared").unwrap().value.number().unwrap()
}

async fn cloned(two: &Two) -> (Db, State) {
    let source = two.at(SOURCE).open().await.unwrap();
    fill(&source).await;
    let expected = contents(&source).await.unwrap();
    source.close().await.unwrap();
    two.at(SOURCE).share_to(two.at(CLONE)).await.unwrap();
    let store = two.registry.open_object_store(&two.env, &Uri::parse(CLONE).unwrap()).unwrap();
    let request = Request::new(Purpose::Verify, Epoch::NONE);
    let listed = store.list(request, "", None, 100_000).await.unwrap();
    let is_table = |name: &str| name.contains("/table/");
    assert!(!listed.objects.iter().any(|object| is_table(object.name.as_str())), "nothing was copied");
    (two.at(CLONE).open().await.unwrap(), expected)
}

/// It serves at once, and needs nothing of its source in the end, which may then go.
#[test]
fn a_clone_on_another_store_pulls_all_and_lets_go() {
    run(|two| async move {
        let (clone, mut expected) = cloned(&two).await;
        assert!(shared(&clone) > 0);
        let error = two.at(SOURCE).destroy().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "the clone needs it");
        assert_eq!(contents(&clone).await.unwrap(), expected);
        clone.default_keyspace().put("own", "write").await.unwrap();
        expected.insert(("default".into(), b"own".to_vec()), b"write".to_vec());
        two.settle().await;
        assert_eq!(shared(&clone), 0, "all tables are its own");
        assert!(two.at(SOURCE).clones().await.unwrap().is_empty(), "the pin was given back");
        two.at(SOURCE).destroy().await.unwrap();
        two.near.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied)));
        assert_eq!(contents(&clone).await.unwrap(), expected);
        assert!(clone.verify().await.unwrap().damage.is_empty());
        clone.close().await.unwrap();
        let clone = two.at(CLONE).open().await.unwrap();
        assert_eq!(contents(&clone).await.unwrap(), expected);
        clone.close().await.unwrap();
    });
}

/// Its store fills up, or the source goes away for a while: it says so, serves what it has, and
/// goes on by itself.
#[test]
fn a_pull_that_is_held_up_goes_on() {
    run(|two| async move {
        let (clone, expected) = cloned(&two).await;
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        two.far.inject(Rule::new(is_table, Fault::Error(ErrorKind::OutOfSpace)));
        two.settle().await;
        assert!(shared(&clone) > 0);
        let trouble = clone.background_errors();
        assert!(trouble.iter().any(|trouble| trouble.error.kind() == ErrorKind::OutOfSpace), "{trouble:?}");
        assert_eq!(contents(&clone).await.unwrap(), expected);
        two.far.clear();
        two.near.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied)));
        two.settle().await;
        let left = shared(&clone);
        assert!(left > 0);
        // What it has is served, and written; what lies there says so.
        clone.default_keyspace().put("own", "write").await.unwrap();
        match contents(&clone).await {
            // The cache may have it all.
            Ok(found) => assert_eq!(found.len(), expected.len() + 1),
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
        two.near.clear();
        two.settle().await;
        two.settle().await;
        assert_eq!(shared(&clone), 0);
        assert_eq!(contents(&clone).await.unwrap().len(), expected.len() + 1);
        clone.close().await.unwrap();
    });
}

/// Who reads the clone keeps what it looks at, at the source as well.
#[test]
fn a_reader_of_the_clone_keeps_the_source() {
    run(|two| async move {
        let (clone, expected) = cloned(&two).await;
        let look = two.at(CLONE).open_read_only().await.unwrap();
        two.settle().await;
        assert_eq!(two.at(SOURCE).clones().await.unwrap().len(), 1, "the reader looks there");
        assert_eq!(contents(&look).await.unwrap(), expected);
        look.close().await.unwrap();
        clone.default_keyspace().put("own", "write").await.unwrap();
        clone.flush().await.unwrap();
        two.settle().await;
        assert!(two.at(SOURCE).clones().await.unwrap().is_empty());
        clone.close().await.unwrap();
    });
}

#[cfg(feature = "mutants")]
#[test]
fn rules_of_pulls_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::CloneReleasedBeforeUnnamed, a_reader_of_the_clone_keeps_the_source);
}
