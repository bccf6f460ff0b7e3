//! Guests under QEMU, whose kernel has what the kernel of this machine has not: cards for RDMA in
//! software, zoned devices.
//!
//! `install missing packages → the kernel of Debian's package → build → an initramfs → boot → what the guest says`.
//! The processor is emulated: figures of a guest say what works, and nothing of what a device would
//! take.

pub mod image;
pub mod machine;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files that every guest needs, and Debian's packages of them.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/bin/busybox", "busybox-static"),
    ("/usr/bin/cpio", "cpio"),
    ("/sbin/depmod", "kmod"),
    ("/usr/bin/strip", "binutils"),
];

/// Kept between runs.
pub struct Kept {
    /// The folder of everything that guests need.
    pub cache: PathBuf,
    /// Debian's kernel, unpacked.
    pub kernel: PathBuf,
}

impl Kept {
    /// Installs missing packages, where it may, and says where things are kept. `more` is needed
    /// beside what every guest needs. With `cached` nothing is installed or downloaded.
    ///
    /// # Errors
    /// The reason to skip it all.
    pub fn prepare(cached: bool, more: &[(&str, &str)]) -> Result<Kept, String> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("the guest is made of Linux programs of this machine, for x86-64".to_owned());
        }
        let missing = || -> Vec<&str> {
            let needed = NEEDED.iter().chain(more);
            needed.filter(|(file, _)| !Path::new(file).is_file()).map(|(_, package)| *package).collect()
        };
        let wanted = missing();
        if !wanted.is_empty() && !cached {
            let mut install = Command::new("apt-get");
            install
                .args(["install", "--yes", "--quiet", "--no-install-recommends"])
                .args(&wanted)
                .env("DEBIAN_FRONTEND", "noninteractive");
            let _ended = said(&mut install);
        }
        let missing = missing();
        if !missing.is_empty() {
            return Err(format!("not installed: {}", missing.join(" ")));
        }
        let home = std::env::var_os("HOME").ok_or("there is no home directory to keep the kernel in")?;
        let cache = Path::new(&home).join(".cache/tombolo-guest");
        std::fs::create_dir_all(&cache).map_err(|error| format!("making {}: {error}", cache.display()))?;
        let kernel = cache.join("kernel");
        if !kernel.join("boot").is_dir() {
            if cached {
                return Err("the kernel is not there yet: without --cached it is downloaded".to_owned());
            }
            download_kernel(&cache, &kernel)?;
        }
        Ok(Kept { cache, kernel })
    }
}

/// Debian's own kernel: that for clouds has no `rdma_rxe`.
fn download_kernel(cache: &Path, kernel: &Path) -> Result<(), String> {
    let depends = Command::new("apt-cache").args(["depends", "linux-image-amd64"]).output();
    let depends = depends.map_err(|error| format!("apt-cache cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&depends.stdout).into_owned();
    let package = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"));
    let package = package.ok_or("Debian's package linux-image-amd64 is unknown here (apt-get update?)")?;
    said(Command::new("apt-get").args(["download", package]).current_dir(cache))?;
    let files = std::fs::read_dir(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    let archive = files.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(package))
            && path.extension().is_some_and(|end| end == "deb")
    });
    let archive = archive.ok_or_else(|| format!("{package} was not downloaded"))?;
    // Whole or not at all.
    let unpacked = cache.join("kernel.unpacked");
    let _earlier = std::fs::remove_dir_all(&unpacked);
    said(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    std::fs::rename(&unpacked, kernel).map_err(|error| format!("{}: {error}", kernel.display()))?;
    let _removed = std::fs::remove_file(archive);
    Ok(())
}

/// Shows a command and runs it, its output on standard error.
fn said(command: &mut Command) -> Result<(), String> {
    eprintln!("$ {command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ended with {status}", command.get_program().display())),
        Err(error) => Err(format!("{} cannot be started: {error}", command.get_program().display())),
    }
}

/// Builds something, and says where its program is.
pub fn build(root: &Path, arguments: &[&str], name: &str) -> Result<PathBuf, String> {
    eprintln!("$ cargo {}", arguments.join(" "));
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .args(["--quiet", "--message-format", "json"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {} ended with {}", arguments.join(" "), output.status));
    }
    program(&String::from_utf8_lossy(&output.stdout), name)
        .ok_or_else(|| format!("cargo built no program of {name}"))
}

/// The program of a target among cargo's messages.
fn program(messages: &str, name: &str) -> Option<PathBuf> {
    let mut messages =
        messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let is_of =
        |message: &serde_json::Value| message["target"]["name"] == name && message["executable"].is_string();
    messages.rfind(is_of).and_then(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_program_is_found() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"a"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"a"},"executable":"/target/a-1"}
{"reason":"compiler-artifact","target":{"name":"b"},"executable":"/target/b"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(program(messages, "a"), Some(PathBuf::from("/target/a-1")));
        assert_eq!(program(messages, "c"), None);
    }
}
