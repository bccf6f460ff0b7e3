//! Databases whose logs share one place.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{fails, json, ok, tombolo, uri};

/// Directories right under `path`.
fn directories(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The random id that the database's manifest states.
fn id_of(store: &str) -> String {
    let manifest = ok(&["inspect", store, "manifest"]);
    let line = manifest.lines().find(|line| line.contains("database created")).unwrap();
    line.split_once("id ").unwrap().1[..16].to_owned()
}

#[test]
fn each_database_has_its_own_logs_in_a_shared_place_and_takes_them_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (root, place) = (uri(folder.path()), folder.path().join("logs"));
    let logs = uri(&place);
    let stores = ["a", "b"].map(|name| uri(&folder.path().join(name)));
    for store in &stores {
        for value in ["1", "2", "3"] {
            ok(&["db", "put", store, "key", &format!("{value} of {store}"), "--log", &logs]);
        }
    }
    let [first, second] = [id_of(&stores[0]), id_of(&stores[1])];
    assert_eq!(directories(&place), BTreeSet::from([first.clone(), second.clone()]));

    // By id, the logs of one together.
    let listed = ok(&["inspect", &logs]);
    assert!(listed.lines().count() >= 8 && !listed.contains("foreign"), "{listed}");
    let own = ok(&["inspect", &logs, &format!("{first}/"), "--entries"]);
    assert!(own.contains(&format!("3 of {}", stores[0])) && !own.contains(&stores[1]), "{own}");

    // gc takes nobody's logs for garbage, wherever it begins.
    for place in [&root, &logs, &stores[0]] {
        ok(&["gc", place, "--delete"]);
    }
    for store in &stores {
        assert_eq!(ok(&["db", "get", store, "key", "--log", &logs]), format!("3 of {store}\n"));
    }

    // A log that a process left which died before the manifest named it.
    let lanes = place.join(&first).join("log");
    let named = fs::read_dir(&lanes).unwrap().next().unwrap().unwrap().path();
    let stray = lanes.join("0000000000000002-0000");
    fs::create_dir(&stray).unwrap();
    for file in directories(&named) {
        fs::copy(named.join(&file), stray.join(&file)).unwrap();
    }
    ok(&["db", "destroy", &stores[0], "--yes", "--log", &logs]);
    assert_eq!(directories(&place), BTreeSet::from([second.clone()]));
    assert_eq!(ok(&["db", "get", &stores[1], "key", "--log", &logs]), format!("3 of {}\n", stores[1]));

    // A new life of the first has a new id, and leaves the other's alone.
    ok(&["db", "put", &stores[0], "key", "again", "--log", &logs]);
    let found = directories(&place);
    assert!(found.len() == 2 && found.contains(&second) && !found.contains(&first), "{found:?}");
    assert_eq!(ok(&["db", "get", &stores[1], "key", "--log", &logs]), format!("3 of {}\n", stores[1]));
    let verified = json(&ok(&["--json", "db", "verify", &stores[1], "--log", &logs]));
    assert!(verified.is_object(), "{verified}");
}

/// A call that names what lives destroys the rest, by the rules, and only when told to.
#[test]
fn gc_destroys_what_is_not_among_the_live_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let (root, of) = (uri(folder.path()), |name: &str| uri(&folder.path().join(name)));
    for name in ["orders", "eu/users", "old", "kept"] {
        ok(&["db", "put", &of(name), "k", name]);
    }
    ok(&["db", "checkpoint", "create", &of("kept"), "monday"]);
    let typo = fails(
        &["gc", &root, "--live", "orders", "--live", "eu/user", "--delete"],
        2,
        &["eu/user", "eu/users", "old"],
    );
    assert!(!typo.contains("destroyed"), "{typo}");
    let live = ["gc", &root, "--live", "orders", "--live", "/eu/users/"];
    let shown = ok(&live);
    assert!(
        shown.contains("old: not among the live databases") && shown.contains("would be destroyed"),
        "{shown}"
    );
    assert_eq!(ok(&["db", "get", &of("old"), "k"]), "old\n", "showing changes nothing");
    // What has a checkpoint is not destroyed, and does not keep the others.
    let ran = tombolo(&[&live[..], &["--delete"]].concat());
    assert!(
        ran.code == 2 && ran.stdout.contains("old: not among the live databases"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    assert!(ran.stdout.contains("kept: ") && ran.stdout.contains("checkpoint"), "{}", ran.stdout);
    fails(&["db", "get", &of("old"), "k"], 3, &[]);
    for name in ["orders", "eu/users", "kept"] {
        assert_eq!(ok(&["db", "get", &of(name), "k"]), format!("{name}\n"));
    }
}
