//! RocksDB from the source that the crate `librocksdb-sys` has in it: the library with its
//! assertions, its stress test, and its tests of file systems.
//!
//! Built once, and kept below the user's cache. The library is compiled as one file that includes
//! all others, as RocksDB's own `make unity_test` does: not optimised, in a few minutes instead of
//! half an hour.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::found;

/// The crate whose source it is.
const CRATE: &str = "librocksdb-sys";
/// Where it is named.
const MANIFEST: &str = "bench/peers/Cargo.toml";

/// As the build of the crate defines them on Linux, with assertions.
const FLAGS: [&str; 17] = [
    "-std=c++20",
    "-O0",
    "-g0",
    "-fPIC",
    "-fno-omit-frame-pointer",
    "-w",
    "-pthread",
    "-DOS_LINUX",
    "-DROCKSDB_PLATFORM_POSIX",
    "-DROCKSDB_LIB_IO_POSIX",
    "-DROCKSDB_SUPPORT_THREAD_LOCAL",
    "-DROCKSDB_SCHED_GETCPU_PRESENT",
    "-DROCKSDB_FALLOCATE_PRESENT",
    "-DROCKSDB_RANGESYNC_PRESENT",
    "-DHAVE_ALIGNED_NEW",
    "-DHAVE_UINT128_EXTENSION",
    "-DGFLAGS=1",
];
/// A compression that RocksDB takes where its header is there: the header, the flag, the library.
const COMPRESSIONS: [(&str, &str, &str); 4] = [
    ("lz4.h", "-DLZ4", "-llz4"),
    ("snappy.h", "-DSNAPPY", "-lsnappy"),
    ("zlib.h", "-DZLIB", "-lz"),
    ("zstd.h", "-DZSTD", "-lzstd"),
];
const GFLAGS_HEADER: &str = "/usr/include/gflags/gflags.h";

/// What was built.
pub(super) struct Source {
    source: PathBuf,
    built: PathBuf,
}

impl Source {
    /// Its headers.
    pub(super) fn include(&self) -> PathBuf {
        self.source.join("include")
    }

    /// One of its scripts.
    pub(super) fn script(&self, path: &str) -> PathBuf {
        self.source.join(path)
    }

    /// One of its programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.built.join(name)
    }
}

/// Builds it, where it is not built. `None` where what that takes is not here, which is said.
pub(super) fn build(root: &Path) -> Result<Option<Source>, String> {
    if !Path::new(GFLAGS_HEADER).exists() {
        println!("skipped: RocksDB from source needs libgflags-dev; install it with apt-get");
        return Ok(None);
    }
    let Some(crate_directory) = crate_directory(root) else {
        println!("skipped: cargo cannot fetch the crate {CRATE}");
        return Ok(None);
    };
    let home = std::env::var_os("HOME").ok_or("there is no home directory to keep RocksDB in")?;
    let name = crate_directory.file_name().unwrap_or_default();
    let built = Path::new(&home).join(".cache/tombolo-rocksdb").join(name);
    let source = Source { source: crate_directory.join("rocksdb"), built };
    let objects = source.built.join("objects");
    std::fs::create_dir_all(&objects).map_err(|error| format!("making {}: {error}", objects.display()))?;
    Builder { source: &source, objects, compiler: compiler() }.all(&crate_directory)?;
    Ok(Some(source))
}

/// Where cargo keeps the source of the crate; fetched if need be.
fn crate_directory(root: &Path) -> Option<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(root.join(MANIFEST))
        .output()
        .ok()?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let mut packages = told["packages"].as_array()?.iter();
    let package = packages.find(|package| package["name"] == CRATE)?;
    Path::new(package["manifest_path"].as_str()?).parent().map(Path::to_path_buf)
}

/// clang compiles unoptimised code in half the time of g++.
fn compiler() -> &'static str {
    if found("clang++").is_some() { "clang++" } else { "g++" }
}

struct Builder<'a> {
    source: &'a Source,
    objects: PathBuf,
    compiler: &'static str,
}

impl Builder<'_> {
    fn all(&self, crate_directory: &Path) -> Result<(), String> {
        let makefile = read(&self.source.source.join("src.mk"))?;
        let in_source = |path: &str| self.source.source.join(path);
        let library = self.built_library(crate_directory)?;
        let mut stress = listed(&makefile, "STRESS_LIB_SOURCES");
        stress.extend(listed(&makefile, "TOOL_LIB_SOURCES"));
        stress.extend(listed(&makefile, "ANALYZER_LIB_SOURCES"));
        stress.extend(["test_util/testutil.cc", "db_stress_tool/db_stress.cc"].map(str::to_owned));
        let stress: Vec<PathBuf> = stress.iter().map(|path| in_source(path)).collect();
        let stress = self.compiled("db_stress", &stress)?;
        self.linked("db_stress", &[stress], &library)?;
        let mut shared = listed(&makefile, "TEST_LIB_SOURCES");
        shared.push("third-party/gtest-1.8.1/fused-src/gtest/gtest-all.cc".to_owned());
        let shared: Vec<PathBuf> = shared.iter().map(|path| in_source(path)).collect();
        let shared = self.compiled("tests", &shared)?;
        for (name, test) in
            [("env_basic_test", "env/env_basic_test.cc"), ("db_basic_test", "db/db_basic_test.cc")]
        {
            let object = self.compiled(name, &[in_source(test)])?;
            self.linked(name, &[object, shared.clone()], &library)?;
        }
        Ok(())
    }

    /// The library, with the list of its sources that the crate compiles.
    fn built_library(&self, crate_directory: &Path) -> Result<PathBuf, String> {
        let list = read(&crate_directory.join("rocksdb_lib_sources.txt"))?;
        let sources: Vec<PathBuf> = list
            .split_whitespace()
            .map(|file| match file {
                // The crate has one that says its version.
                "util/build_version.cc" => crate_directory.join("build_version.cc"),
                file => self.source.source.join(file),
            })
            .collect();
        let object = self.compiled("unity", &sources)?;
        let library = self.source.built.join("librocksdb.so");
        if !library.exists() {
            let mut command = Command::new(self.compiler);
            command.args(["-shared", "-pthread", "-Wl,-soname,librocksdb.so", "-o"]).arg(&library);
            command.arg(&object).args(Builder::compressions().map(|(_, _, library)| library));
            run(&mut command, &library)?;
        }
        Ok(library)
    }

    /// The object of all these sources, compiled as one that includes each of them once.
    fn compiled(&self, name: &str, sources: &[PathBuf]) -> Result<PathBuf, String> {
        let object = self.objects.join(format!("{name}.o"));
        if object.exists() {
            return Ok(object);
        }
        let (mut unity, mut seen) = (String::new(), BTreeSet::new());
        for source in sources.iter().filter(|source| seen.insert(*source)) {
            let _written = writeln!(unity, "#include \"{}\"", source.display());
        }
        let path = self.objects.join(format!("{name}.cc"));
        std::fs::write(&path, unity).map_err(|error| format!("writing {}: {error}", path.display()))?;
        println!("compiling {name} of RocksDB's source (once; minutes)");
        // Compiled beside, so that an object that is there is whole.
        let partial = object.with_extension("partial");
        let mut command = Command::new("nice");
        command.arg(self.compiler).args(FLAGS).args(Builder::compressions().map(|(_, flag, _)| flag));
        for directory in ["", "include", "third-party/gtest-1.8.1/fused-src"] {
            command.arg("-I").arg(self.source.source.join(directory));
        }
        command.arg("-c").arg(&path).arg("-o").arg(&partial);
        run(&mut command, &partial)?;
        std::fs::rename(&partial, &object)
            .map_err(|error| format!("naming {}: {error}", object.display()))?;
        Ok(object)
    }

    fn compressions() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        COMPRESSIONS.into_iter().filter(|(header, ..)| Path::new("/usr/include").join(header).exists())
    }

    /// A program that finds the library beside it.
    fn linked(&self, name: &str, objects: &[PathBuf], library: &Path) -> Result<(), String> {
        let program = self.source.program(name);
        if program.exists() {
            return Ok(());
        }
        let mut command = Command::new(self.compiler);
        command.args(["-pthread", "-rdynamic", "-Wl,-rpath,$ORIGIN", "-o"]).arg(&program);
        command.args(objects).arg(library).args(["-lgflags", "-latomic"]);
        command.args(Builder::compressions().map(|(_, _, library)| library));
        run(&mut command, &program)
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))
}

fn run(command: &mut Command, makes: &Path) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot start a compiler: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first: Vec<&str> = said.lines().take(20).collect();
    Err(format!("making {}: {}\n{}", makes.display(), output.status, first.join("\n")))
}

/// The sources that a variable of RocksDB's `src.mk` lists.
fn listed(makefile: &str, variable: &str) -> Vec<String> {
    let mut lines = makefile.lines().skip_while(|line| {
        let name = line.split_once('=').map(|(name, _)| name.trim());
        name != Some(variable)
    });
    let mut sources = Vec::new();
    for (nth, line) in lines.by_ref().enumerate() {
        let line = if nth == 0 { line.split_once('=').map_or("", |(_, rest)| rest) } else { line };
        sources.extend(line.trim_end_matches('\\').split_whitespace().map(str::to_owned));
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn sources_are_found_in_their_list() {
        let makefile = "A_SOURCES = \\\n  a/b.cc \\\n  c.cc  \\\n\nSOURCES = d.cc\nOTHER = \\\n e.cc\n";
        assert_eq!(listed(makefile, "A_SOURCES"), ["a/b.cc", "c.cc"]);
        assert_eq!(listed(makefile, "SOURCES"), ["d.cc"]);
        assert!(listed(makefile, "NONE").is_empty());
    }
}
