//! A child process that runs this binary in a hidden mode, and can be stopped, woken and killed.

use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::Message;

/// A writer process. Killed when dropped.
#[derive(Debug)]
pub struct Writer {
    child: Child,
    pid: Pid,
    /// Closed to tell the writer to finish.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    /// Starts this binary with `arguments`; `heard` is called with each message, on a thread of its
    /// own.
    pub fn start(
        arguments: &[OsString],
        mut heard: impl FnMut(Message) + Send + 'static,
    ) -> io::Result<Writer> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("a child without a process id"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("a child without a pipe"))?;
        let reader = std::thread::spawn(move || {
            let mut pipe = BufReader::with_capacity(1 << 18, stdout);
            while let Some(message) = Message::read(&mut pipe)? {
                heard(message);
            }
            Ok(())
        });
        Ok(Writer { child, pid, stdin, reader: Some(reader) })
    }

    /// Stops the process where it stands, and returns once it does.
    pub fn stop(&self) -> io::Result<()> {
        kill_process(self.pid, Signal::STOP)?;
        loop {
            match waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => return Ok(()),
                Ok(_) => return Err(io::Error::other("the process ended instead of stopping")),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Wakes a stopped process.
    pub fn wake(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Kills the process with SIGKILL and hears the rest of its pipe: what was acknowledged before
    /// it died. One that had ended before is an error.
    pub fn kill(mut self) -> io::Result<()> {
        let earlier = self.child.try_wait()?;
        self.child.kill()?;
        self.child.wait()?;
        self.hear_the_rest()?;
        earlier.map_or(Ok(()), |status| {
            Err(io::Error::other(format!("the process had ended before it was killed: {status}")))
        })
    }

    /// Tells the writer to finish.
    pub fn finish(&mut self) {
        self.stdin = None;
    }

    /// Waits for the process to end by itself.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.finish();
        let status = self.child.wait()?;
        self.hear_the_rest()?;
        Ok(status)
    }

    /// As [`Writer::wait`]; a writer that takes longer is killed, and that is an error.
    pub fn wait_for(mut self, time_max: Duration) -> io::Result<ExitStatus> {
        self.finish();
        let end = Instant::now() + time_max;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.hear_the_rest()?;
                return Ok(status);
            }
            if Instant::now() >= end {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("it has not ended within {} s", time_max.as_secs()),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn hear_the_rest(&mut self) -> io::Result<()> {
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that reads the writer's pipe panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Ended already, or nothing more to do about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: dies with its parent, even stopped, so that no writer is left behind.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have gone before the call.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::other("the parent process is gone"));
    }
    Ok(())
}

/// In a child: watches standard input, whose end means "finish".
pub fn finish_requested() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let set = std::sync::Arc::clone(&flag);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        set.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    flag
}

/// In a child: the pipe to the parent, shared by threads.
#[derive(Debug, Default)]
pub struct Pipe(std::sync::Mutex<Vec<u8>>);

impl Pipe {
    /// Sends messages, in order, in as few system calls as can be; returns once the kernel has
    /// them.
    pub fn send(&self, messages: &[Message]) -> io::Result<()> {
        let mut buffer =
            self.0.lock().map_err(|_| io::Error::other("a thread panicked while it reported"))?;
        buffer.clear();
        for message in messages {
            message.write(&mut *buffer)?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&buffer)?;
        stdout.flush()
    }
}
