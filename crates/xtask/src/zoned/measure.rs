//! Writes and erases of flash: the engine on zones and on a file system, in the simulator's virtual
//! time; and RocksDB's own benchmark, whose file operations are written down and played to the same
//! model.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::habits::{cargo, words};

/// About what the engine is given: four clients that wait until each put is durable, keys of 20
/// bytes with values of 400, put in random order and then over and over.
const BENCHMARK: &str = "--benchmarks=fillrandom,overwrite,overwrite --num=40000 --writes=10000 --threads=4 \
    --value_size=400 --key_size=20 --compression_type=none --sync=1 --write_buffer_size=524288 \
    --target_file_size_base=1048576 --max_bytes_for_level_base=2097152 --seed=1";
/// Calls that change files, or open them.
const CALLS: &str = "openat,creat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,ftruncate,\
    rename,link,unlink";

/// Runs the simulator, with the calls of db_bench where that and strace are there.
pub fn run(root: &Path) -> Result<(), String> {
    // In memory, where there is such a place: the trace says all that is wanted of the disk.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let place = parent.join(format!("tombolo-flash-{}", std::process::id()));
    let ran = trace(&place).and_then(|traced| simulate(root, &place, traced));
    let _gone = std::fs::remove_dir_all(&place);
    ran
}

/// Whether there is a trace in `place`.
fn trace(place: &Path) -> Result<bool, String> {
    for (program, package) in [("strace", "strace"), ("db_bench", "rocksdb-tools")] {
        let is_there = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok();
        if !is_there {
            println!("without RocksDB: {program} is missing; apt-get install {package}");
            return Ok(false);
        }
    }
    let (traces, database) = (place.join("traces"), place.join("db"));
    let made =
        |path: &Path| std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()));
    made(&traces)?;
    made(&database)?;
    let status = Command::new("strace")
        .args(["-ff", "-ttt", "-y", "-s", "0", "-e", &format!("trace={CALLS}"), "-o"])
        .arg(traces.join("t"))
        .arg("db_bench")
        .arg(format!("--db={}", database.display()))
        .args(BENCHMARK.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start strace: {error}"))?;
    if status.success() { Ok(true) } else { Err(format!("db_bench under strace ended with {status}")) }
}

fn simulate(root: &Path, place: &Path, traced: bool) -> Result<(), String> {
    let mut arguments: Vec<OsString> =
        words("run --quiet --release --package tombolo-simulator --features mutants -- --flash");
    if traced {
        arguments.extend(["--traced".into(), place.join("traces").into_os_string()]);
        arguments.extend(["--below".into(), place.join("db").into_os_string()]);
    }
    cargo(root, &arguments, &[])
}
