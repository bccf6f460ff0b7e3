//! Certificates that these tests make, right and wrong, over the simulated network.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tombolo_env::BoxFuture;
use tombolo_env::simulated::{Process, World};

use super::*;
use crate::message::NodeStatus;
use crate::node::{CONNECTIONS_MAX, Node, NodeOptions};
use crate::peer::Peer;
use crate::tcp::TcpPeer;
use crate::wire::credentials::Credentials;

const ADDRESS: &str = "node:7000";

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).expect("signed").pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    /// A certificate for `name`, valid up to the end of `year`, and its key.
    fn sign(&self, name: &str, year: i32) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        parameters.not_after = date_time_ymd(year, 12, 31);
        (parameters.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }

    /// A side that `self` has signed, and that believes whom `believed` has signed.
    fn side(&self, name: &str, year: i32, believed: &Authority) -> Credentials {
        let (chain, key) = self.sign(name, year);
        Credentials::Tls(Tls::new(believed.pem.as_bytes(), chain.as_bytes(), key.as_bytes()).expect("sound"))
    }
}

struct Setup {
    world: World,
    node: Process,
    writer: Process,
}

impl Setup {
    fn new() -> Setup {
        let world = World::new(7);
        let (node, writer) =
            (world.add_host("node").process("node"), world.add_host("writer").process("writer"));
        Setup { world, node, writer }
    }

    /// What a writer with `writer` gets of a node with `node`.
    fn ask(node: Option<Credentials>, writer: Option<Credentials>) -> Result<NodeStatus> {
        let setup = Setup::new();
        let env = setup.node.env();
        let options = NodeOptions {
            listen: ADDRESS.into(),
            bytes_max: 64 << 20,
            domain: String::new(),
            credentials: node,
            connections_max: CONNECTIONS_MAX,
            disk: None,
            share: None,
            rdma: None,
        };
        let _node = setup
            .node
            .run(async move { Node::start(&env, options).await })
            .expect("alive")
            .expect("it starts");
        let peer = TcpPeer::new(&setup.writer, ADDRESS, writer);
        setup.world.run_until(peer.status()).expect("answered")
    }
}

fn refused(node: Option<Credentials>, writer: Option<Credentials>) -> String {
    let error = Setup::ask(node, writer).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

const YEAR: i32 = 4000;

#[test]
fn who_shows_a_certificate_that_the_other_believes_is_welcome() {
    let (of_nodes, of_writers) = (Authority::new("of nodes"), Authority::new("of writers"));
    let status = Setup::ask(
        Some(of_nodes.side("node", YEAR, &of_writers)),
        Some(of_writers.side("a writer", YEAR, &of_nodes)),
    );
    assert_eq!(status.expect("welcome").bytes_max, 64 << 20);
}

#[test]
fn a_certificate_that_is_not_believed_is_told_to_both() {
    let (ours, theirs, namesake) = (Authority::new("ours"), Authority::new("theirs"), Authority::new("ours"));
    let right = |name: &str| Some(ours.side(name, YEAR, &ours));
    for (node, writer, word) in [
        (right("node"), Some(theirs.side("a writer", YEAR, &ours)), "its authority is not known there"),
        (right("node"), Some(namesake.side("a writer", YEAR, &ours)), "another authority of the same name"),
        (right("node"), Some(ours.side("a writer", 2001, &ours)), "it has expired"),
        (Some(theirs.side("node", YEAR, &ours)), right("a writer"), "UnknownIssuer"),
        (Some(ours.side("node", 2001, &ours)), right("a writer"), "expired"),
        (right("another"), right("a writer"), "not valid for name"),
    ] {
        let said = refused(node, writer);
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn certificates_on_one_side_only_are_told() {
    let ours = Authority::new("ours");
    let side = |name: &str| Some(ours.side(name, YEAR, &ours));
    let secret = || Some(Secret::new(b"a secret of the tests, long enough").expect("long enough").into());
    for writer in [None, secret()] {
        let said = refused(side("node"), writer);
        assert!(said.contains("takes certificates only"), "{said}");
    }
    for node in [None, secret()] {
        let said = refused(node, side("a writer"));
        assert!(said.contains("does not speak TLS"), "{said}");
    }
}

#[test]
fn what_is_no_pem_is_told_with_its_file() {
    let ours = Authority::new("ours");
    let ((chain, key), (_, other_key)) = (ours.sign("node", YEAR), ours.sign("node", YEAR));
    for (authorities, chain, key, word) in [
        ("", chain.as_str(), key.as_str(), "authorities"),
        ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", &chain, &key, "authorities"),
        (&ours.pem, "nothing", &key, "the certificate"),
        (&ours.pem, &chain, "", "the key"),
        (&ours.pem, &chain, &other_key, "the certificate and its key"),
    ] {
        let error = Tls::new(authorities.as_bytes(), chain.as_bytes(), key.as_bytes()).expect_err(word);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn noise_instead_of_a_handshake_ends_the_connection() {
    let ours = Authority::new("ours");
    let world = World::new(8);
    let ended = met(&world, ours.side("node", YEAR, &ours), |loud| {
        Box::pin(async move { loud.write_all(&[0x16; 4096]).await.expect("open") })
    });
    assert!(ended.is_err());
}

#[test]
fn who_says_that_he_closes_and_goes_on_is_gone() {
    let ours = Authority::new("ours");
    let world = World::new(9);
    let Credentials::Tls(writer) = ours.side("a writer", YEAR, &ours) else { panic!("certificates") };
    let ended = met(&world, ours.side("node", YEAR, &ours), |connection| {
        Box::pin(async move {
            let name = ServerName::try_from("node").expect("a name");
            let mut session = ClientConnection::new(Arc::clone(&writer.writer), name).expect("sound");
            let mut out = Vec::new();
            session.write_tls(&mut out).expect("memory");
            connection.write_all(&out).await.expect("open");
            while session.is_handshaking() {
                let mut buffer = vec![0; READ_BYTES];
                let count = connection.read(&mut buffer).await.expect("it answers");
                session.read_tls(&mut &buffer[..count]).expect("memory");
                session.process_new_packets().expect("a handshake");
            }
            // The end of the handshake, the goodbye, and more than a node reads at once.
            session.send_close_notify();
            out.clear();
            while session.wants_write() {
                session.write_tls(&mut out).expect("memory");
            }
            out.resize(2 * READ_BYTES, 0x17);
            connection.write_all(&out).await.expect("open");
        })
    });
    assert!(matches!(ended, Err(Trouble::Gone(_))), "{ended:?}");
}

/// What a node makes of a stranger.
fn met(
    world: &World,
    node: Credentials,
    stranger: impl for<'a> FnOnce(&'a mut dyn Connection) -> BoxFuture<'a, ()> + Send,
) -> std::result::Result<(), Trouble> {
    let Credentials::Tls(tls) = node else { panic!("certificates") };
    let (host, other) = (world.add_host("node").process("node"), world.add_host("other").process("other"));
    let (env, theirs) = (host.env(), other.env());
    let (completer, ended) = tombolo_env::completion();
    let serve = async move {
        let mut listener = env.network().listen(ADDRESS).await.expect("free");
        let mut connection = listener.accept().await.expect("there is one");
        completer.complete(tls.admit(&mut *connection).await.map(|_| ()));
    };
    host.spawn(tombolo_env::TaskClass::Foreground, "node", serve).detach();
    world.run_until(async move {
        let mut connection = theirs.network().connect(ADDRESS).await.expect("it listens");
        stranger(&mut *connection).await;
        drop(connection);
        ended.await.expect("it ends")
    })
}
