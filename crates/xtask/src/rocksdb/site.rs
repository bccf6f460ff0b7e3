//! A place with the programs that run on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::places::Place;
use crate::nodes::Nodes;
use crate::programs;
use crate::real::servers::{Kind, Server};

/// Where the files lie. What was started for it ends with it.
pub(super) struct Site {
    name: String,
    directory: PathBuf,
    store: String,
    log: Option<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// What the store is by another address of its server; `None` where it has no server.
    server: Option<Server>,
    _nodes: Option<Nodes>,
}

/// A place, and the plugin of the programs that run on it.
pub(super) struct Loaded<'a> {
    pub(super) site: &'a Site,
    plugin: PathBuf,
    uri: String,
}

/// What a URI within a URI cannot say as it is.
fn encoded(uri: &str) -> String {
    uri.replace('%', "%25").replace('&', "%26")
}

impl Site {
    /// The store that somebody named.
    pub(super) fn named(directory: &Path, store: &str, log: Option<&str>) -> Site {
        Site::of(store.to_owned(), directory, store.to_owned(), log.map(str::to_owned))
    }

    fn of(name: String, directory: &Path, store: String, log: Option<String>) -> Site {
        Site {
            name,
            directory: directory.to_path_buf(),
            store,
            log,
            environment: Vec::new(),
            server: None,
            _nodes: None,
        }
    }

    /// Starts what the place needs.
    ///
    /// # Errors
    /// Why it cannot be had here.
    pub(super) fn on(root: &Path, directory: &Path, place: Place) -> Result<Site, String> {
        let own = directory.join(match place {
            Place::Directory => "directory",
            Place::Bucket => "bucket",
            Place::Near => "near",
        });
        let store = format!("file://{}", own.join("store").display());
        match place {
            Place::Directory => Ok(Site::of(place.to_string(), &own, store, None)),
            Place::Bucket => {
                let server = Server::start(Kind::Versitygw, false)?;
                let mut site = Site::of(place.to_string(), &own, server.uri("files"), None);
                site.environment = server.credentials();
                site.server = Some(server);
                Ok(site)
            }
            Place::Near => {
                let binary = programs::build(root, "test")?;
                let nodes = Nodes::start(&binary, 3, false)?;
                let mut site = Site::of(place.to_string(), &own, store, Some(nodes.uri()));
                site._nodes = Some(nodes);
                Ok(site)
            }
        }
    }

    /// In words.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where files of this host go.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The server of the bucket, if there is one.
    pub(super) fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The same place for programs with this plugin.
    pub(super) fn with(&self, plugin: &Path) -> Loaded<'_> {
        let uri = self.uri(&self.store, "info");
        Loaded { site: self, plugin: plugin.to_path_buf(), uri }
    }

    fn uri(&self, store: &str, host: &str) -> String {
        let info = self.directory.join(host);
        let mut uri = format!("tombolo://?store={}&info_log={}", encoded(store), info.display());
        if let Some(log) = &self.log {
            uri = format!("{uri}&log={}", encoded(log));
        }
        uri
    }
}

impl Loaded<'_> {
    /// The URI that programs are given.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// The library that they load.
    pub(super) fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// The URI for a process of another host, which reaches the server, if there is one, at
    /// `address`.
    pub(super) fn uri_of_another_host(&self, address: Option<&str>) -> String {
        let store = match (&self.site.server, address) {
            (Some(server), Some(address)) => server.uri_by_way_of(address, "files"),
            _ => self.site.store.clone(),
        };
        self.site.uri(&store, "info-of-another-host")
    }

    /// A program on a database of the place.
    pub(super) fn command(&self, program: &str, database: &str) -> Command {
        self.command_at(&self.uri, program, database)
    }

    /// The same by another URI.
    pub(super) fn command_at(&self, uri: &str, program: &str, database: &str) -> Command {
        self.with_arguments(Command::new(program), uri, program, database)
    }

    /// The same, started by `command`.
    pub(super) fn with_arguments(
        &self,
        mut command: Command,
        uri: &str,
        program: &str,
        database: &str,
    ) -> Command {
        command.env("LD_PRELOAD", &self.plugin).envs(self.environment()).arg(format!("--fs_uri={uri}"));
        // sst_dump names files, the others a database.
        let option = if program == "sst_dump" { "--file" } else { "--db" };
        command.arg(format!("{option}={database}"));
        command
    }

    /// What its programs are told through the environment.
    pub(super) fn environment(&self) -> Vec<(&'static str, &'static str)> {
        self.site.environment.clone()
    }
}

/// What a program that must succeed prints.
pub(super) fn printed(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(text) } else { Err(format!("{command:?}: {}: {text}", output.status)) }
}
