//! A process with one engine: started, listened to, and ended when it says nothing or takes too
//! long.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Why a process is ended before it ends itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// It says at least once a second that it lives.
    pub silence: Duration,
    /// Longest step.
    pub step: Duration,
}

/// What came of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// The lines about steps that ended, by number of the step.
    pub done: Vec<(usize, Value)>,
    /// What it says that it set.
    pub settings: Option<String>,
    /// Why it did not come to its end.
    pub failure: Option<String>,
}

/// Runs `command` to its end; `heard` is told the number of the step and the operations done in it.
pub fn run(mut command: Command, limits: Limits, mut heard: impl FnMut(usize, u64)) -> Ended {
    let mut ended = Ended::default();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Ended { failure: Some(format!("cannot be started: {error}")), ..ended },
    };
    let lines = child.stdout.take().map(lines);
    let complaints = child.stderr.take().map(|stderr| std::thread::spawn(move || tail(stderr)));
    if let Some(lines) = lines {
        ended.failure = listen(&lines, limits, &mut ended, &mut heard).err();
    }
    if ended.failure.is_some() {
        // Ended already, or about to be.
        let _ = child.kill();
    }
    let status = child.wait();
    let complaint = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let failed = match status {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{status}{}{complaint}", if complaint.is_empty() { "" } else { ": " })),
        Err(error) => Some(format!("lost: {error}")),
    };
    ended.failure = match (ended.failure, failed) {
        // Its own words say more than that it was killed for them.
        (Some(reason), _) if complaint.is_empty() => Some(reason),
        (Some(reason), _) => Some(format!("{reason}: {complaint}")),
        (None, failed) => failed,
    };
    ended
}

fn listen(
    lines: &Receiver<String>,
    limits: Limits,
    ended: &mut Ended,
    heard: &mut impl FnMut(usize, u64),
) -> Result<(), String> {
    let mut step_begun = Instant::now();
    loop {
        let line = match lines.recv_timeout(limits.silence) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("no sign of life for {} s", limits.silence.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // A line that is no JSON is an engine's own chatter.
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        let step = line["step"].as_u64().and_then(|step| usize::try_from(step).ok()).unwrap_or(0);
        match line["event"].as_str() {
            Some("settings") => ended.settings = line["settings"].as_str().map(str::to_owned),
            Some("begun") => {
                step_begun = Instant::now();
                heard(step, 0);
            }
            Some("progress") => {
                heard(step, line["operations"].as_u64().unwrap_or(0));
                if step_begun.elapsed() > limits.step {
                    return Err(format!("step {step} took more than {} s", limits.step.as_secs()));
                }
            }
            Some("done") => ended.done.push((step, line)),
            _ => {}
        }
    }
}

fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

/// The last lines of what a process complained about.
pub fn tail(stderr: impl Read) -> String {
    const LINES: usize = 5;
    let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" / ")
}

/// Removes a database and whatever a process that died left of it.
pub fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { silence: Duration::from_secs(600), step: Duration::from_secs(600) };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_process_says_is_kept_in_order() {
        let script = r#"echo '{"event":"settings","settings":"cache=1"}'; echo chatter; echo '{"event":"begun","step":0}'
            echo '{"event":"progress","step":0,"operations":7}'; echo '{"event":"done","step":0,"operations":9}'"#;
        let mut heard = Vec::new();
        let ended = run(shell(script), LIMITS, |step, operations| heard.push((step, operations)));
        assert_eq!(ended.failure, None);
        assert_eq!(ended.settings.as_deref(), Some("cache=1"));
        assert_eq!((ended.done.len(), ended.done[0].1["operations"].as_u64()), (1, Some(9)));
        assert_eq!(heard, [(0, 0), (0, 7)]);
    }

    #[test]
    fn a_crash_is_told_with_the_processs_last_words_and_what_it_had_done() {
        let ended = run(
            shell(r#"echo '{"event":"done","step":0}'; echo first >&2; echo 'out of memory' >&2; exit 3"#),
            LIMITS,
            |_, _| (),
        );
        assert_eq!(ended.done.len(), 1);
        let failure = ended.failure.unwrap();
        assert!(failure.contains('3') && failure.contains("first / out of memory"), "{failure}");
        let killed = run(shell("kill -9 $$"), LIMITS, |_, _| ()).failure.unwrap();
        assert!(killed.contains("signal: 9"), "{killed}");
        assert!(
            run(Command::new("/nowhere/at/all"), LIMITS, |_, _| ())
                .failure
                .unwrap()
                .contains("cannot be started")
        );
    }

    #[test]
    fn who_says_nothing_or_takes_too_long_is_ended() {
        // `exec`: the shell itself sleeps, so that nothing is left behind.
        let silent = Limits { silence: Duration::from_millis(50), ..LIMITS };
        assert!(run(shell("exec sleep 600"), silent, |_, _| ()).failure.unwrap().contains("no sign of life"));
        let slow = Limits { step: Duration::ZERO, ..LIMITS };
        let script = concat!(
            r#"echo '{"event":"begun","step":4}'; "#,
            r#"echo '{"event":"progress","step":4,"operations":1}'; exec sleep 600"#
        );
        assert!(run(shell(script), slow, |_, _| ()).failure.unwrap().contains("step 4 took more than"));
    }
}
