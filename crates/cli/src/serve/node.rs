//! `tombolo serve node`: lends memory to near-compute logs.

use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tombolo_env::Env;
use tombolo_segment::announce::{Announcer, Place};
use tombolo_segment::node::{CONNECTIONS_MAX, Node, NodeCounters, NodeDisk, NodeOptions};
use tombolo_storage::logged::LoggedErrors;
use tombolo_storage::{Error, ErrorKind, Registry};

use super::pressure::{self, Lending};
use super::{SECRET_VARIABLE, Showing, status};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::text::{self, size};

/// When appends are acknowledged on a node with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Acknowledge {
    /// Once the disk holds them (fdatasync, shared by all that wait).
    Disk,
    /// Once they are in memory; the copy on disk counts after a clean stop only.
    Memory,
}

/// Arguments of `serve node`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo serve node --memory 512MiB                                   for writers on this host, without a secret
  openssl rand -hex 32 > secret; chmod 600 secret
  tombolo serve node --listen 10.0.0.7:7420 --memory 8GiB --secret-file secret --domain rack-7
  tombolo serve node --listen 10.0.0.7:7420 --memory 8GiB --tls /etc/tombolo/tls      with certificates instead of a secret
  tombolo serve node --memory 1GiB --disk /var/lib/tombolo-node        what it holds survives the node
  tombolo serve node --memory 1GiB --shared-memory /dev/shm/node-1     for writers of this host and user, in a microsecond
  tombolo serve node --listen 10.0.0.7:7420 --memory 8GiB --secret-file secret --rdma mlx5_0    writers' cards write to it
  tombolo serve node --memory 1GiB --announce s3://bucket/registry     writers look for it there
  tombolo serve node --memory 1GiB --announce etcd://10.0.0.1:2379     or there

A log that is kept near its writer lies in the memory of three nodes, and a write is durable once two of them hold it. Run the three where they do
not fail together, and say with --domain what fails together: a rack, a zone, a power supply. A writer that knows more nodes than it wants copies spreads
them over domains, whether nodes announce themselves or it names them by address. Without --domain a node fails together with others of its host.

What it survives: after the writer's death, what it acknowledged and had not yet written to its store is recovered while at most one of the three has lost
or corrupted its regions since they were made, counted cumulatively: a node that is started again without a disk has lost them. Beyond that, taking
over stops and says so. A writer that lives repairs any number.

Ctrl-C and SIGTERM drain: no new regions, the owners of those that are there are asked to move, and the node ends when the last has gone, or after
--drain-seconds. It says for which databases it waits; a second signal ends it at once. When the host runs short of memory (pressure stall information), owners are asked to give half of it back. `tombolo serve lend` tells a node
that runs to lend less, or as much again as --memory says.")]
pub struct Arguments {
    /// Where to listen, host:port; an address that others reach needs a secret or certificates.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    listen: String,
    /// How much memory to lend: 512MiB, 8GiB, or a number of bytes. The process takes some more for
    /// connections.
    #[arg(long, value_name = "SIZE", value_parser = some_size)]
    memory: u64,
    /// A directory of its own for a copy on disk: up to twice what it holds, and 200 MiB.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<String>,
    /// With --disk: when appends are acknowledged.
    #[arg(long, value_name = "FROM", default_value = "disk", requires = "disk")]
    acknowledge: Acknowledge,
    /// A directory of its own on a tmpfs (/dev/shm/NAME), to share memory with writers of this host
    /// and user: an append is then a store, in microseconds.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "disk")]
    shared_memory: Option<String>,
    /// An RDMA device (DEVICE, DEVICE:PORT or DEVICE:PORT/GID), through which writers of other
    /// hosts write to its memory themselves. For trusted networks: what they write is not
    /// encrypted. Needs a build with the feature rdma.
    #[arg(long, value_name = "DEVICE", conflicts_with = "disk")]
    rdma: Option<String>,
    #[command(flatten)]
    showing: Showing,
    /// What fails together with this node: writers put one copy into each domain, as long as there
    /// are so many. Its host unless said.
    #[arg(long, value_name = "NAME", default_value = "")]
    domain: String,
    /// A store, or an etcd (etcd://host:2379), to announce the node in, so that writers find it.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    announce: Option<String>,
    /// The name of the registry within it.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "announce")]
    registry: String,
    /// Where writers reach the node, host:port, when that is not where it listens.
    #[arg(long, value_name = "ADDRESS", requires = "announce")]
    advertise: Option<String>,
    /// Connections at once.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections_max: usize,
    /// How long to wait for regions to be freed when it is told to end; 0 ends at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    drain_seconds: u64,
    /// Print figures every so many seconds; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    report_seconds: u64,
}

/// How often it looks whether it was interrupted, and whether its disk failed.
const LOOK: Duration = Duration::from_millis(50);
/// How often a node that drains looks whether there is something to say.
const DRAIN_LOOK: Duration = Duration::from_millis(500);
/// How often it looks at the host's memory.
const PRESSURE_LOOK: Duration = Duration::from_secs(1);

/// How long the store may take to take an announcement, or to forget it: longer it does not hold up
/// the node, nor its end.
const ANNOUNCE_MAX: Duration = Duration::from_secs(5);

/// Waits for a store, and not for long; `None`: it did not answer.
fn within_limit<T: Send>(env: &Env, asked: impl Future<Output = T> + Send) -> Option<T> {
    env.block_on_until(asked, env.now() + ANNOUNCE_MAX)
}

/// The line for what came of announcing the node, when that is news.
fn announced_news(logged: &mut LoggedErrors, outcome: tombolo_storage::Result<()>) -> Option<String> {
    match outcome {
        Ok(()) => logged.is_over().then(|| "the node is announced again".to_owned()),
        Err(error) => logged
            .is_news(&error)
            .then(|| format!("the node could not be announced, and is tried again until it is: {error}")),
    }
}

/// As [`size`], of which there must be some.
fn some_size(text: &str) -> std::result::Result<u64, String> {
    size(text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err("more than nothing".to_owned()) })
}

/// Whether only this host reaches an address.
pub fn is_loopback(address: &str) -> bool {
    let resolved: Vec<SocketAddr> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    !resolved.is_empty() && resolved.iter().all(|address| address.ip().is_loopback())
}

/// Where the node is announced to be: where it listens, unless something else is said.
pub(super) fn announced_at<'a>(advertised: Option<&'a str>, listening: &'a str) -> Result<&'a str> {
    let at_all =
        |address: &str| address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
    let address = advertised.unwrap_or(listening);
    if at_all(address) {
        return Err(Failure::Usage(format!(
            "{address} is every address of this host and none to others: say --advertise HOST:PORT"
        )));
    }
    Ok(address)
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let credentials = arguments.showing.credentials()?;
    if credentials.is_none() && !is_loopback(&arguments.listen) {
        let listen = &arguments.listen;
        return Err(Failure::Usage(format!(
            "{listen} can be reached from other hosts: give --secret-file FILE or {SECRET_VARIABLE} (make \
            one: openssl rand -hex 32), or --tls DIRECTORY"
        )));
    }
    let interrupted = interrupt::listen()?;
    let env = Env::real();
    let disk = arguments.disk.as_ref().map(|directory| NodeDisk {
        directory: directory.into(),
        is_synced: arguments.acknowledge == Acknowledge::Disk,
    });
    let options = NodeOptions {
        listen: arguments.listen.clone(),
        bytes_max: arguments.memory,
        domain: arguments.domain.clone(),
        credentials,
        connections_max: arguments.connections_max,
        disk,
        share: arguments.shared_memory.as_ref().map(Into::into),
        rdma: arguments.rdma.clone(),
    };
    // Errors of the command line are told before anybody stores something here.
    let place = match &arguments.announce {
        None => None,
        Some(uri) => {
            let address = announced_at(arguments.advertise.as_deref(), &arguments.listen)?;
            if is_loopback(address) {
                note(format_args!(
                    "{address} is announced, which only this host reaches: writers of others need \
                    --advertise HOST:PORT"
                ));
            }
            Some(Place::open(&env, &Registry::with_defaults(), uri)?)
        }
    };
    let node = env.block_on(Node::start(&env, options))?;
    let address = arguments.advertise.as_deref().unwrap_or(node.address());
    let announcer =
        place.map(|place| Announcer::new(&env, place, &arguments.registry, address)).transpose()?;
    output.result(
        || json!({ "listening": node.address(), "node": status::as_json(&node.status()) }),
        || {
            format!(
                "listening on {}; {}\n{}",
                node.address(),
                status::as_text(&node.status()),
                survives(arguments)
            )
        },
    )?;
    output.finish()?;
    let mut serving = Serving { env, node, announcer, announced: None, logged: LoggedErrors::default() };
    let served = serving.until(&interrupted, arguments, output);
    serving.withdraw();
    served?;
    serving.end(arguments, output)
}

/// The failure model, in the words for how this node was started.
fn survives(arguments: &Arguments) -> String {
    let end = match (&arguments.disk, arguments.acknowledge) {
        (None, _) => "what it holds is lost when it ends, however it ends",
        (Some(_), Acknowledge::Memory) => "what it holds survives a clean stop, and no other end of it",
        (Some(_), Acknowledge::Disk) => {
            "what it acknowledged survives its end and a power loss, and is read again by the next node on \
            that disk"
        }
    };
    format!(
        "{end}; of three nodes of a log one may lose its regions, counted cumulatively since they were made"
    )
}

struct Serving {
    env: Env,
    node: Node,
    announcer: Option<Announcer>,
    announced: Option<Instant>,
    logged: LoggedErrors,
}

impl Serving {
    /// Serves until it is told to end.
    fn until(&mut self, interrupted: &Arc<AtomicBool>, arguments: &Arguments, output: &Output) -> Result<()> {
        let (mut reported, mut looked) = (Instant::now(), Instant::now());
        let mut lending = Lending::new(arguments.memory);
        let period = Duration::from_secs(arguments.report_seconds);
        while !interrupted.load(Ordering::Relaxed) {
            if let Some(error) = self.node.failure() {
                return Err(error.into());
            }
            let now = Instant::now();
            if now.duration_since(looked) >= PRESSURE_LOOK {
                looked = now;
                self.lend(&mut lending, now);
            }
            if !period.is_zero() && now.duration_since(reported) >= period {
                reported = now;
                self.report(output)?;
            }
            self.announce(now);
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn lend(&self, lending: &mut Lending, now: Instant) {
        let pressure = pressure::read();
        if let Some(bytes) = lending.look(pressure, self.node.status().bytes_taken, now) {
            self.node.lend(bytes);
            let (figure, lent) = (pressure.unwrap_or_default(), self.node.status().bytes_max);
            note(format_args!(
                "memory pressure {figure:.1} %: the node lends {} from here on",
                text::bytes(lent)
            ));
        }
    }

    /// Announces the node when it is time. That a store fails is told when it begins, and it is
    /// asked again.
    fn announce(&mut self, now: Instant) {
        let Some(announcer) = &mut self.announcer else { return };
        if self.announced.is_some_and(|last| now.duration_since(last) < announcer.period()) {
            return;
        }
        self.announced = Some(now);
        let late = || {
            Err(Error::new(
                ErrorKind::DeadlineExceeded,
                format!("the store did not answer within {ANNOUNCE_MAX:?}"),
            ))
        };
        let outcome = within_limit(&self.env, announcer.announce(self.node.status())).unwrap_or_else(late);
        if let Some(line) = announced_news(&mut self.logged, outcome) {
            note(format_args!("{line}"));
        }
    }

    fn report(&self, output: &Output) -> Result<()> {
        let (status, counters) = (self.node.status(), self.node.counters());
        output.result(
            || json!({ "node": status::as_json(&status), "counters": counters_json(&counters) }),
            || {
                let NodeCounters {
                    connections,
                    requests,
                    appends,
                    append_bytes,
                    refusals,
                    regions_paired,
                    ..
                } = counters;
                let appended = text::bytes(append_bytes);
                let status = status::as_text(&status);
                format!(
                    "{status}; {}, {}, {refusals} refused, {} of {appended}, {} for writers' cards",
                    text::counted(connections, "connection"),
                    text::counted(requests, "request"),
                    text::counted(appends, "append"),
                    text::counted(regions_paired, "region")
                )
            },
        )?;
        output.finish()
    }

    /// Has nobody look for the node any more.
    fn withdraw(&mut self) {
        let Some(announcer) = self.announcer.take() else { return };
        let stays = "the node's announcement stays until others take it for gone";
        match within_limit(&self.env, announcer.withdraw()) {
            Some(Ok(())) => {}
            Some(Err(error)) => note(format_args!("{stays}: {error}")),
            None => note(format_args!("{stays}: the store did not answer within {ANNOUNCE_MAX:?}")),
        }
    }

    /// Drains, waits until regions are freed or the time is up, and stops.
    fn end(self, arguments: &Arguments, output: &Output) -> Result<()> {
        let Serving { env, node, .. } = self;
        let deadline = env.now() + Duration::from_secs(arguments.drain_seconds);
        let is_drained = wait_until_drained(&env, &node, deadline)?;
        let (status, counters) = (node.status(), node.counters());
        env.block_on(node.stop())?;
        output.result(
            || {
                json!({
                    "drained": is_drained, "node": status::as_json(&status),
                    "counters": counters_json(&counters)
                })
            },
            || match is_drained {
                true => "drained: no region was left".to_owned(),
                false => format!(
                    "ended with {} of {} that nobody had freed",
                    text::counted(status.regions, "region"),
                    text::counted(u64::from(status.databases), "database")
                ),
            },
        )
    }
}

/// Waits until the last region is freed, or the time is up, and says what it waits for whenever
/// that is news. Whether the node has drained.
fn wait_until_drained(env: &Env, node: &Node, deadline: tombolo_env::Instant) -> Result<bool> {
    let mut drained = pin!(node.drain(Some(deadline)));
    let mut said = None;
    loop {
        let look = (env.now() + DRAIN_LOOK).min(deadline);
        if env.block_on_until(drained.as_mut(), look).transpose()?.is_some() {
            return Ok(true);
        }
        if env.now() >= deadline {
            return Ok(false);
        }
        let status = node.status();
        let news = (status.regions, status.holdings.clone());
        if said.as_ref() != Some(&news) {
            note(status::waits_for(&status));
            if said.is_none() {
                note("Ctrl-C or SIGTERM once more ends it at once.");
            }
            said = Some(news);
        }
    }
}

fn counters_json(counters: &NodeCounters) -> Value {
    json!({
        "connections": counters.connections,
        "connections_accepted": counters.connections_accepted,
        "connections_refused": counters.connections_refused,
        "connections_malformed": counters.connections_malformed,
        "requests": counters.requests,
        "refusals": counters.refusals,
        "appends": counters.appends,
        "append_bytes": counters.append_bytes,
        "regions_paired": counters.regions_paired,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(
            (some_size("512MiB"), some_size("1GiB"), some_size("4096"), size("0")),
            (Ok(512 << 20), Ok(1 << 30), Ok(4096), Ok(0))
        );
        for wrong in ["", "0", "MiB", "1GB", "1.5GiB", "99999999TiB", "-1"] {
            assert!(some_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_store_that_hangs_does_not_hold_a_node_up() {
        let world = tombolo_env::simulated::World::new(1);
        let env = world.process("node").env();
        let began = env.now();
        assert_eq!(within_limit(&env, std::future::pending::<()>()), None);
        let took = env.now().since(began);
        assert!(took >= ANNOUNCE_MAX && took <= 2 * ANNOUNCE_MAX, "{took:?}");
    }

    #[test]
    fn a_store_that_takes_no_announcement_is_told_once() {
        let mut logged = LoggedErrors::default();
        let failed = |kind| Err(Error::new(kind, "the store says no"));
        assert_eq!(announced_news(&mut logged, Ok(())), None);
        let line = announced_news(&mut logged, failed(ErrorKind::Retry)).expect("news");
        assert!(line.contains("could not be announced") && line.contains("says no"), "{line}");
        for _ in 0..10 {
            assert_eq!(announced_news(&mut logged, failed(ErrorKind::Retry)), None);
        }
        assert!(announced_news(&mut logged, failed(ErrorKind::DeadlineExceeded)).is_some(), "something else");
        assert!(announced_news(&mut logged, Ok(())).expect("news").contains("again"));
        assert!(announced_news(&mut logged, failed(ErrorKind::Retry)).is_some(), "it came back");
    }

    #[test]
    fn no_node_is_announced_at_every_address() {
        assert_eq!(announced_at(None, "10.0.0.7:7420").expect("one"), "10.0.0.7:7420");
        assert_eq!(announced_at(Some("node-1:7420"), "0.0.0.0:7420").expect("one"), "node-1:7420");
        for wrong in ["0.0.0.0:7420", "[::]:7420"] {
            assert!(announced_at(None, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_loopback_needs_no_secret() {
        assert!(is_loopback("127.0.0.1:0") && is_loopback("[::1]:7420"));
        assert!(!is_loopback("nobody"), "nobody knows who reaches it");
        assert!(!is_loopback("0.0.0.0:7420") && !is_loopback("10.0.0.7:7420"));
    }
}
