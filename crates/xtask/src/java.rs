//! Tombolo for Java: the library for C is built, then Maven compiles `java/` over it and runs its
//! tests, Kafka's own tests of stores among them.
//!
//! No part of the check, as Maven fetches what the tests need.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// The first with the foreign-function interface.
const JDK_MIN: u32 = 22;

/// Options of `java`.
#[derive(Args, Default)]
pub struct Arguments {
    /// With the library optimised, as for jars that are given away.
    #[arg(long)]
    release: bool,
    /// Further words for Maven, as `-- -Dtest=BindingsTest`.
    #[arg(last = true)]
    maven: Vec<String>,
}

/// Says what keeps it from being run here: which tools are missing, and how to get them.
///
/// # Errors
/// The same.
pub fn tools() -> Result<PathBuf, String> {
    if Command::new("mvn").arg("--version").output().is_err() {
        return Err("Maven is missing: `apt-get install maven`, or from its site".to_owned());
    }
    jdk().ok_or_else(|| {
        format!(
            "there is no JDK of {JDK_MIN} or later: set JAVA_HOME to one; Debian's newest is `apt-get install \
            default-jdk`, Temurin's are on its site"
        )
    })
}

/// Builds the library and runs Maven.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let jdk = tools()?;
    let profile = if arguments.release { "release" } else { "debug" };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "-p", "tombolo-capi"]).args(arguments.release.then_some("--release"));
    ended(build.current_dir(root), "the library for C")?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let library = built.join(profile).join("libtombolo_c.so");
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--no-transfer-progress", "verify"]);
    maven.arg(format!("-Dtombolo.native={}", library.display())).args(&arguments.maven);
    maven.env("JAVA_HOME", &jdk).current_dir(root.join("java"));
    ended(&mut maven, "Maven's tests")?;
    println!("the jars lie below {}, the library is {}", root.join("java").display(), library.display());
    Ok(())
}

/// The newest JDK that is found: `JAVA_HOME`, the one of `javac` in the path, and the usual places.
fn jdk() -> Option<PathBuf> {
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        let real = folder.join("javac").canonicalize().ok();
        homes.extend(real.and_then(|javac| Some(javac.parent()?.parent()?.to_owned())));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for place in [
        PathBuf::from("/usr/lib/jvm"),
        PathBuf::from("/opt/java"),
        home.join(".sdkman/candidates/java"),
        home.join(".jdks"),
    ] {
        let entries = std::fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
        homes.extend(entries.map(|entry| entry.path()));
    }
    let dated = homes.into_iter().filter_map(|home| Some((version(&home)?, home)));
    dated.filter(|(version, _)| *version >= JDK_MIN).max_by_key(|(version, _)| *version).map(|(_, home)| home)
}

/// The feature number of a JDK, as its file `release` says.
fn version(home: &Path) -> Option<u32> {
    if !home.join("bin/javac").exists() {
        return None;
    }
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    line.trim_matches('"').split(['.', '-', '+']).next()?.parse().ok()
}

/// Runs a program that shows what it does; it must end well.
fn ended(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{what}: cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what}: {command:?} ended with {status}")) }
}
