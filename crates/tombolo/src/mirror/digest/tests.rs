//! Two databases that differ are told apart, with the range and the tables.

use std::sync::Arc;

use tombolo_env::simulated::World;

use super::super::work::Position;
use super::{Side, Verified, compare};
use crate::db::Db;
use crate::options::Options;

fn side(db: &Db) -> Side {
    let engine = Arc::clone(db.engine());
    let (view, sequence, judged_ms) = (engine.view_owned(), engine.stream.visible(), engine.judged_ms());
    Side { engine, view, sequence, judged_ms }
}

fn key(number: u32) -> String {
    format!("key {number:06}")
}

fn finds_a_value_of_the_same_size() {
    let process = World::new(1).process("process");
    let env = process.env();
    process
        .run(async move {
            let open = async |name: &str, odd: Option<u32>| {
                let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=262144"]).unwrap();
                let builder = Db::builder(format!("mem://{name}")).env(env.clone()).options(options);
                let db = builder.open().await.unwrap();
                for number in 0..3000 {
                    let byte = if odd == Some(number) { 9 } else { (number % 7) as u8 };
                    db.default_keyspace().put(key(number), vec![byte; 1000]).await.unwrap();
                }
                db.flush().await.unwrap();
                db
            };
            let (one, same, other) =
                (open("one", None).await, open("same", None).await, open("other", Some(2017)).await);
            let mut verified = Verified::default();
            let mut position = Some(Position::default());
            let mut parts = 0;
            while let Some(from) = position.take() {
                parts += 1;
                position = compare(&side(&one), &side(&same), &from, 1 << 20, &mut verified).await.unwrap();
            }
            assert_eq!((verified.entries, verified.differences.len()), (3000, 0));
            assert!(parts > 1 && verified.ranges > 2, "{parts} parts, {} ranges", verified.ranges);
            let mut verified = Verified::default();
            let whole = Position::default();
            compare(&side(&one), &side(&other), &whole, u64::MAX, &mut verified).await.unwrap();
            let [difference] = &verified.differences[..] else { panic!("{verified:?}") };
            let wrong = key(2017).into_bytes();
            assert!(difference.after.as_ref().is_none_or(|after| *after < wrong), "{difference:?}");
            assert!(difference.last.as_ref().is_none_or(|last| *last >= wrong), "{difference:?}");
            assert_eq!(difference.source_entries, difference.mirror_entries);
            assert!(!difference.source_tables.is_empty() && !difference.mirror_tables.is_empty());
            assert!(difference.error().to_string().contains("the mirror differs from its source"));
        })
        .unwrap();
}

#[test]
fn what_differs_is_told_by_content() {
    finds_a_value_of_the_same_size();
}

#[cfg(feature = "mutants")]
#[test]
fn sizes_prove_nothing() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::MirrorDigestBySize, finds_a_value_of_the_same_size);
}
