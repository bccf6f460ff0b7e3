//! From the kill of a writer to the first write of another host, against copying its files.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use super::build::found;
use super::site::{Loaded, printed};
use super::work::Writer;

/// Bytes that a copy moves in a second, in the paper whose table 3 this follows.
const COPY_BYTES_PER_SECOND: f64 = 40e6;
const VALUE_BYTES: u64 = 1000;

/// Another host: a network of its own, which reaches this one by a relay alone.
struct Host {
    name: String,
    address: String,
}

impl Host {
    /// # Errors
    /// Why there is none: it takes rights, and the program `ip`.
    fn new(to: &str) -> Result<Host, String> {
        found("ip").ok_or("there is no program ip")?;
        let id = std::process::id();
        let (name, here, there) = (format!("tombolo-{id}"), format!("tmb{id}"), format!("tmc{id}"));
        let mut host = Host { name: name.clone(), address: String::new() };
        for line in [
            format!("netns add {name}"),
            format!("link add {here} type veth peer name {there} netns {name}"),
            format!("addr add 10.213.77.1/30 dev {here}"),
            format!("link set {here} up"),
            format!("-n {name} addr add 10.213.77.2/30 dev {there}"),
            format!("-n {name} link set {there} up"),
        ] {
            let run = Command::new("ip").args(line.split(' ')).output();
            let output = run.map_err(|error| format!("cannot start ip: {error}"))?;
            if !output.status.success() {
                return Err(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
        }
        host.address = relay("10.213.77.1:0", to.to_owned()).map_err(|error| error.to_string())?;
        Ok(host)
    }

    /// Starts a program there.
    fn command(&self, program: &str, environment: &[(&str, String)]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "env"]);
        command.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(program);
        command
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its end of the connection goes with it, and so does ours.
        let _gone = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

/// Passes on what comes to `from` until this process ends. Says where it listens.
fn relay(from: &str, to: String) -> io::Result<String> {
    let listener = TcpListener::bind(from)?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for one in listener.incoming().flatten() {
            let Ok(other) = TcpStream::connect(&to) else { continue };
            let Ok((one_too, other_too)) = one.try_clone().and_then(|a| Ok((a, other.try_clone()?))) else {
                continue;
            };
            std::thread::spawn(move || pass(one, other));
            std::thread::spawn(move || pass(other_too, one_too));
        }
    });
    Ok(address)
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ended = io::copy(&mut from, &mut to);
    let _shut = to.shutdown(std::net::Shutdown::Write);
}

/// A database of so many megabytes is written, its writer killed, and another host writes.
pub(super) fn run(site: &Loaded<'_>, megabytes: u64) -> Result<(), String> {
    let host = match site.site.server() {
        Some(server) => Host::new(&server.address()).map_err(Some),
        None => Err(None),
    };
    if let Err(Some(why)) = &host {
        println!("  no other host can be had, so that another process takes over: {why}");
    }
    let database = format!("/takeover-{megabytes}");
    let mut filler = site.command_at(&format!("{}&takeover=always", site.uri()), "db_bench", &database);
    filler.args([format!("--value_size={VALUE_BYTES}"), "--disable_auto_compactions=1".into()]);
    filler.args(["--level0_slowdown_writes_trigger=1000", "--level0_stop_writes_trigger=1000"]);
    let mut writer = Writer::of(filler)?;
    let reached = writer.wait_for(megabytes * 1_000_000 / (VALUE_BYTES + 16));
    let written = writer.kill()? * (VALUE_BYTES + 16);
    reached?;
    let begun = Instant::now();
    let address = host.as_ref().ok().map(|host| host.address.as_str());
    let uri = format!("{}&takeover=always", site.uri_of_another_host(address));
    let mut put = match &host {
        Ok(host) => {
            let mut environment: Vec<(&str, String)> =
                site.environment().iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            environment.push(("LD_PRELOAD", site.plugin().display().to_string()));
            let mut put = host.command("ldb", &environment);
            put.args([format!("--fs_uri={uri}"), format!("--db={database}")]);
            put
        }
        Err(_) => site.command_at(&uri, "ldb", &database),
    };
    put.args(["put", "zzz", "another host"]);
    printed(put)?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut get = site.command("ldb", &database);
    get.args(["get", "zzz"]);
    let held = printed(get)?;
    if !held.contains("another host") {
        return Err(format!("the write of the new holder is not there: {held}"));
    }
    let by_copy = written as f64 / COPY_BYTES_PER_SECOND;
    println!(
        "  {database}: {:.2} GB, from the kill to the end of the process of another {} that writes: \
        {seconds:.2} s; copying it at 40 MB/s: {by_copy:.1} s, {:.1} times as long",
        written as f64 / 1e9,
        if host.is_ok() { "host" } else { "process" },
        by_copy / seconds,
    );
    Ok(())
}
