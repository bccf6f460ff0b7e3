//! The map of the scenario answers as a map, and the sets are many and differ.

use std::collections::BTreeSet;

use tombolo::{KeyspaceOptions, Options};

use super::history::{Action, Answer, Does, Write, history};
use super::model::Model;
use super::sets::SETS;

#[test]
fn there_are_many_sets_and_no_two_are_equal() {
    assert!(SETS.len() >= 40);
    let names: BTreeSet<_> = SETS.iter().map(|set| set.name).collect();
    let contents: BTreeSet<_> = SETS.iter().map(|set| (set.stores, set.options, set.keyspace)).collect();
    assert_eq!((names.len(), contents.len()), (SETS.len(), SETS.len()));
}

/// A setting that no set has is not shown to leave answers as they are.
#[test]
fn every_setting_is_in_some_set() {
    let settings = Options::SETTINGS.iter().chain(KeyspaceOptions::SETTINGS);
    // Batches of histories are of several keyspaces, and so of one stream; those of several streams
    // are written by `it streams::`.
    for setting in settings.filter(|setting| setting.name != "stream") {
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
    let all = || (0..20).flat_map(|seed| history(seed, 200));
    let kind = |shown: String| shown.split('(').next().unwrap_or_default().to_owned();
    let kinds: BTreeSet<String> = all().map(|action| kind(format!("{action:?}"))).collect();
    assert_eq!(kinds.len(), 28, "{kinds:?}");
    let writes = |action| match action {
        Action::Write(writes, ..) | Action::Transact(writes, ..) => writes,
        _ => Vec::new(),
    };
    let done: BTreeSet<String> =
        all().flat_map(writes).map(|write| kind(format!("{:?}", write.does))).collect();
    assert_eq!(done.len(), 7, "{done:?}");
    let ways: BTreeSet<String> = all()
        .filter_map(|action| match action {
            Action::Transact(_, way, _) => Some(format!("{way:?}")),
            Action::Beside(beside) => Some(format!("{beside:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(ways.len(), 6 + 5, "{ways:?}");
    let asked: BTreeSet<String> = all()
        .flat_map(|action| match action {
            Action::PutIf(.., asks) | Action::DeleteIf(.., asks) => vec![asks],
            Action::Require(asked, _) => asked.into_iter().map(|(.., asks)| asks).collect(),
            _ => Vec::new(),
        })
        .map(|asks| format!("{asks:?}"))
        .collect();
    assert_eq!(asked.len(), 6, "{asked:?}");
    let (mut brought, mut ways) = (BTreeSet::new(), BTreeSet::new());
    for action in all() {
        if let Action::Ingest(tables, _, bring) = action {
            ways.extend([format!("{bring:?}"), tables.len().to_string()]);
            let brings = tables.iter().flat_map(|(_, table)| table);
            brought.extend(brings.map(|(_, brings)| kind(format!("{brings:?}"))));
        }
    }
    assert_eq!((brought.len(), ways.len()), (4, 3 + 3), "{brought:?}, {ways:?}");
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
