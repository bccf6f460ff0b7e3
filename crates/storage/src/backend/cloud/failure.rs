//! What a failed request means: the kind of error, whether it may have taken effect, and what to
//! do.
//!
//! | came | kind | may have taken effect |
//! |---|---|---|
//! | 404 | `NotFound`; of a bucket `Invalid` | no |
//! | 412, 304; 409 but for a conflict of requests | `AlreadyExists` | no |
//! | 409 `ConditionalRequestConflict`, `OperationAborted` | `Retry` | no |
//! | 401, 403, and whatever speaks of tokens and signatures | `PermissionDenied` | no |
//! | 429, 400 `RequestTimeout` (of a body that did not arrive) | `Retry` | no |
//! | 408, 503 whatever its code, other 5xx, an error in an answer of success | `Retry` | yes |
//! | 416 | `Invalid`, and the range lies beyond the end | no |
//! | no connection | `Retry` | no |
//! | a connection that broke, was cut short, or timed out | `Retry` | yes |
//! | whatever came from who gives out credentials, 404 too; 429, 408 and 5xx from there | `PermissionDenied`; `Retry` | no |
//!
//! `SlowDown` of 503 as well: MinIO says it of a change that too few of its drives took in time,
//! and those that did may keep it.

use object_store::client::HttpErrorKind;

use super::answer::Answer;
use crate::{Error, ErrorKind};

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    /// A change may have taken effect, or still may.
    pub(super) is_uncertain: bool,
    /// The status of the answer, if there was one.
    pub(super) status: Option<u16>,
    /// The status of an answer of success that could not be used.
    pub(super) success: Option<u16>,
    /// What happened, in words; neither address nor credentials are in it.
    what: String,
    advice: Option<&'static str>,
}

/// Codes of a store that wants less of us.
const THROTTLED: [&str; 10] = [
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "ServiceUnavailable",
    "ServerBusy",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequests",
    "rateLimitExceeded",
];
const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"];
const WRONG: [&str; 8] = [
    "XAdminUserNotFound",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "InvalidToken",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
    "XAmzContentSHA256Mismatch",
];
const NO_BUCKET: [&str; 4] =
    ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "AllAccessDisabled"];
/// What services say of an object that is not there; a refusal of a request for a length has no
/// code.
const ABSENT: [&str; 7] =
    ["", "NoSuchKey", "NoSuchVersion", "NoSuchUpload", "NotFound", "BlobNotFound", "notFound"];
const FULL: [&str; 4] = ["XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "AccountQuotaExceeded"];

const RENEW: &str = "renew the credentials (AWS_SESSION_TOKEN, a role, a SAS); writes resume by themselves \
    once new ones are found";
const CHECK_KEYS: &str = "check the credentials in the environment: AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or \
                          AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY";
const GIVE_RIGHTS: &str =
    "give the account the rights to list, read, put and delete objects under the database's prefix";
const CHECK_BOTH: &str = "check the credentials in the environment: AZURE_STORAGE_ACCOUNT_NAME and \
    AZURE_STORAGE_ACCOUNT_KEY; and whether the account may list, \
                          read, put and delete objects under the database's prefix, from this network";
const NO_KEYS: &str = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
    GOOGLE_APPLICATION_CREDENTIALS, or \
                       AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give this machine a role";
const NO_KEYS_NOW: &str = "look at the service that gives this machine its credentials; requests go on by \
    themselves once it answers";
const NOT_OF_OBJECTS: &str =
    "what the store says is not about an object: check the credentials, the endpoint and the bucket";
const CREATE_BUCKET: &str = "check the name and the region, or create the bucket";
const WAIT: &str = "the store throttles; requests are made again more slowly. If it stays, spread the load \
    or ask for a higher limit";
const REACH: &str = "check the endpoint, the region and the network between";
const WAIT_LONGER: &str = "it is made again for a while (retry_seconds). If it stays, look at the network \
    between and at the store's load, or give a \
                           request more time: timeout_seconds";
const SET_CLOCK: &str = "set this machine's clock: requests are signed with its time";
const SET_REGION: &str = "name the bucket's region: ?region=eu-central-1";

impl Failure {
    /// What an error of object_store means, with what was heard on the wire.
    pub(super) fn judge(error: &object_store::Error, answer: &Answer) -> Failure {
        let code = answer.code.as_deref().unwrap_or_default();
        let (kind, is_uncertain, advice) = match (answer.status, answer.transport) {
            // Nothing was asked of the store: no word on objects, and no effect.
            (Some(408 | 429 | 500..=599), _) if answer.is_for_credentials => {
                (ErrorKind::Retry, false, Some(NO_KEYS_NOW))
            }
            _ if answer.is_for_credentials => (ErrorKind::PermissionDenied, false, Some(NO_KEYS)),
            (Some(status), _) => by_status(status, code),
            (None, Some(HttpErrorKind::Connect)) => (ErrorKind::Retry, false, Some(REACH)),
            (None, Some(_)) => (ErrorKind::Retry, true, Some(WAIT_LONGER)),
            (None, None) => by_error(error),
        };
        let what = match (answer.status, answer.transport) {
            (Some(status), _) if answer.is_for_credentials => {
                format!("the credentials cannot be had: who gives them out answered {status}")
            }
            _ if answer.is_for_credentials => "the credentials cannot be had".to_owned(),
            (Some(status), _) if code.is_empty() => format!("the store answered {status}"),
            (Some(status), _) => format!("the store answered {status} {code}"),
            (None, Some(HttpErrorKind::Connect)) => "no connection to the store".to_owned(),
            (None, Some(HttpErrorKind::Timeout)) => "the store did not answer in time".to_owned(),
            (None, Some(_)) => "the connection to the store broke".to_owned(),
            (None, None) => innermost(error),
        };
        Failure { kind, is_uncertain, status: answer.status, success: answer.success, what, advice }
    }

    /// The error, of a request that did not take effect.
    pub(super) fn error(&self, doing: &str, place: &str) -> Error {
        self.with_kind(self.kind, doing, place)
    }

    /// The error, of a change that may have taken effect.
    pub(super) fn unknown(&self, doing: &str, place: &str) -> Error {
        self.with_kind(ErrorKind::OutcomeUnknown, doing, place)
    }

    fn with_kind(&self, kind: ErrorKind, doing: &str, place: &str) -> Error {
        let error = Error::new(kind, format!("{doing}: {}", self.what)).object(place);
        match self.advice {
            Some(advice) => error.advice(advice),
            None => error,
        }
    }
}

fn by_status(status: u16, code: &str) -> (ErrorKind, bool, Option<&'static str>) {
    let denied = |advice| (ErrorKind::PermissionDenied, false, Some(advice));
    match (status, code) {
        (_, code) if EXPIRED.contains(&code) => denied(RENEW),
        (_, code) if WRONG.contains(&code) => denied(CHECK_KEYS),
        (_, "RequestTimeTooSkewed") => denied(SET_CLOCK),
        // Azure says so of networks and rights, its emulator of a wrong key.
        (_, "AuthorizationFailure") => denied(CHECK_BOTH),
        (_, code) if NO_BUCKET.contains(&code) => (ErrorKind::Invalid, false, Some(CREATE_BUCKET)),
        (_, code) if FULL.contains(&code) => (
            ErrorKind::OutOfSpace,
            false,
            Some("free space, or raise the quota; writes resume by themselves"),
        ),
        (503, code) if THROTTLED.contains(&code) => (ErrorKind::Retry, true, Some(WAIT)),
        (_, code) if THROTTLED.contains(&code) => (ErrorKind::Retry, false, Some(WAIT)),
        (409, "ConditionalRequestConflict" | "OperationAborted") | (400, "RequestTimeout") => {
            (ErrorKind::Retry, false, None)
        }
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") | (301 | 307 | 308, _) => {
            (ErrorKind::Invalid, false, Some(SET_REGION))
        }
        // An object wrongly taken for absent would be taken for lost, or made anew.
        (404, code) if !ABSENT.contains(&code) => denied(NOT_OF_OBJECTS),
        (404, _) => (ErrorKind::NotFound, false, None),
        (304 | 409 | 412, _) => (ErrorKind::AlreadyExists, false, None),
        (401, _) => denied(CHECK_KEYS),
        (403, _) => denied(GIVE_RIGHTS),
        (429, _) => (ErrorKind::Retry, false, Some(WAIT)),
        (507, _) => (
            ErrorKind::OutOfSpace,
            false,
            Some("free space, or raise the quota; writes resume by themselves"),
        ),
        (501 | 405, _) => (
            ErrorKind::Unsupported,
            false,
            Some("use a store that can do this: docs/storage.md says what is asked of it"),
        ),
        (408 | 500..=599 | 200..=299, _) => (ErrorKind::Retry, true, None),
        _ => (ErrorKind::Invalid, false, None),
    }
}

/// No refusal was heard on the wire: the client itself refused, or could not make sense of an
/// answer. That an object is not there, or is, is the store's to say.
fn by_error(error: &object_store::Error) -> (ErrorKind, bool, Option<&'static str>) {
    use object_store::Error as E;
    match error {
        E::NotSupported { .. } | E::NotImplemented { .. } => (ErrorKind::Unsupported, false, None),
        E::PermissionDenied { .. } => (ErrorKind::PermissionDenied, false, Some(GIVE_RIGHTS)),
        E::Unauthenticated { .. } => (ErrorKind::PermissionDenied, false, Some(CHECK_KEYS)),
        E::InvalidPath { .. } => (
            ErrorKind::Invalid,
            false,
            Some("an object that is not the database's lies under its prefix: move it away"),
        ),
        // An answer of success that broke off, or made no sense.
        _ => (ErrorKind::Retry, true, None),
    }
}

/// The last cause of an error: the ones before it repeat it around addresses.
fn innermost(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
