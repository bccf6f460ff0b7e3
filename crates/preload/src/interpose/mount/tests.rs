//! What no program can be made to do at will.

use super::*;

/// Two threads open a file that is not there: the second finds the first one's placeholder before
/// the database has the name.
#[test]
fn a_placeholder_that_was_just_made_is_not_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let variable = |name: &str| match name {
        "TOMBOLO_PRELOAD_STORE" => Some(format!("file://{}/store", root.display()).into()),
        "TOMBOLO_PRELOAD_FILES" => Some(root.join("*.ours").into()),
        _ => None,
    };
    let mounted = Mounted::open(&Settings::read(variable).unwrap()).unwrap();
    let path = root.join("a.ours");
    let made = mounted.make(&path, MODE).unwrap();
    assert!(made.is_some() && mounted.make(&path, MODE).unwrap().is_none());
    mounted.take_over(&path, &path).unwrap();
    assert!(mounted.files.paths().iter().all(|path| path == ID_NAME));
    // While another file is taken over, a new one need not wait.
    let _taking = TAKING.lock();
    let other = root.join("b.ours");
    assert!(mounted.make(&other, MODE).unwrap().is_some());
    mounted.place(&root.join("c.ours"), MODE).unwrap();
}
