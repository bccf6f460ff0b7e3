//! Redis with its append-only file, as its package installs it; skipped with a message where it is
//! not.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::setup::{Setup, installed, kill, printed, rounds};

/// Writes that are on their way at once.
const PIPELINED: u64 = 8;

struct Server {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Server {
    fn start(setup: &Setup, program: &Path) -> Server {
        let socket: PathBuf = setup.directory.path().join("redis.socket");
        let _gone = std::fs::remove_file(&socket);
        let arguments = "--port 0 --save  --appendonly yes --appendfsync always --enable-debug-command yes";
        let child = setup
            .command(program)
            .args(arguments.split(' '))
            .args(["--unixsocket", socket.to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Until it listens: it says so nowhere else.
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut server = Server { child, stream: BufReader::new(stream) };
        while server.ask("PING").starts_with("-LOADING") {}
        server
    }

    fn send(&mut self, command: &str) {
        write!(self.stream.get_mut(), "{command}\r\n").unwrap();
    }

    /// The next answer: a line, and for a string the line after it.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        if line.starts_with('$') && line != "$-1" {
            let mut text = String::new();
            self.stream.read_line(&mut text).unwrap();
            return text.trim_end().to_owned();
        }
        line
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }
}

fn value(number: u64) -> String {
    format!("value-{number}-{}", "x".repeat(usize::try_from(number * 37 % 900).unwrap()))
}

#[test]
fn redis_survives_kills_and_rewrites() {
    let (Some(program), Some(check)) = (installed("redis-server"), installed("redis-check-aof")) else {
        return;
    };
    let setup = Setup::new(&["appendonlydir/*"]);
    let mut acknowledged = 0;
    for round in 0..rounds() {
        let mut server = Server::start(&setup, &program);
        for number in 0..acknowledged {
            assert_eq!(server.ask(&format!("GET key-{number}")), value(number), "round {round}");
        }
        let target = acknowledged + 60 + round * 11 % 50;
        for number in acknowledged..target {
            server.send(&format!("SET key-{number} {}", value(number)));
            // In the middle the whole file is written anew, by a child, and put in the place of the
            // old one.
            if number == target - 40 && round % 2 == 0 {
                server.send("BGREWRITEAOF");
            }
        }
        // Those after it are killed at any point.
        while acknowledged < target - PIPELINED {
            match server.answer().as_str() {
                "+OK" => acknowledged += 1,
                rewriting => assert!(rewriting.starts_with("+Background"), "{rewriting}"),
            }
        }
        kill(server.child);
        let mut checking = setup.command(&check);
        let checked = checking
            .arg("appendonly.aof.manifest")
            .current_dir(setup.files().join("appendonlydir"))
            .output()
            .unwrap();
        assert!(printed(&checked).contains("All AOF files and manifest are valid"), "round {round}");
    }
    let manifest = std::fs::read(setup.files().join("appendonlydir/appendonly.aof.manifest")).unwrap();
    assert!(manifest.starts_with(b"TOMBOLO-PRELOAD 1 "));
}

/// Redis begins anew where it finds no directory: it asks for that before it asks for any file.
#[test]
fn redis_finds_its_files_on_a_machine_without_its_directory() {
    let Some(program) = installed("redis-server") else { return };
    let setup = Setup::new(&["appendonlydir/*"]);
    let mut server = Server::start(&setup, &program);
    assert_eq!(server.ask("SET key value"), "+OK");
    kill(server.child);
    std::fs::remove_dir_all(setup.files().join("appendonlydir")).unwrap();
    let mut server = Server::start(&setup, &program);
    let found = server.ask("GET key");
    kill(server.child);
    assert_eq!(found, "value");
}
