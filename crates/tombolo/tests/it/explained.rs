//! What a get says that it asked.

use std::sync::Arc;

use tombolo::{Db, GetExplanation, GetStep, GetWhence, KeyspaceOptions, OperatorName, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

/// A step, in a word.
fn word(step: &GetStep) -> String {
    let versions: Vec<_> = step.versions.iter().map(|version| version.value_bytes.to_string()).collect();
    let filter = match step.filter {
        Some(true) => " passes",
        Some(false) => " filtered",
        None => "",
    };
    let level = step.level.map_or_else(|| "memory".to_owned(), |level| format!("L{level}"));
    let end = if step.is_last { "." } else { "" };
    format!("{level}{filter} [{}]{end}", versions.join(" "))
}

#[test]
fn a_get_says_what_it_asked_and_why() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    process
        .run(async move {
            let options = Options::parse(["automatic_compaction=false"]).unwrap();
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let open = || {
                let builder = Db::builder("mem://explained").env(env.clone()).options(options.clone());
                builder.stores(Arc::clone(&objects), Arc::clone(&log)).open()
            };
            let db = open().await.unwrap();
            let operator = Some(OperatorName::parse("append").unwrap());
            let options = KeyspaceOptions { operator, ..Default::default() };
            let keys = db.create_keyspace("keys", options).await.unwrap();
            let fill = async |value: &str, from: u32, to: u32| {
                for number in from..to {
                    keys.put(format!("{number:03}"), value).await.unwrap();
                }
                db.flush().await.unwrap();
            };
            fill("old", 0, 100).await;
            db.compact().await.unwrap();
            fill("new", 40, 60).await;
            fill("far", 200, 210).await;
            keys.put("050", "newest").await.unwrap();
            let words = async |key: &str| {
                let found = keys.explain_get(key).await.unwrap();
                (
                    found.steps.iter().map(word).collect::<Vec<_>>(),
                    found.not_asked.elsewhere,
                    found.not_asked.below,
                )
            };
            assert_eq!(words("050").await, (vec!["memory [6].".to_owned()], 1, 2));
            let (steps, elsewhere, below) = words("045").await;
            assert_eq!(
                (&steps[..], elsewhere, below),
                (&["memory []".to_owned(), "L0 passes [3].".to_owned()][..], 1, 1)
            );
            let (steps, ..) = words("010").await;
            assert!(steps[0] == "memory []" && steps[1].ends_with("passes [3]."), "{steps:?}");
            assert!(!steps[1].starts_with("L0"), "{steps:?}");
            // One that is in no table is kept out by filters, as a rule.
            let (steps, ..) = words("0455").await;
            assert_eq!(steps.len(), 3, "{steps:?}");
            assert!(steps.iter().all(|step| step.contains("[]") && !step.ends_with('.')), "{steps:?}");
            // Operands go down to what they lie over; a range delete ends it.
            keys.merge("045", "+").await.unwrap();
            let found = keys.explain_get("045").await.unwrap();
            assert_eq!((found.value_bytes, found.steps.len()), (Some(4), 2));
            keys.delete_range("0", "1").await.unwrap();
            let found = keys.explain_get("045").await.unwrap();
            assert_eq!((found.value_bytes, found.steps.len()), (None, 1));
            assert_eq!(found.steps[0].range_delete, Some(found.sequence));
            assert!(found.steps[0].versions[0].is_hidden && found.steps[0].is_last);
            // What was read is in memory the next time.
            db.close().await.unwrap();
            let db = open().await.unwrap();
            let keys = db.keyspace("keys").unwrap();
            let first = keys.explain_get("205").await.unwrap();
            let block = |found: &GetExplanation| found.steps.last().unwrap().block.unwrap();
            assert!(first.steps.last().unwrap().opened);
            assert_eq!(block(&first).whence, GetWhence::Store);
            let again = keys.explain_get("205").await.unwrap();
            assert_eq!(
                (block(&again).whence, again.steps.last().unwrap().opened),
                (GetWhence::Memory, false)
            );
            assert_eq!(block(&again).offset, block(&first).offset);
        })
        .unwrap();
}
