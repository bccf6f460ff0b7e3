//! `near://host:port,host:port,…?copies=3`: the nodes, and how many of them hold each segment; or
//! `near://name`: those that announce themselves as of the registry of that name, in the database's
//! own store or, with `registry=URI`, in another store or in etcd.

use std::sync::Arc;

use tombolo_env::Env;
use tombolo_format::near_log::{NEAR_REGIONS_MAX, NODE_ADDRESS_BYTES_MAX};
use tombolo_segment::announce;
use tombolo_segment::call::Shape;
use tombolo_segment::peer::Peer;
use tombolo_segment::shared::SharedPeer;
use tombolo_segment::tcp::TcpPeer;
use tombolo_segment::wire::credentials::Credentials;
use tombolo_storage::{Error, ErrorKind, LogStore, ObjectStore, Registry, Result, Uri};

use crate::peers::{Connect, Neighbours};
use crate::replication::Replication;
use crate::store::NearLogStore;

/// Parameters of `near://`.
const COPIES: &str = "copies";
const SECRET_FILE: &str = "secret_file";
const TLS: &str = "tls";
const REGISTRY: &str = "registry";
const RDMA: &str = "rdma";

/// Most nodes that a URI names.
const NODES_MAX: usize = 64;

/// Registers `near://`: one call, and every command and the engine know it.
///
/// Copies are 3 unless said otherwise, 1 to 7; acknowledged is what a majority holds. `credentials`
/// are what nodes are shown where the URI names neither `secret_file` nor `tls`, a directory of
/// certificates; faults in them are told when a log is opened that needs them. Nodes may
/// announce themselves in etcd, and in every store whose scheme is registered before.
pub fn register(registry: &mut Registry, credentials: Result<Option<Credentials>>) {
    let stores = registry.clone();
    let open = move |env: &Env, uri: &Uri, objects: &Arc<dyn ObjectStore>| {
        Ok(Arc::new(open(env, uri, objects, &stores, &credentials)?) as Arc<dyn LogStore>)
    };
    registry.register_log_store("near", Arc::new(open));
}

/// Nodes over TCP; those of this host over the memory that they share, and others over a card,
/// where they have that.
#[derive(Debug)]
struct Tcp {
    credentials: Option<Credentials>,
    card: Option<Card>,
}

impl Connect for Tcp {
    fn connect(&self, env: &Env, address: &str) -> Result<Arc<dyn Peer>> {
        let is_local = ["127.", "localhost:", "[::1]:"].iter().any(|local| address.starts_with(local));
        if is_local {
            return Ok(Arc::new(SharedPeer::new(env, address, self.credentials.clone())));
        }
        if let Some(card) = &self.card {
            return card.connect(env, address, self.credentials.clone());
        }
        Ok(Arc::new(TcpPeer::new(env, address, self.credentials.clone())))
    }
}

/// A card that writes to the memory of nodes.
#[derive(Debug)]
struct Card(
    #[cfg(feature = "rdma")] tombolo_env::real::verbs::Device,
    #[cfg(not(feature = "rdma"))] std::convert::Infallible,
);

impl Card {
    /// The card that a URI names, or else the first one that is up, if there is one.
    #[cfg(feature = "rdma")]
    fn of(env: &Env, uri: &Uri) -> Result<Option<Card>> {
        match uri.parameter(RDMA) {
            Some("off") => Ok(None),
            Some(name) => tombolo_segment::rdma::open(env, Some(name)).map(|device| Some(Card(device))),
            None => Ok(tombolo_segment::rdma::open(env, None).ok().map(Card)),
        }
    }

    /// There is none.
    #[cfg(not(feature = "rdma"))]
    fn of(_env: &Env, uri: &Uri) -> Result<Option<Card>> {
        match uri.parameter(RDMA) {
            Some("off") | None => Ok(None),
            Some(name) => {
                let error = Error::new(
                    ErrorKind::Unsupported,
                    format!("this program was built without RDMA, and cannot use {name}"),
                );
                Err(error.advice("build it with the feature rdma, or leave the parameter rdma out"))
            }
        }
    }

    #[cfg(feature = "rdma")]
    fn connect(&self, env: &Env, address: &str, credentials: Option<Credentials>) -> Result<Arc<dyn Peer>> {
        Ok(Arc::new(tombolo_segment::rdma::RdmaPeer::new(env, address, credentials, &self.0)?))
    }

    #[cfg(not(feature = "rdma"))]
    fn connect(
        &self,
        _env: &Env,
        _address: &str,
        _credentials: Option<Credentials>,
    ) -> Result<Arc<dyn Peer>> {
        match self.0 {}
    }
}

fn open(
    env: &Env,
    uri: &Uri,
    objects: &Arc<dyn ObjectStore>,
    stores: &Registry,
    credentials: &Result<Option<Credentials>>,
) -> Result<NearLogStore> {
    uri.allow_parameters(&[COPIES, RDMA, REGISTRY, SECRET_FILE, TLS])?;
    let invalid = |what: String| Error::new(ErrorKind::Invalid, format!("{what} in {}", uri.shown()));
    let addresses: Vec<&str> = uri.rest.trim_end_matches('/').split(',').collect();
    let is_address = |address: &&str| {
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        !host.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && address.len() <= NODE_ADDRESS_BYTES_MAX
    };
    let is_registry = !uri.rest.is_empty() && !uri.rest.contains([':', ',']);
    if let Some(wrong) = addresses.iter().find(|address| !is_registry && !is_address(address)) {
        return Err(invalid(format!("{wrong:?} is no address of a node"))
            .advice("write near://host:port,host:port,host:port"));
    }
    let is_twice = |at: usize| addresses[..at].contains(&addresses[at]);
    if addresses.len() > NODES_MAX || (0..addresses.len()).any(is_twice) {
        return Err(invalid(format!("{} addresses of nodes", addresses.len()))
            .expected(format!("at most {NODES_MAX}, each once")));
    }
    let copies = match uri.parameter(COPIES) {
        None => Replication::default().shape.copies,
        Some(text) => match text.parse() {
            Ok(copies @ 1..=NEAR_REGIONS_MAX) => copies,
            _ => {
                return Err(invalid(format!("the parameter {COPIES}={text}"))
                    .expected(format!("{COPIES}=1 to {NEAR_REGIONS_MAX}")));
            }
        },
    };
    let shape = Shape { copies, quorum: copies / 2 + 1 };
    if !is_registry && addresses.len() < shape.quorum {
        let what = format!(
            "too few nodes, {}, for {copies} copies, of which {} acknowledge",
            addresses.len(),
            shape.quorum
        );
        return Err(invalid(what).advice("name as many nodes as copies, better one more"));
    }
    let credentials = match Credentials::read(env, uri.parameter(SECRET_FILE), uri.parameter(TLS))? {
        None => credentials.clone()?,
        named => named,
    };
    let connect = Arc::new(Tcp { credentials, card: Card::of(env, uri)? });
    let replication = Replication { shape, ..Replication::default() };
    let place = match uri.parameter(REGISTRY) {
        Some(_) if !is_registry => {
            let what = invalid(format!("the parameter {REGISTRY} beside addresses of nodes"));
            return Err(what.advice(format!("name the registry: near://NAME?{REGISTRY}=URI")));
        }
        Some(place) => announce::Place::open(env, stores, place)?,
        None => announce::Place::Store(Arc::clone(objects)),
    };
    if is_registry {
        let announced = announce::Registry::new(env, place, uri.rest.trim_end_matches('/'))?;
        return Ok(NearLogStore::of(env, Neighbours::announced(env, connect, announced), replication));
    }
    Ok(NearLogStore::new(env, connect, Neighbours::at(&addresses), replication))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_uri_is_refused_with_what_is_wrong() {
        let env = Env::real();
        let mut registry = Registry::with_defaults();
        register(&mut registry, Ok(None));
        let objects =
            registry.open_object_store(&env, &Uri::parse("mem://near-uri").expect("a URI")).expect("memory");
        let store = Uri::parse("mem://near-uri").expect("a URI");
        let open = |text: &str| {
            registry.open_log_store(&env, &store, Some(&Uri::parse(text).expect("a URI")), &objects)
        };
        for (wrong, word) in [
            ("near://", "address"),
            ("near://host:0", "address"),
            ("near://a:1,b:2,a:1", "addresses"),
            ("near://a:1,b:2,c:3?copies=8", "copies=8"),
            ("near://a:1,b:2?copies=5", "5 copies"),
            ("near://a:1,b:2,c:3?speed=9", "speed"),
            ("near://a:1,b:2,c:3?secret_file=/no/such/file", "/no/such/file"),
            ("near://a:1,b:2,c:3?tls=/no/such/directory", "ca.crt"),
            ("near://a:1,b:2,c:3?tls=/no/such/directory&secret_file=/no/such/file", "one of them"),
            ("near://a:1,b:2,c:3?registry=mem://nodes", "registry"),
            ("near://nodes?registry=nowhere://nodes", "nowhere"),
            ("near://nodes?registry=etcd://nodes", "etcd"),
            ("near://a:1,b:2,c:3?rdma=no-such-device", "no-such-device"),
        ] {
            let error = open(wrong).expect_err(wrong);
            assert!(error.to_string().contains(word), "{wrong}: {error}");
        }
        for right in [
            "near://a:1,b:2,[::1]:3?copies=3",
            "near://nodes",
            "near://a:1,b:2,c:3?rdma=off",
            "near://nodes?registry=mem://other",
            "near://nodes?registry=etcd://a:2379,b:2379",
        ] {
            assert_eq!(open(right).expect(right).identity(), "near");
        }
    }

    #[test]
    fn wrong_credentials_are_told_where_they_are_needed() {
        let env = Env::real();
        let mut registry = Registry::with_defaults();
        register(&mut registry, Err(Error::new(ErrorKind::Invalid, "a secret of 3 bytes")));
        let store = Uri::parse("mem://near-credentials").expect("a URI");
        let objects = registry.open_object_store(&env, &store).expect("memory");
        let open = |text: &str| {
            registry.open_log_store(&env, &store, Some(&Uri::parse(text).expect("a URI")), &objects)
        };
        assert!(open("mem://near-credentials").is_ok());
        let error = open("near://a:1,b:2,c:3").expect_err("a secret is wrong");
        assert!(error.to_string().contains("3 bytes"), "{error}");
    }
}
