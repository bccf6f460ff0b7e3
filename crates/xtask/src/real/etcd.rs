//! Nodes that announce themselves in a real etcd: writers find them, and one that is killed
//! vanishes with its lease. Once without TLS and users, by our own small client, and once in an
//! etcd that asks for certificates and a user, by the field's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::servers::{Kind, free_port};
use crate::nodes::Node;
use crate::programs::build_with;

/// How long etcd may take to answer, and a dead node to vanish: its lease is 15 s.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Why it did not pass.
pub enum Trouble {
    /// It cannot be built or started here.
    Skipped(String),
    /// Something of ours is wrong.
    Failed(String),
}

/// A running etcd, and its directory.
struct Etcd {
    process: Child,
    directory: PathBuf,
    address: String,
    /// Whether it asks for certificates and a user, which lie in its directory.
    is_guarded: bool,
}

/// The user that nodes and writers are, and the one that may do all; and their password.
const USER: &str = "nodes";
const PASSWORD: &str = "a password of nodes";

/// `tombolo/nodes/` and `tombolo/nodes0`, between which the registry's keys are.
const KEYS: (&str, &str) = ("dG9tYm9sby9ub2Rlcy8=", "dG9tYm9sby9ub2RlczA=");

/// Makes certificates of a new authority, for both sides: names without a person, as etcd's own
/// gateway asks for one that is no user.
const CERTIFICATES: &str = "\
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=authority -keyout ca.key -out ca.crt
openssl req -newkey rsa:2048 -nodes -subj /O=tombolo -addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.csr
openssl x509 -req -days 2 -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -copy_extensions copy -out tls.crt";

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ended = (self.process.kill(), self.process.wait());
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

impl Etcd {
    fn start(program: &Path, is_guarded: bool) -> Result<Etcd, String> {
        let (address, peers) =
            (format!("127.0.0.1:{}", free_port()?), format!("http://127.0.0.1:{}", free_port()?));
        let directory = std::env::temp_dir().join(format!("tombolo-real-etcd-{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let client = format!("{}://{address}", if is_guarded { "https" } else { "http" });
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(directory.join("etcd")).args([
            "--log-level",
            "error",
            "--unsafe-no-fsync",
        ]);
        if is_guarded {
            certificates(&directory)?;
            command.arg("--client-cert-auth");
            for (option, file) in
                [("--trusted-ca-file", "ca.crt"), ("--cert-file", "tls.crt"), ("--key-file", "tls.key")]
            {
                command.arg(option).arg(directory.join(file));
            }
        }
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
        ]);
        let started = command
            .arg(format!("default={peers}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = started.map_err(|error| format!("starting it: {error}"))?;
        let etcd = Etcd { process, directory, address, is_guarded };
        if is_guarded {
            until("etcd has a user for nodes, and asks for one", || etcd.guard())?;
        }
        Ok(etcd)
    }

    fn uri(&self) -> String {
        let directory = self.directory.display();
        let guard = format!("?tls={directory}&user={USER}&password_file={directory}/password");
        format!("etcd://{}{}", self.address, if self.is_guarded { &guard } else { "" })
    }

    /// Posts JSON, without any of our code. What it says.
    fn post(&self, path: &str, body: &str, token: Option<&str>) -> Result<String, String> {
        let scheme = if self.is_guarded { "https" } else { "http" };
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "5", "--data", body]);
        if self.is_guarded {
            for (option, file) in [("--cacert", "ca.crt"), ("--cert", "tls.crt"), ("--key", "tls.key")] {
                command.arg(option).arg(self.directory.join(file));
            }
        }
        if let Some(token) = token {
            command.args(["--header", &format!("Authorization: {token}")]);
        }
        let output = command.arg(format!("{scheme}://{}{path}", self.address)).output();
        let output = output.map_err(|error| format!("cannot start curl: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("curl ended with {}", output.status)),
        }
    }

    /// Makes the users, and has nothing done without one from then on.
    fn guard(&self) -> Result<(), String> {
        let (key, end) = KEYS;
        let steps = [
            ("user/add", format!(r#"{{"name":"root","password":"{PASSWORD}"}}"#)),
            ("role/add", r#"{"name":"root"}"#.to_owned()),
            ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
            ("user/add", format!(r#"{{"name":"{USER}","password":"{PASSWORD}"}}"#)),
            ("role/add", format!(r#"{{"name":"{USER}"}}"#)),
            (
                "role/grant",
                format!(
                    "{{\"name\":\"{USER}\",\"perm\":{{\"permType\":\"READWRITE\",\"key\":\"{key}\",\
                \"range_end\":\"{end}\"}}}}"
                ),
            ),
            ("user/grant", format!(r#"{{"user":"{USER}","role":"{USER}"}}"#)),
            ("enable", "{}".to_owned()),
        ];
        for (path, body) in steps {
            let said = self.post(&format!("/v3/auth/{path}"), &body, None)?;
            // A step that an attempt before has made.
            if said.contains("\"error\"") && !said.contains("already exist") {
                return Err(format!("{path}: {said}"));
            }
        }
        Ok(())
    }

    /// The registry's entries, asked for without any of our code.
    fn range(&self) -> Result<String, String> {
        let token = if self.is_guarded {
            let body = format!(r#"{{"name":"{USER}","password":"{PASSWORD}"}}"#);
            let said = self.post("/v3/auth/authenticate", &body, None)?;
            let said: Value = serde_json::from_str(&said).map_err(|error| format!("{said}: {error}"))?;
            Some(said["token"].as_str().ok_or("no token for a user")?.to_owned())
        } else {
            None
        };
        let body = format!(r#"{{"key":"{}","range_end":"{}"}}"#, KEYS.0, KEYS.1);
        self.post("/v3/kv/range", &body, token.as_deref())
    }
}

/// Certificates, and the file with the password.
fn certificates(directory: &Path) -> Result<(), String> {
    let write = std::fs::write(directory.join("password"), PASSWORD);
    write.map_err(|error| format!("{}: {error}", directory.display()))?;
    let made = Command::new("sh").args(["-ec", CERTIFICATES]).current_dir(directory).output();
    let made = made.map_err(|error| format!("cannot start sh: {error}"))?;
    match made.status.success() {
        true => Ok(()),
        false => Err(format!("making certificates: {}", String::from_utf8_lossy(&made.stderr).trim())),
    }
}

/// Installs what building the client of etcd takes, where it may.
fn install_protoc() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("protoc") {
        let packages = ["protobuf-compiler", "libprotobuf-dev"];
        eprintln!("$ apt-get install --yes {}", packages.join(" "));
        let mut install = Command::new("apt-get");
        let _installed = install.args(["install", "--yes", "--quiet"]).args(packages).status();
    }
}

/// Runs it.
pub fn run(root: &Path, cached: bool, profile: &str) -> Result<(), Trouble> {
    let program = Kind::Etcd.program(cached).map_err(Trouble::Skipped)?;
    install_protoc();
    let built = build_with(root, profile, "tombolo-cli", &["etcd"]).map_err(Trouble::Failed)?;
    let binary = built.join("tombolo");
    for is_guarded in [false, true] {
        let etcd = Etcd::start(&program, is_guarded).map_err(Trouble::Skipped)?;
        let how = if is_guarded { "with certificates and a user" } else { "as it is" };
        eprintln!("etcd serves at {}, {how}", etcd.address);
        try_out(&binary, &etcd).map_err(Trouble::Failed)?;
    }
    Ok(())
}

fn try_out(binary: &Path, etcd: &Etcd) -> Result<(), String> {
    let announced = ["--announce".to_owned(), etcd.uri(), "--registry".to_owned(), "real".to_owned()];
    let mut nodes = (0..4).map(|_| Node::start(binary, &announced)).collect::<Result<Vec<_>, _>>()?;
    let store = format!("file://{}", etcd.directory.join("orders").display());
    // A URI in another one.
    let log = format!("near://real?registry={}", etcd.uri().replace('&', "%26"));
    let announced = |count: usize| {
        let said = etcd.range()?;
        if said.matches("\"key\"").count() == count { Ok(()) } else { Err(said) }
    };
    // etcd elects a leader first, and nodes try again every five seconds.
    until("all nodes have announced themselves", || announced(nodes.len()))?;
    database(binary, &["create"], &store, &log, &[])?;
    database(binary, &["put"], &store, &log, &["a", "1"])?;
    let killed = nodes.remove(0);
    drop(killed);
    database(binary, &["put"], &store, &log, &["b", "2"])?;
    until("the killed node has vanished", || announced(nodes.len()))?;
    for (key, value) in [("a", "1"), ("b", "2")] {
        let found = database(binary, &["get"], &store, &log, &[key])?;
        if found.trim() != value {
            return Err(format!("{key} is {found:?} after a node was lost"));
        }
    }
    if etcd.is_guarded {
        refused(binary, etcd, &store)?;
    }
    drop(nodes);
    let status = database(binary, &["put"], &store, &log, &["c", "3"]);
    let refused = status.err().ok_or("a write without nodes was acknowledged")?;
    eprintln!("without nodes: {refused}");
    Ok(())
}

/// A wrong password, no user and no certificate are refused, and said.
fn refused(binary: &Path, etcd: &Etcd, store: &str) -> Result<(), String> {
    let directory = etcd.directory.display();
    std::fs::write(etcd.directory.join("wrong"), "wrong").map_err(|error| error.to_string())?;
    let uri = |rest: &str| format!("near://real?registry=etcd://{}{rest}", etcd.address);
    for (what, log, word) in [
        (
            "a wrong password",
            uri(&format!("?tls={directory}%26user={USER}%26password_file={directory}/wrong")),
            "password",
        ),
        ("no user", uri(&format!("?tls={directory}")), "user"),
        ("no certificate", uri(""), "TLS"),
    ] {
        let said = database(binary, &["get"], store, &log, &["a"])
            .err()
            .ok_or_else(|| format!("{what} was accepted"))?;
        if !said.contains(word) || said.contains(PASSWORD) {
            return Err(format!("{what}: {said}"));
        }
        eprintln!("{what}: {said}");
    }
    Ok(())
}

/// Tries again until it goes well, or the time is up.
fn until<T>(what: &str, attempt: impl Fn() -> Result<T, String>) -> Result<(), String> {
    let end = Instant::now() + TIME_MAX;
    loop {
        match attempt() {
            Ok(_) => {
                eprintln!("{what}");
                return Ok(());
            }
            Err(error) if Instant::now() > end => {
                return Err(format!("not within {} s: {what}: {error}", TIME_MAX.as_secs()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// A command on the database; what it prints.
fn database(binary: &Path, verb: &[&str], store: &str, log: &str, rest: &[&str]) -> Result<String, String> {
    let mut command = Command::new(binary);
    command.arg("db").args(verb).arg(store).args(rest).args(["--log", log]).env_remove("TOMBOLO_NODE_SECRET");
    let output = command.output().map_err(|error| format!("cannot start tombolo: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{verb:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
