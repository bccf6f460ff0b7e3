//! Servers: how each is built, started, and told its bucket. They end when dropped.

use std::fmt;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::hdfs;

const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const MINIO: &str = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c";
/// As a package of cargo's, and its version.
const S3S_FS: (&str, &str) = ("s3s-fs", "0.14.1");
const AZURITE: &str = "azurite@3.37.0";
const ETCD: &str = "go.etcd.io/etcd/server/v3";
const ETCD_VERSION: &str = "v3.6.5";

/// The account that every Azurite has, and its key: both are in its documentation.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const USER: &str = "tombolo";
/// What signs requests to the servers of S3.
pub const PASSWORD: &str = "tombolo-tests-only";
const BUCKET: &str = "bucket";

/// How long a server may take to listen.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// How long it may take to do what it is told.
const TELL_TIME_MAX: Duration = Duration::from_secs(120);

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Versity's S3 gateway over a directory.
    Versitygw,
    /// MinIO; several minutes to build.
    Minio,
    /// Azurite, the emulator of Azure's blob storage.
    Azurite,
    /// HDFS, a small cluster of it in one process of Java; 90 MB to fetch with Maven.
    Hdfs,
    /// etcd, where nodes announce themselves; it is no store. A minute to build.
    Etcd,
    /// A server of S3 whose conditional put lets several win: it is there to be refused. A minute
    /// to build.
    S3sFs,
    /// No server: applications of Kafka Streams, whose state is in databases of Tombolo, and
    /// Kafka's own tests of stores; 100 MB to fetch with Maven.
    KafkaStreams,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Versitygw => "versitygw",
            Kind::Minio => "minio",
            Kind::Azurite => "azurite",
            Kind::Hdfs => "hdfs",
            Kind::Etcd => "etcd",
            Kind::S3sFs => "s3s-fs",
            Kind::KafkaStreams => "kafka-streams",
        })
    }
}

impl Kind {
    /// Whether its bucket is a directory of its data.
    fn has_plain_bucket(self) -> bool {
        matches!(self, Kind::Versitygw | Kind::Minio | Kind::S3sFs)
    }

    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Versitygw,
        Kind::Minio,
        Kind::Azurite,
        Kind::Hdfs,
        Kind::Etcd,
        Kind::S3sFs,
        Kind::KafkaStreams,
    ];

    /// The program to start, built when it is not there.
    pub fn program(self, cached: bool) -> Result<PathBuf, String> {
        let home = std::env::var_os("HOME").ok_or("there is no home directory to keep it in")?;
        let cache = Path::new(&home).join(".cache/tombolo-real");
        let program = match self {
            Kind::Versitygw | Kind::Minio | Kind::Etcd => cache.join("bin").join(self.to_string()),
            Kind::Azurite => cache.join("azurite/node_modules/azurite/dist/src/blob/main.js"),
            Kind::Hdfs => hdfs::program(&cache),
            Kind::S3sFs => cache.join("s3s-fs/bin/s3s-fs"),
            Kind::KafkaStreams => return Err("it is no server".to_owned()),
        };
        if self == Kind::Hdfs {
            hdfs::has_java()?;
        }
        if program.is_file() {
            return Ok(program);
        }
        if cached {
            return Err("it is not built yet: cargo xtask real builds it".to_owned());
        }
        std::fs::create_dir_all(cache.join("bin"))
            .map_err(|error| format!("making {}: {error}", cache.display()))?;
        let mut build = match self {
            Kind::Versitygw | Kind::Minio => {
                let mut go = Command::new("go");
                go.args(["install", if self == Kind::Minio { MINIO } else { VERSITYGW }])
                    .env("GOBIN", cache.join("bin"))
                    .current_dir(&cache);
                go
            }
            Kind::Etcd => {
                // Its module replaces others, so that it is built from a module that requires it.
                let module = cache.join("etcd");
                std::fs::create_dir_all(&module)
                    .map_err(|error| format!("making {}: {error}", module.display()))?;
                let mut shell = Command::new("sh");
                shell
                    .arg("-ec")
                    .arg(
                        "test -f go.mod || go mod init tombolo-real-etcd; go get \"$1@$2\"; go build \
                        -o \"$3\" \"$1\"",
                    )
                    .arg("build");
                shell.args([ETCD, ETCD_VERSION]).arg(&program).current_dir(&module);
                shell
            }
            Kind::Azurite => {
                let mut npm = Command::new("npm");
                npm.args(["install", "--no-audit", "--no-fund", "--prefix"])
                    .arg(cache.join("azurite"))
                    .arg(AZURITE);
                npm
            }
            Kind::Hdfs => hdfs::fetch(&cache)?,
            Kind::KafkaStreams => return Err("it is no server".to_owned()),
            Kind::S3sFs => {
                // Not as it is released: how fast it is does not matter, and this is built in a
                // third of the time.
                let mut cargo = Command::new(env!("CARGO"));
                cargo.args([
                    "install",
                    "--quiet",
                    "--debug",
                    "--locked",
                    "--features",
                    "binary",
                    "--version",
                    S3S_FS.1,
                    S3S_FS.0,
                ]);
                cargo.arg("--root").arg(cache.join("s3s-fs")).current_dir(&cache);
                cargo
            }
        };
        eprintln!("$ {build:?}   (once; minutes)");
        match build.stdout(Stdio::null()).status() {
            Ok(status) if status.success() && program.is_file() => Ok(program),
            Ok(status) => Err(format!("building it ended with {status}")),
            Err(error) => Err(format!("{} cannot be started: {error}", build.get_program().display())),
        }
    }
}

/// A server that runs.
pub struct Server {
    kind: Kind,
    port: u16,
    child: Child,
    directory: PathBuf,
}

/// What a server says when it is ready, where listening is not enough.
const READY: &str = "ready";

impl Server {
    /// Builds it if need be, and starts it on a free port.
    pub fn start(kind: Kind, cached: bool) -> Result<Server, String> {
        let program = kind.program(cached)?;
        let port = free_port()?;
        let directory = std::env::temp_dir().join(format!("tombolo-real-{kind}-{}", std::process::id()));
        let data = directory.join(if kind.has_plain_bucket() {
            format!("data/{BUCKET}")
        } else {
            "data".to_owned()
        });
        std::fs::create_dir_all(&data).map_err(|error| format!("making {}: {error}", data.display()))?;
        let data = directory.join("data");
        let address = format!("127.0.0.1:{port}");
        let mut command = match kind {
            Kind::Etcd | Kind::KafkaStreams => return Err("it is no store".to_owned()),
            Kind::Versitygw => {
                let mut command = Command::new(&program);
                command
                    .args(["--port", &address, "posix"])
                    .arg(&data)
                    .env("ROOT_ACCESS_KEY", USER)
                    .env("ROOT_SECRET_KEY", PASSWORD);
                command
            }
            Kind::Minio => {
                let mut command = Command::new(&program);
                command.args(["server", "--quiet", "--address", &address]).arg(&data);
                command.env("MINIO_ROOT_USER", USER).env("MINIO_ROOT_PASSWORD", PASSWORD);
                command
            }
            Kind::Azurite => {
                let mut command = Command::new("node");
                command
                    .arg(&program)
                    .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--location"])
                    .arg(&data);
                command.args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
                command
            }
            Kind::Hdfs => hdfs::command(&program, &directory, &data, port)?,
            Kind::S3sFs => {
                let mut command = Command::new(&program);
                command
                    .args([
                        "--host",
                        "127.0.0.1",
                        "--port",
                        &port.to_string(),
                        "--access-key",
                        USER,
                        "--secret-key",
                        PASSWORD,
                    ])
                    .arg(&data);
                command
            }
        };
        let log = std::fs::File::create(directory.join("log"))
            .map_err(|error| format!("making its log: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("making its log: {error}"))?;
        let stdin = if kind == Kind::Hdfs { Stdio::piped() } else { Stdio::null() };
        let child = command
            .stdin(stdin)
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("starting it: {error}"))?;
        let mut server = Server { kind, port, child, directory };
        server.wait_until_it_listens()?;
        if kind == Kind::Azurite {
            server.make_container()?;
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URI of a database on it.
    pub fn uri(&self, database: &str) -> String {
        self.uri_by_way_of(&self.address(), database)
    }

    /// The same by way of what listens at `address` and passes on to it.
    pub fn uri_by_way_of(&self, address: &str, database: &str) -> String {
        match self.kind {
            Kind::Azurite => format!(
                "az://{BUCKET}/{database}?endpoint=http://{address}/{AZURITE_ACCOUNT}\
                &account={AZURITE_ACCOUNT}"
            ),
            Kind::Hdfs => format!("hdfs://{address}{}/{database}", hdfs::DIRECTORY),
            _ => format!("s3://{BUCKET}/{database}?endpoint=http://{address}"),
        }
    }

    /// The bucket as a directory, where objects are files.
    pub fn plain_files(&self) -> Option<PathBuf> {
        matches!(self.kind, Kind::Versitygw | Kind::S3sFs).then(|| self.directory.join("data").join(BUCKET))
    }

    /// What its users are told through the environment.
    pub fn credentials(&self) -> Vec<(&'static str, &'static str)> {
        match self.kind {
            Kind::Azurite => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY),
            ],
            Kind::Hdfs => vec![("HADOOP_USER_NAME", USER)],
            _ => vec![
                ("AWS_ACCESS_KEY_ID", USER),
                ("AWS_SECRET_ACCESS_KEY", PASSWORD),
                ("AWS_REGION", "us-east-1"),
            ],
        }
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let end = Instant::now() + START_TIME_MAX * if self.kind == Kind::Hdfs { 4 } else { 1 };
        let is_ready = |server: &Server| match server.kind {
            Kind::Hdfs => server.said(READY).is_some(),
            _ => TcpStream::connect(server.address()).is_ok(),
        };
        while !is_ready(self) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}: {}", self.last_words()));
            }
            if Instant::now() > end {
                return Err(format!("it does not listen: {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        self.log().lines().last().unwrap_or("it said nothing").to_owned()
    }

    /// What follows the word at the beginning of a whole line of its.
    fn said(&self, word: &str) -> Option<String> {
        let log = self.log();
        let whole = &log[..log.rfind('\n').map_or(0, |end| end + 1)];
        let rest = |line: &str| {
            line.strip_prefix(word)
                .filter(|rest| rest.is_empty() || rest.starts_with(' '))
                .map(|rest| rest.trim().to_owned())
        };
        whole.lines().find_map(rest)
    }

    /// Which server it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The feature that speaks its protocol.
    pub fn feature(&self) -> &'static str {
        if self.kind == Kind::Hdfs { "hdfs" } else { "cloud" }
    }

    /// Has a server that obeys do something; what it answers.
    pub fn tell(&self, what: &str) -> Result<String, String> {
        let mut stdin = self.child.stdin.as_ref().ok_or("it obeys nobody")?;
        let number =
            format!("{}", (1..).find(|number| self.said(&number.to_string()).is_none()).unwrap_or(0));
        writeln!(stdin, "{number} {what}").map_err(|error| format!("telling it to {what}: {error}"))?;
        let end = Instant::now() + TELL_TIME_MAX;
        loop {
            if let Some(answer) = self.said(&number) {
                let done = answer.strip_prefix("ok").map(|rest| rest.trim().to_owned());
                return done.ok_or_else(|| format!("{what}: {answer}"));
            }
            if Instant::now() > end {
                return Err(format!("{what}: no answer; {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Azure's containers are made by a signed request; node, which runs the emulator, has what
    /// signing takes.
    fn make_container(&self) -> Result<(), String> {
        let script = r"
const crypto = require('crypto'), http = require('http');
const [port, account, key, container] = process.argv.slice(1);
const date = new Date().toUTCString(), version = '2021-12-02';
const resource = `/${account}/${account}/${container}\nrestype:container`;
const text = ['PUT', '', '', '', '', '', '', '', '', '', '', '', `x-ms-date:${date}\nx-ms-version:${version}`, resource].join('\n');
const signature = crypto.createHmac('sha256', Buffer.from(key, 'base64')).update(text, 'utf8').digest('base64');
const headers = { 'x-ms-date': date, 'x-ms-version': version, Authorization: `SharedKey ${account}:${signature}`, 'Content-Length': 0 };
const path = `/${account}/${container}?restype=container`;
http.request({ host: '127.0.0.1', port, path, method: 'PUT', headers }, answer => process.exit(answer.statusCode === 201 ? 0 : 1))
  .on('error', () => process.exit(1)).end();
";
        let arguments = [&self.port.to_string(), AZURITE_ACCOUNT, AZURITE_KEY, BUCKET].map(str::to_owned);
        match Command::new("node").args(["-e", script, "--"]).args(arguments).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("making a container ended with {status}")),
            Err(error) => Err(format!("making a container: {error}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Best effort: it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn free_port() -> Result<u16, String> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(|error| format!("finding a free port: {error}"))?;
    Ok(listener.local_addr().map_err(|error| format!("finding a free port: {error}"))?.port())
}
