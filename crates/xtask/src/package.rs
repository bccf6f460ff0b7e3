//! What a distribution installs, as a tree below `target/package`: the command with its pages and
//! completions, units of systemd, the libraries for C with headers and pkg-config. Where `dpkg-deb`
//! is there, a Debian package of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// Options of `package`.
#[derive(Args)]
pub struct Arguments {
    /// Takes what a build for tests made, which is there sooner: to look at the tree.
    #[arg(long)]
    debug: bool,
}

/// Where all of it is installed.
const PREFIX: &str = "/usr";

/// Builds the tree, and the package.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let (profile, flag) = if arguments.debug { ("debug", &[][..]) } else { ("release", &["--release"][..]) };
    let packages = ["-p", "tombolo-cli", "-p", "tombolo-capi", "-p", "tombolo-rocksdb"];
    let features = ["--features", "tombolo-cli/cloud,tombolo-capi/cloud,tombolo-rocksdb/cloud"];
    let mut build = Command::new(env!("CARGO"));
    ended(build.arg("build").args(flag).args(packages).args(features).current_dir(root), "the build")?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = built.join(profile);
    let tree = root.join("target/package/tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(|error| format!("removing {}: {error}", tree.display()))?;
    }
    let usr = tree.join(PREFIX.trim_start_matches('/'));
    copy(&built.join("tombolo"), &usr.join("bin/tombolo"))?;
    for library in ["libtombolo_c.so", "libtombolo_c.a", "libtombolo_rocksdb.so"] {
        copy(&built.join(library), &usr.join("lib").join(library))?;
    }
    let crates = root.join("crates");
    copy(&crates.join("capi/include/tombolo.h"), &usr.join("include/tombolo.h"))?;
    copy(&crates.join("rocksdb_c/include/rocksdb/c.h"), &usr.join("include/tombolo/rocksdb/c.h"))?;
    copy(&crates.join("capi/examples/orders.c"), &usr.join("share/doc/tombolo/examples/orders.c"))?;
    let template = fs::read_to_string(crates.join("capi/tombolo.pc.in"))
        .map_err(|error| format!("reading tombolo.pc.in: {error}"))?;
    let described = template.replace("@PREFIX@", PREFIX).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    write(&usr.join("lib/pkgconfig/tombolo.pc"), described.as_bytes())?;
    for unit in ["tombolo-node.service", "tombolo-standby@.service"] {
        copy(&root.join("packaging").join(unit), &usr.join("lib/systemd/system").join(unit))?;
    }
    let command = usr.join("bin/tombolo");
    let pages = usr.join("share/man/man1");
    ended(
        Command::new(&command).arg("manual").arg(&pages).stdout(std::process::Stdio::null()),
        "the manual",
    )?;
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/tombolo"),
        ("zsh", "share/zsh/vendor-completions/_tombolo"),
        ("fish", "share/fish/vendor_completions.d/tombolo.fish"),
    ] {
        let output = Command::new(&command).args(["completions", shell]).output();
        let output = output.map_err(|error| format!("completions of {shell}: {error}"))?;
        if !output.status.success() {
            return Err(format!("completions of {shell}: the command ended with {}", output.status));
        }
        write(&usr.join(path), &output.stdout)?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        copy(&root.join(license), &usr.join("share/doc/tombolo").join(license))?;
    }
    println!("the tree: {}", tree.display());
    debian(&tree)
}

/// A Debian package of the tree.
fn debian(tree: &Path) -> Result<(), String> {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        println!("dpkg-deb is not here: no Debian package is made");
        return Ok(());
    }
    let architecture = Command::new("dpkg").arg("--print-architecture").output();
    let architecture = architecture.map_err(|error| format!("asking dpkg for the architecture: {error}"))?;
    let architecture = String::from_utf8_lossy(&architecture.stdout).trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let control = format!(
        "Package: tombolo\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Tombolo \
        project <maintainers@tombolo-db.org>\nDepends: libc6, libgcc-s1\n\
        Recommends: ca-certificates\nSection: database\nPriority: optional\nDescription: embedded LSM key-value engine on shared storage\n \
        The command, units for nodes and standbys, and the libraries for C.\n"
    );
    write(&tree.join("DEBIAN/control"), control.as_bytes())?;
    let package = tree.with_file_name(format!("tombolo_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(tree).arg(&package);
    ended(build.stdout(std::process::Stdio::null()), "the Debian package")?;
    println!("the package: {}", package.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("copying {} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    fs::copy(from, to).map(drop).map_err(failed)
}

fn write(to: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |error| format!("writing {}: {error}", to.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    fs::write(to, bytes).map_err(failed)
}

/// Runs a program; it must end well.
fn ended(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{what}: cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what}: {command:?} ended with {status}")) }
}
