//! RocksDB's own stress test with kills, and its own tests that take a file system by URI.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::site::{Loaded, printed};
use super::source::Source;

/// Options of db_stress that files of ours, or files of any store, have no part in.
const SETTINGS: [&str; 9] = [
    // A write that was acknowledged without a sync may go with its process, here as on any store
    // that is not this host's page cache.
    "--sync=1",
    "--disable_wal=0",
    "--manual_wal_flush_one_in=0",
    "--use_direct_reads=0",
    "--use_direct_io_for_flush_and_compaction=0",
    "--mmap_read=0",
    // Its step opens the restored database among the files of this host, whatever it is told.
    "--backup_one_in=0",
    "--threads=4",
    "--max_key=20000",
];

/// db_crashtest.py for so many seconds: db_stress is ended in its midst every quarter of it, and
/// all that it knows to be written must be there.
pub(super) fn crash_test(site: &Loaded<'_>, source: &Source, seconds: u64) -> Result<(), String> {
    let directory = site.site.directory().join("stress");
    let expected = directory.join("expected");
    std::fs::create_dir_all(&expected).map_err(|error| format!("making {}: {error}", expected.display()))?;
    let stress = wrapped(site, &source.program("db_stress"), &directory)?;
    for kind in ["blackbox", "whitebox"] {
        let mut command = Command::new("python3");
        command.arg(source.script("tools/db_crashtest.py")).arg(kind).current_dir(&directory);
        command.env("TEST_TMPDIR_EXPECTED", &expected).envs(site.environment());
        command.arg(format!("--stress_cmd={}", stress.display()));
        command.args([format!("--db=/stress-{kind}"), format!("--duration={}", seconds / 2)]);
        command.args(if kind == "blackbox" {
            vec![format!("--interval={}", seconds.div_ceil(8))]
        } else {
            Vec::new()
        });
        command.args(SETTINGS).arg(format!("--fs_uri={}&takeover=always&claim=change", site.uri()));
        let text = printed(command)?;
        let runs = text.matches("Running db_stress with pid").count();
        if !text.contains("Crash-recovery verification passed") {
            return Err(format!("db_crashtest.py {kind} does not say that its database is whole: {text}"));
        }
        // It ends with an error where a run finds less, or else, than was acknowledged before.
        println!("  db_crashtest.py {kind}: {runs} runs of db_stress, of which each verified the one before");
    }
    Ok(())
}

/// A script that runs a program with the plugin: the tool that starts it must not load that.
fn wrapped(site: &Loaded<'_>, program: &Path, directory: &Path) -> Result<PathBuf, String> {
    let script = directory.join("with-plugin");
    let text =
        format!("#!/bin/sh\nLD_PRELOAD='{}' exec '{}' \"$@\"\n", site.plugin().display(), program.display());
    let written = std::fs::write(&script, text)
        .and_then(|()| std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("writing {}: {error}", script.display()))?;
    Ok(script)
}

/// Tests of RocksDB's that do not apply to files of ours; the page on RocksDB says why.
const NOT_FOR_US: [&str; 2] =
    ["CustomEnv/EnvMoreTestWithParam.GetChildrenIgnoresDotAndDotDot/0", "DBBasicTest.LockFileRecovery"];

/// `env_basic_test` on our files, and `db_basic_test`.
pub(super) fn tests(site: &Loaded<'_>, source: &Source) -> Result<(), String> {
    for (program, only) in [("env_basic_test", "CustomEnv/*"), ("db_basic_test", "DBBasicTest.*")] {
        let mut command = Command::new(source.program(program));
        let without = NOT_FOR_US.join(":");
        command.arg(format!("--gtest_filter={only}-{without}")).envs(site.environment());
        command.env("LD_PRELOAD", site.plugin());
        command.env("TEST_FS_URI", format!("{}&takeover=always&claim=change", site.uri()));
        let text = printed(command)?;
        let passed = text.matches("[       OK ]").count();
        println!("  {program}: {passed} tests pass");
    }
    Ok(())
}
