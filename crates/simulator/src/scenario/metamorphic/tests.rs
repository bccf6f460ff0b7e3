//! The map of the scenario answers as a map, and the sets are many and differ.

use std::collections::BTreeSet;

use tombolo::{KeyspaceOptions, Options};

use super::history::{Action, Answer, Does, Model, Write, history};
use super::sets::SETS;

#[test]
fn there_are_many_sets_and_no_two_are_equal() {
    assert!(SETS.len() >= 40);
    let names: BTreeSet<_> = SETS.iter().map(|set| set.name).collect();
    let contents: BTreeSet<_> = SETS.iter().map(|set| (set.stores, set.options, set.keyspace)).collect();
    assert_eq!((names.len(), contents.len()), (SETS.len(), SETS.len()));
}

/// A setting that no two sets have differently is not shown to leave answers as they are.
/// A setting that no set has is not shown to leave answers as they are.
#[test]
fn every_setting_is_in_some_set() {
    let settings = Options::SETTINGS.iter().chain(KeyspaceOptions::SETTINGS);
    for setting in settings {
        let has = |texts: &[&str]| texts.iter().any(|text| text.split('=').next() == Some(setting.name));
        assert!(
            SETS.iter().any(|set| has(set.options) || has(set.keyspace)),
            "give {} a set in sets.rs",
            setting.name
        );
    }
}

#[test]
fn histories_have_every_kind_of_operation() {
    let kinds: BTreeSet<String> = (0..20)
        .flat_map(|seed| history(seed, 200))
        .map(|action| format!("{action:?}").split('(').next().unwrap_or_default().into())
        .collect();
    assert_eq!(kinds.len(), 18, "{kinds:?}");
    let writes = |action| if let Action::Write(writes, ..) = action { writes } else { Vec::new() };
    let done: BTreeSet<String> = (0..20)
        .flat_map(|seed| history(seed, 200))
        .flat_map(writes)
        .map(|write| format!("{:?}", write.does).split('(').next().unwrap_or_default().into())
        .collect();
    assert_eq!(done.len(), 5, "{done:?}");
}

#[test]
fn the_map_walks_both_ways() {
    let mut model = Model::default();
    let write = |key: &[u8]| Write { keyspace: "default".into(), key: key.to_vec(), does: Does::Put(0) };
    let keys = [&b"a"[..], b"b", b"c"];
    let writes = keys.iter().map(|key| write(key)).collect();
    model.apply(&Action::Write(writes, tombolo::Durability::Durable, true), 1);
    let entry = |key: &[u8]| (key.to_vec(), b"1:".to_vec());
    let walked = model.apply(&Action::Walk("default".into(), b"b".to_vec()), 2);
    assert_eq!(walked, Answer::Entries(vec![entry(b"b"), entry(b"c"), entry(b"b"), entry(b"a")]));
}
