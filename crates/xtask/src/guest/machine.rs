//! A guest that runs: its lines, its last word, and its plug.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::image::Image;

/// Memory, processors, and no devices but a console.
const MACHINE: &str =
    "-accel tcg,thread=multi -cpu max -machine q35 -m 1536 -smp 2 -nographic -nodefaults -serial stdio";
/// Begins the guest's last line.
const VERDICT: &str = "== guest: ";

/// A guest that runs. It ends when this is dropped.
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

impl Machine {
    /// Boots one, with `more` of QEMU's options. What it says is shown.
    pub fn start(image: &Image, more: &[String], time_max: Duration) -> Result<Machine, String> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(MACHINE.split_whitespace()).args(more);
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]).stdin(Stdio::null()).stdout(Stdio::piped());
        eprintln!("$ {command:?}");
        let mut child = command.spawn().map_err(|error| format!("QEMU cannot be started: {error}"))?;
        let (said, lines) = mpsc::channel();
        let output = child.stdout.take();
        // Ends with the guest, or at the first line that nobody wants.
        std::thread::spawn(move || {
            for line in output
                .into_iter()
                .flat_map(|output| BufReader::new(output).split(b'\n'))
                .map_while(Result::ok)
            {
                // The firmware clears the screen.
                let line = String::from_utf8_lossy(&line).replace(char::is_control, "");
                if said.send(line.trim_end().to_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Machine { child, lines, deadline: Instant::now() + time_max })
    }

    /// Shows lines up to one that has `begin` in it, and gives what follows there.
    ///
    /// # Errors
    /// When the guest ends first, or takes too long.
    pub fn until(&self, begin: &str) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    println!("{line}");
                    let _closed = std::io::stdout().flush();
                    // After a cut the firmware's own words may stand before it.
                    if let Some((_, rest)) = line.split_once(begin) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("the guest took too long, and did not say {begin:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the guest ended, and did not say {begin:?}"));
                }
            }
        }
    }

    /// Shows what it says to the end. An error unless its last line says that nothing failed.
    pub fn verdict(&self) -> Result<(), String> {
        let verdict = self.until(VERDICT)?;
        if verdict.starts_with("0 failed ") { Ok(()) } else { Err(format!("in the guest: {verdict}")) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ended = (self.child.kill(), self.child.wait());
    }
}

/// A socket that QEMU has made, or makes soon.
pub fn connect(socket: &Path) -> Result<UnixStream, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("connecting to {}: {error}", socket.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
