//! Runs one test in the real world and in simulated ones.

use std::path::{Path, PathBuf};

use tombolo_env::Env;
use tombolo_env::simulated::World;

/// Calls `test` with a world and an empty directory of it: for real with io_uring and without, and
/// in ten simulated worlds.
pub fn each_world(test: impl Fn(&Env, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    test(&Env::real(), directory.path());
    let directory = tempfile::tempdir().unwrap();
    test(&Env::real_without_io_uring(), directory.path());
    for seed in 0..10 {
        let world = World::new(seed);
        let process = world.process("test");
        let directory = PathBuf::from("/test");
        process.files().create_directories(&directory).unwrap();
        test(&process.env(), &directory);
    }
}
