//! What a guest boots: a kernel, and an initramfs of busybox, the kernel's modules, libraries and
//! programs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Kept;

/// Threads that end ask for it.
const FILES: &[&str] = &["/lib/x86_64-linux-gnu/libgcc_s.so.1"];
/// Folders that are there before anything is mounted.
const FOLDERS: &[&str] = &["bin", "dev", "etc", "proc", "sys", "tmp", "usr/bin"];

/// What a guest holds beside a kernel and busybox.
pub struct Contents<'a> {
    /// A word for its files beside those of other guests.
    pub name: &'a str,
    /// What its first process does once the system is up, in busybox's shell.
    pub script: &'a str,
    /// Modules that it loads, with whatever they need.
    pub modules: &'a [&'a str],
    /// Files of the machine that are the guest's too, with the libraries that they need.
    pub files: &'a [&'a str],
    /// Programs that were built, and their names there. They are stripped.
    pub programs: &'a [(&'a Path, &'a str)],
}

/// A guest that was made.
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// Everything else.
    pub initramfs: PathBuf,
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> String + 'a {
    move |error| format!("{what} {}: {error}", path.display())
}

impl Image {
    /// Makes it.
    pub fn make(kept: &Kept, contents: &Contents<'_>) -> Result<Image, String> {
        let Kept { cache, kernel } = kept;
        let (version, image) = version(kernel)?;
        let root = cache.join(format!("{}-root", contents.name));
        let _earlier = fs::remove_dir_all(&root);
        for folder in FOLDERS {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(failed("making", &folder))?;
        }
        copy(Path::new("/bin/busybox"), &root.join("bin/busybox"))?;
        copy_modules(kernel, &version, contents.modules, &root)?;
        let mut libraries = BTreeSet::new();
        for file in FILES.iter().chain(contents.files).map(Path::new) {
            copy(file, &inside(&root, file))?;
            libraries.extend(needed(file)?);
        }
        for (program, name) in contents.programs {
            let stripped = root.join("usr/bin").join(name);
            let mut strip = Command::new("strip");
            ended(strip.arg("-o").arg(&stripped).arg(program))?;
            libraries.extend(needed(program)?);
        }
        for library in libraries {
            copy(&library, &inside(&root, &library))?;
        }
        let init = root.join("init");
        fs::write(&init, format!("{}\n{}", include_str!("begin.sh"), contents.script))
            .map_err(failed("writing", &init))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(failed("writing", &init))?;
        let initramfs = cache.join(format!("{}-initramfs", contents.name));
        let archive = fs::File::create(&initramfs).map_err(failed("making", &initramfs))?;
        let mut pack = Command::new("sh");
        pack.args(["-ec", "find . | cpio --create --format=newc --quiet"]).current_dir(&root).stdout(archive);
        ended(&mut pack)?;
        Ok(Image { kernel: image, initramfs })
    }
}

/// The kernel's version, and its image.
fn version(kernel: &Path) -> Result<(String, PathBuf), String> {
    let boot = kernel.join("boot");
    let names =
        fs::read_dir(&boot).map_err(failed("reading", &boot))?.flatten().map(|entry| entry.file_name());
    let version = names.filter_map(|name| name.to_str()?.strip_prefix("vmlinuz-").map(str::to_owned)).next();
    let version = version.ok_or_else(|| format!("{} has no kernel", boot.display()))?;
    let image = boot.join(format!("vmlinuz-{version}"));
    Ok((version, image))
}

fn copy_modules(kernel: &Path, version: &str, modules_of_guest: &[&str], root: &Path) -> Result<(), String> {
    ended(Command::new("/sbin/depmod").arg("-b").arg(kernel).arg(version))?;
    for module in modules_of_guest {
        let mut ask = Command::new("/sbin/modprobe");
        ask.arg("-d").arg(kernel).args(["-S", version, "--show-depends", module]);
        let output = ask.output().map_err(|error| format!("modprobe cannot be started: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        for file in modules(&text) {
            let within = file
                .strip_prefix(kernel)
                .map_err(|_| format!("{module} is not of this kernel: {}", file.display()))?;
            copy(file, &root.join(within))?;
        }
        if !output.status.success() {
            return Err(format!("the kernel has no module {module}"));
        }
    }
    for list in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        let within = Path::new("lib/modules").join(version).join(list);
        copy(&kernel.join(&within), &root.join(&within))?;
    }
    ended(Command::new("/sbin/depmod").arg("-b").arg(root).arg(version))
}

/// Files among the words of modprobe, which options may follow.
fn modules(text: &str) -> impl Iterator<Item = &Path> {
    text.lines().filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next()).map(Path::new)
}

/// Where a file of the machine lies in the guest.
fn inside(root: &Path, file: &Path) -> PathBuf {
    root.join(file.strip_prefix("/").unwrap_or(file))
}

/// Copies what a name leads to.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed("making", folder))?;
    }
    fs::copy(from, to).map(drop).map_err(failed("copying", from))
}

/// Libraries that a program or a library needs, its loader included.
fn needed(program: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|error| format!("ldd cannot be started: {error}"))?;
    Ok(libraries(&String::from_utf8_lossy(&output.stdout)))
}

/// Paths among the words of `ldd`.
fn libraries(text: &str) -> BTreeSet<PathBuf> {
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

fn ended(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_what_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 \
            (0x00007f)\n\t/lib64/ld-linux.so.2 (0x00007f)\n";
        assert_eq!(libraries(text), BTreeSet::from(["/lib/libc.so.6".into(), "/lib64/ld-linux.so.2".into()]));
        assert!(libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn modules_are_found_without_their_options() {
        let text = "insmod /lib/a.ko \nbuiltin b\ninsmod /lib/dummy.ko numdummies=0 \n";
        assert_eq!(modules(text).collect::<Vec<_>>(), ["/lib/a.ko", "/lib/dummy.ko"].map(Path::new));
    }
}
