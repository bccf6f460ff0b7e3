//! What a failed request means: the kind of error, whether it may have taken effect, and what to
//! do.
//!
//! | came | kind | may have taken effect |
//! |---|---|---|
//! | a refusal that names a file which is not there | `NotFound` | no |
//! | a refusal that names a file which is there | `AlreadyExists` | no |
//! | a node that is on standby, starting, in safe mode or too busy | `Retry` | no |
//! | rights, tokens, Kerberos | `PermissionDenied` | no |
//! | a quota; no DataNode with room | `OutOfSpace` | no |
//! | a path that cannot be: too long, below a file, not empty | `Invalid` | no |
//! | no connection | `Retry` | no |
//! | a connection that broke, an answer that makes no sense, silence | `Retry` | yes |
//! | any other refusal | `Retry` | yes |
//!
//! A NameNode that refuses has done nothing. A failure that is not known to be a refusal counts as
//! uncertain all the same: asking again settles it.

use std::io;

use hdfs_native::HdfsError;

use crate::{Error, ErrorKind};

/// Most bytes of what a node says that are shown: some answer with whole stacks.
const SAID_BYTES_MAX: usize = 300;

const SAFE_MODE: &str = "the NameNode changes nothing while it is in safe mode: see `hdfs dfsadmin \
    -safemode get`; requests go on by themselves";
const STANDBY: &str =
    "no NameNode is active: see `hdfs haadmin -getAllServiceState`; requests go on by themselves";
const BUSY: &str = "the NameNode is starting or busy; requests are made again for a while (retry_seconds)";
const GIVE_RIGHTS: &str = "give the user the rights to list, read, write and delete in the database's \
    directory, or name another: ?user=…";
const KERBEROS: &str = "check the ticket (`klist`) and the Hadoop configuration that HADOOP_CONF_DIR names";
const FREE_SPACE: &str = "free space or raise the quota (`hdfs dfs -count -q`); writes resume by themselves";
const DATANODES: &str =
    "look at the DataNodes (`hdfs dfsadmin -report`); requests are made again for a while (retry_seconds)";
const CHECK_BLOCKS: &str = "see which blocks are missing: `hdfs fsck` with the path; requests are made \
    again for a while (retry_seconds)";
const CHECK_PATH: &str = "choose a directory whose parts are directories, and that nothing else uses";
const REACH: &str =
    "check host and port of the NameNode (fs.defaultFS of its core-site.xml) and the network between";
const CONFIGURE: &str = "write the port (hdfs://host:8020/path), or let HADOOP_CONF_DIR name a \
    configuration that has this name service";
const WAIT_LONGER: &str = "it is made again for a while (retry_seconds). If it stays, look at the network \
    and at the NameNode's load, or give a request more \
                           time: timeout_seconds";
const NOT_BUILT: &str = "use a directory outside encryption zones: this program has no client for their keys";

/// What a NameNode says of a path where a file cannot be, besides that none is there.
const NO_FILE: [&str; 3] =
    ["ParentNotDirectoryException", "PathIsNotEmptyDirectoryException", "PathIsNotDirectoryException"];

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    /// A change may have taken effect, or still may.
    pub(super) is_uncertain: bool,
    /// There is no file of that name: nothing, a directory, or something below a file.
    pub(super) is_no_file: bool,
    what: String,
    advice: Option<&'static str>,
}

impl Failure {
    /// Nothing came back in time.
    pub(super) fn silence() -> Failure {
        let what = "no answer in time".to_owned();
        Failure {
            kind: ErrorKind::Retry,
            is_uncertain: true,
            is_no_file: false,
            what,
            advice: Some(WAIT_LONGER),
        }
    }

    /// Nothing of that name is there, or no file.
    pub(super) fn absent() -> Failure {
        Failure {
            kind: ErrorKind::NotFound,
            is_uncertain: false,
            is_no_file: true,
            what: "no such object".to_owned(),
            advice: None,
        }
    }

    /// Less came than was asked for, and was there.
    pub(super) fn short(wanted: usize, came: usize) -> Failure {
        let what = format!("{came} bytes came instead of {wanted}");
        Failure {
            kind: ErrorKind::Retry,
            is_uncertain: true,
            is_no_file: false,
            what,
            advice: Some(CHECK_BLOCKS),
        }
    }

    /// Directories that no program of ours makes.
    pub(super) fn too_deep() -> Failure {
        let what = "directories lie too deep".to_owned();
        Failure {
            kind: ErrorKind::Invalid,
            is_uncertain: false,
            is_no_file: false,
            what,
            advice: Some(CHECK_PATH),
        }
    }

    /// What an error of the client means.
    pub(super) fn judge(error: &HdfsError) -> Failure {
        use HdfsError as E;
        let (kind, is_uncertain, advice) = match error {
            E::IOError(error) if is_before_request(error) => (ErrorKind::Retry, false, Some(REACH)),
            E::RPCError(class, said) => by_class(class, said),
            E::FatalRPCError(class, said) => match by_class(class, said) {
                (ErrorKind::Retry, _, advice) => (ErrorKind::Retry, true, advice),
                judged => judged,
            },
            E::AlreadyExists(_) => (ErrorKind::AlreadyExists, false, None),
            E::FileNotFound(_) | E::IsADirectoryError(_) => (ErrorKind::NotFound, false, None),
            E::InvalidArgument(said) if said.contains("No NameNode") => {
                (ErrorKind::Invalid, false, Some(CONFIGURE))
            }
            E::InvalidPath(_) | E::InvalidArgument(_) | E::UrlParseError(_) | E::XmlParseError(_) => {
                (ErrorKind::Invalid, false, None)
            }
            E::UnsupportedFeature(said) if said.contains("encryption zone") => {
                (ErrorKind::Unsupported, false, Some(NOT_BUILT))
            }
            E::UnsupportedFeature(_) | E::UnsupportedErasureCodingPolicy(_) | E::TrashNotEnabled => {
                (ErrorKind::Unsupported, false, None)
            }
            E::SASLError(_) | E::GSSAPIError(..) | E::NoSASLMechanism => {
                (ErrorKind::PermissionDenied, false, Some(KERBEROS))
            }
            E::DataTransferError(_) | E::ChecksumError | E::BlocksNotFound(_) | E::ErasureCodingError(_) => {
                (ErrorKind::Retry, true, Some(CHECK_BLOCKS))
            }
            E::IOError(_) | E::OperationFailed(_) | E::InternalError(_) | E::InvalidRPCResponse(_) => {
                (ErrorKind::Retry, true, Some(WAIT_LONGER))
            }
        };
        let what = match error {
            E::RPCError(class, said) | E::FatalRPCError(class, said) => {
                format!("the NameNode says {}: {}", short(class), first_line(said))
            }
            E::DataTransferError(said) => format!("the DataNodes failed: {}", first_line(said)),
            error => first_line(&error.to_string()).to_owned(),
        };
        let is_no_file = match error {
            E::RPCError(class, said) => {
                kind == ErrorKind::NotFound || NO_FILE.contains(&short(class)) || is_below_a_file(said)
            }
            _ => kind == ErrorKind::NotFound,
        };
        Failure { kind, is_uncertain, is_no_file, what, advice }
    }

    /// The error, of a request that did not take effect.
    pub(super) fn error(&self, doing: &str, place: &str) -> Error {
        self.with_kind(self.kind, doing, place)
    }

    /// The error, of a change that may have taken effect.
    pub(super) fn unknown(&self, doing: &str, place: &str) -> Error {
        self.with_kind(ErrorKind::OutcomeUnknown, doing, place)
    }

    /// The error, whose kind the caller knows better.
    pub(super) fn with_kind(&self, kind: ErrorKind, doing: &str, place: &str) -> Error {
        let error = Error::new(kind, format!("{doing}: {}", self.what)).object(place);
        match self.advice {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }
}

/// Whether no connection came about, so that nothing was asked.
fn is_before_request(error: &io::Error) -> bool {
    use io::ErrorKind as Io;
    matches!(
        error.kind(),
        Io::ConnectionRefused | Io::AddrNotAvailable | Io::HostUnreachable | Io::NetworkUnreachable
    )
}

/// Whether the NameNode met a file where a directory should be. A user without all rights is told
/// so as of a denied access.
fn is_below_a_file(said: &str) -> bool {
    first_line(said).ends_with("(is not a directory)")
}

/// The name of an exception without its package.
fn short(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

fn first_line(said: &str) -> &str {
    let line = said.lines().next().unwrap_or_default();
    let end = (0..=SAID_BYTES_MAX.min(line.len())).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    &line[..end]
}

/// What a node refused, by the name of its exception.
fn by_class(class: &str, said: &str) -> (ErrorKind, bool, Option<&'static str>) {
    let refused = |kind, advice| (kind, false, advice);
    match short(class) {
        // What another layer of the NameNode passes on inside another exception.
        _ if said.contains("afe mode") => refused(ErrorKind::Retry, Some(SAFE_MODE)),
        "SafeModeException" => refused(ErrorKind::Retry, Some(SAFE_MODE)),
        "StandbyException" | "ObserverRetryOnActiveException" => refused(ErrorKind::Retry, Some(STANDBY)),
        "RetriableException" | "ServerNotRunningYetException" => refused(ErrorKind::Retry, Some(BUSY)),
        // A writer whose lease is gone has lost its file: to be written again.
        "LeaseExpiredException" | "RecoveryInProgressException" => refused(ErrorKind::Retry, None),
        "FileNotFoundException" | "PathNotFoundException" => refused(ErrorKind::NotFound, None),
        "FileAlreadyExistsException" | "AlreadyBeingCreatedException" => {
            refused(ErrorKind::AlreadyExists, None)
        }
        "AccessControlException" if is_below_a_file(said) => refused(ErrorKind::Invalid, Some(CHECK_PATH)),
        // The second when a part of the path may not be passed through.
        "AccessControlException" | "TraverseAccessControlException" | "AuthorizationException" => {
            refused(ErrorKind::PermissionDenied, Some(GIVE_RIGHTS))
        }
        "SaslException" | "GSSException" | "InvalidToken" => {
            refused(ErrorKind::PermissionDenied, Some(KERBEROS))
        }
        "NSQuotaExceededException"
        | "DSQuotaExceededException"
        | "QuotaByStorageTypeExceededException"
        | "QuotaExceededException"
        | "MaxDirectoryItemsExceededException"
        | "ClusterStorageCapacityExceededException" => refused(ErrorKind::OutOfSpace, Some(FREE_SPACE)),
        "ParentNotDirectoryException"
        | "PathIsNotDirectoryException"
        | "PathIsNotEmptyDirectoryException"
        | "PathComponentTooLongException"
        | "InvalidPathException"
        | "SnapshotException"
        | "UnresolvedLinkException" => refused(ErrorKind::Invalid, Some(CHECK_PATH)),
        "IOException" if said.contains("must both be directories") => {
            refused(ErrorKind::Invalid, Some(CHECK_PATH))
        }
        "IOException"
            if said.contains("could only be written to") || said.contains("could only be replicated to") =>
        {
            no_targets(said)
        }
        "RpcNoSuchMethodException" | "RpcNoSuchProtocolException" | "UnsupportedOperationException" => {
            refused(ErrorKind::Unsupported, Some("use HDFS of version 3, or 2.7 at least"))
        }
        _ => (ErrorKind::Retry, true, None),
    }
}

/// The NameNode finds no DataNode for a block: they are full when some run and none of them is left
/// out, and away otherwise.
fn no_targets(said: &str) -> (ErrorKind, bool, Option<&'static str>) {
    let are_there = !said.contains("There are 0 datanode(s) running") && said.contains("datanode(s) running");
    match are_there && said.contains("no node(s) are excluded") {
        true => (ErrorKind::OutOfSpace, false, Some(FREE_SPACE)),
        false => (ErrorKind::Retry, false, Some(DATANODES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(class: &str, said: &str) -> (ErrorKind, bool) {
        let failure = Failure::judge(&HdfsError::RPCError(class.to_owned(), said.to_owned()));
        (failure.kind, failure.is_uncertain)
    }

    #[test]
    fn a_refusal_is_certain_and_has_its_kind() {
        for (class, said, kind) in [
            ("java.io.FileNotFoundException", "File does not exist: /a", ErrorKind::NotFound),
            (
                "org.apache.hadoop.fs.FileAlreadyExistsException",
                "rename destination /a already exists",
                ErrorKind::AlreadyExists,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "Permission denied: user=x",
                ErrorKind::PermissionDenied,
            ),
            (
                "org.apache.hadoop.security.token.SecretManager$InvalidToken",
                "expired",
                ErrorKind::PermissionDenied,
            ),
            ("org.apache.hadoop.ipc.StandbyException", "not supported in state standby", ErrorKind::Retry),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create", ErrorKind::Retry),
            (
                "org.apache.hadoop.ipc.RetriableException",
                "Cannot rename. Name node is in safe mode.",
                ErrorKind::Retry,
            ),
            ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "over", ErrorKind::OutOfSpace),
            (
                "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
                "long",
                ErrorKind::Invalid,
            ),
            (
                "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException",
                "many",
                ErrorKind::OutOfSpace,
            ),
            (
                "org.apache.hadoop.fs.ParentNotDirectoryException",
                "/a (is not a directory)",
                ErrorKind::Invalid,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                "/a (is not a directory)",
                ErrorKind::Invalid,
            ),
            (
                "java.io.IOException",
                "Source /t and destination /a must both be directories",
                ErrorKind::Invalid,
            ),
        ] {
            assert_eq!(judged(class, said), (kind, false), "{class}: {said}");
        }
    }

    #[test]
    fn only_what_the_name_node_says_is_absent_is() {
        let no_file =
            |class: &str| Failure::judge(&HdfsError::RPCError(class.to_owned(), String::new())).is_no_file;
        assert!(
            no_file("java.io.FileNotFoundException")
                && no_file("org.apache.hadoop.fs.ParentNotDirectoryException")
        );
        assert!(
            no_file("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException") && Failure::absent().is_no_file
        );
        let below = HdfsError::RPCError(
            "org.apache.hadoop.security.AccessControlException".into(),
            "/a (is not a directory)\n\tat".into(),
        );
        assert!(Failure::judge(&below).is_no_file);
        assert!(
            !no_file("org.apache.hadoop.security.AccessControlException") && !no_file("java.io.IOException")
        );
        assert!(!no_file("org.apache.hadoop.ipc.RetriableException") && !Failure::silence().is_no_file);
        assert!(
            !Failure::judge(&HdfsError::BlocksNotFound("/a".into())).is_no_file,
            "a file whose blocks are missing is there"
        );
    }

    #[test]
    fn what_is_no_known_refusal_may_have_taken_effect() {
        assert_eq!(judged("java.lang.NullPointerException", ""), (ErrorKind::Retry, true));
        assert_eq!(judged("java.io.IOException", "something new"), (ErrorKind::Retry, true));
        for (kind, is_uncertain) in [
            (io::ErrorKind::ConnectionRefused, false),
            (io::ErrorKind::HostUnreachable, false),
            (io::ErrorKind::ConnectionAborted, true),
            (io::ErrorKind::ConnectionReset, true),
            (io::ErrorKind::UnexpectedEof, true),
            (io::ErrorKind::TimedOut, true),
        ] {
            let failure = Failure::judge(&HdfsError::IOError(kind.into()));
            assert_eq!((failure.kind, failure.is_uncertain), (ErrorKind::Retry, is_uncertain), "{kind}");
        }
        assert!(Failure::silence().is_uncertain);
        let fatal = HdfsError::FatalRPCError("org.apache.hadoop.ipc.StandbyException".into(), String::new());
        assert!(
            Failure::judge(&fatal).is_uncertain,
            "a connection that the node gave up may have carried other requests"
        );
    }

    #[test]
    fn full_nodes_and_absent_ones_are_told_apart() {
        let said = |nodes: &str| {
            format!(
                "File /t could only be written to 0 of the 1 minReplication nodes. {nodes} in this operation."
            )
        };
        for (nodes, kind) in [
            ("There are 3 datanode(s) running and no node(s) are excluded", ErrorKind::OutOfSpace),
            ("There are 1 datanode(s) running and 1 node(s) are excluded", ErrorKind::Retry),
            ("There are 0 datanode(s) running and no node(s) are excluded", ErrorKind::Retry),
        ] {
            assert_eq!(judged("java.io.IOException", &said(nodes)), (kind, false), "{nodes}");
        }
    }

    #[test]
    fn messages_are_one_line_with_what_to_do() {
        let long = format!("{}\n\tat org.apache", "ü".repeat(400));
        let failure = Failure::judge(&HdfsError::RPCError(
            "org.apache.hadoop.security.AccessControlException".into(),
            long,
        ));
        let text = failure.error("reading an object", "hdfs://h:1/a").to_string();
        assert!(
            text.contains("AccessControlException: üü") && !text.contains("org.apache") && text.len() < 800,
            "{text}"
        );
        assert!(text.contains("hdfs://h:1/a") && text.contains("?user="), "{text}");
        let unknown = Failure::silence().unknown("naming an object", "hdfs://h:1/a");
        assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
        let unnamed = Failure::judge(&HdfsError::InvalidArgument("No NameNode hosts found".into()));
        assert!(unnamed.error("opening", "hdfs://ns/a").to_string().contains("HADOOP_CONF_DIR"));
    }
}
