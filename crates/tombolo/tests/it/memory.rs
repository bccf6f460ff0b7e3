//! One memory budget for several databases.

use tombolo::budget::Category;
use tombolo::{Db, Durability, Env, ErrorKind, MemoryBudget, Options};

fn builder(name: &str, env: &Env) -> tombolo::Builder {
    Db::builder(format!("mem://{name}")).env(env.clone())
}

#[test]
fn databases_share_a_budget_and_its_cache() {
    let env = Env::real();
    let budget = MemoryBudget::new(8 << 20).unwrap();
    let mut databases = Vec::new();
    for number in 0..3 {
        let db = builder(&format!("shared-{number}"), &env).memory_budget(&budget).open().wait().unwrap();
        let keys = db.default_keyspace();
        for key in 0..2000u32 {
            keys.put_with(key.to_be_bytes(), [number; 100], Durability::Unlogged).wait().unwrap();
        }
        db.flush().wait().unwrap();
        databases.push(db);
    }
    for (number, db) in (0u8..).zip(&databases) {
        for key in 0..2000u32 {
            assert_eq!(db.default_keyspace().get(key.to_be_bytes()).wait().unwrap().unwrap(), [number; 100]);
        }
        assert_eq!(db.memory().members(), 3);
    }
    assert!(budget.used(Category::Cache) > 400_000, "{budget:?}");
    assert!(budget.peak_bytes() <= budget.bytes(), "{budget:?}");
    drop(databases);
}

#[test]
fn a_budget_too_small_for_all_is_a_clear_error() {
    let env = Env::real();
    let budget = MemoryBudget::new(2 << 20).unwrap();
    let mut options = Options::default();
    options.memtable_bytes = Some(256 << 10);
    let open = |name: &str| builder(name, &env).options(options.clone()).memory_budget(&budget).open().wait();
    let first = open("small-1").unwrap();
    let second = open("small-2").unwrap();
    let refused = open("small-3").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("memory budget"), "{refused}");
    first.close().wait().unwrap();
    drop(first);
    open("small-3").unwrap();
    drop(second);
    assert_eq!(MemoryBudget::new(1000).unwrap_err().kind(), ErrorKind::Invalid);
}
