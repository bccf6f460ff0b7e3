//! The guest: a kernel, and an initramfs of busybox, the kernel's modules, libraries and what is to
//! be run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Modules that the guest loads, with whatever they need.
const MODULES: &[&str] = &["rdma_rxe", "ib_uverbs", "crc32_generic", "dummy"];
/// Files of the machine that are the guest's too, with the libraries that they need.
const FILES: &[&str] = &[
    "/usr/bin/rdma",
    "/etc/libibverbs.d/rxe.driver",
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
    // Threads that end ask for it.
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
];
/// Folders that are there before anything is mounted.
const FOLDERS: &[&str] = &["bin", "dev", "etc", "proc", "sys", "tmp", "usr/bin"];
/// Memory, processors, and no devices but a console.
const MACHINE: &str = "-accel tcg,thread=multi -cpu max -machine q35 -m 1536 -smp 2 -nographic -nodefaults \
    -no-reboot -serial stdio";
/// Begins the guest's last line.
const VERDICT: &str = "== guest: ";

/// A guest that was made.
pub struct Guest {
    image: PathBuf,
    initramfs: PathBuf,
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> String + 'a {
    move |error| format!("{what} {}: {error}", path.display())
}

impl Guest {
    /// Makes one that runs `script`. Programs are stripped and get these names.
    pub fn make(
        cache: &Path,
        kernel: &Path,
        script: &str,
        programs: &[(&Path, &str)],
    ) -> Result<Guest, String> {
        let (version, image) = version(kernel)?;
        let root = cache.join("root");
        let _earlier = fs::remove_dir_all(&root);
        for folder in FOLDERS {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).map_err(failed("making", &folder))?;
        }
        copy(Path::new("/bin/busybox"), &root.join("bin/busybox"))?;
        copy_modules(kernel, &version, &root)?;
        let mut libraries = BTreeSet::new();
        for file in FILES.iter().map(Path::new) {
            copy(file, &inside(&root, file))?;
            libraries.extend(needed(file)?);
        }
        for (program, name) in programs {
            let stripped = root.join("usr/bin").join(name);
            let mut strip = Command::new("strip");
            ended(strip.arg("-o").arg(&stripped).arg(program))?;
            libraries.extend(needed(program)?);
        }
        for library in libraries {
            copy(&library, &inside(&root, &library))?;
        }
        let init = root.join("init");
        fs::write(&init, script).map_err(failed("writing", &init))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(failed("writing", &init))?;
        let initramfs = cache.join("initramfs");
        let archive = fs::File::create(&initramfs).map_err(failed("making", &initramfs))?;
        let mut pack = Command::new("sh");
        pack.args(["-ec", "find . | cpio --create --format=newc --quiet"]).current_dir(&root).stdout(archive);
        ended(&mut pack)?;
        Ok(Guest { image, initramfs })
    }

    /// Runs it, and shows what it says. An error unless its last line says that nothing failed.
    pub fn run(&self, time_max: Duration) -> Result<(), String> {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(MACHINE.split_whitespace())
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&self.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]).stdin(Stdio::null()).stdout(Stdio::piped());
        eprintln!("$ {command:?}");
        let mut child = command.spawn().map_err(|error| format!("QEMU cannot be started: {error}"))?;
        let (said, lines) = mpsc::channel();
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            for line in output
                .into_iter()
                .flat_map(|output| BufReader::new(output).split(b'\n'))
                .map_while(Result::ok)
            {
                if said.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    return;
                }
            }
        });
        let deadline = Instant::now() + time_max;
        let verdict = loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    println!("{line}");
                    let _closed = std::io::stdout().flush();
                    if let Some(verdict) = line.strip_prefix(VERDICT) {
                        break verdict.to_owned();
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break format!("no verdict within {time_max:?}"),
                Err(mpsc::RecvTimeoutError::Disconnected) => break "it ended without a verdict".to_owned(),
            }
        };
        // It is about to turn itself off, or has nothing more to say.
        let _ended = (child.kill(), child.wait());
        drop(lines);
        let _read = reader.join();
        if verdict.starts_with("0 failed ") { Ok(()) } else { Err(format!("in the guest: {verdict}")) }
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

fn copy_modules(kernel: &Path, version: &str, root: &Path) -> Result<(), String> {
    ended(Command::new("/sbin/depmod").arg("-b").arg(kernel).arg(version))?;
    for module in MODULES {
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
