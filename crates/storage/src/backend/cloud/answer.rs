//! What a store answered to a request, as far as errors are judged by it.

use object_store::client::HttpErrorKind;

/// What Azure says of a copy, in `x-ms-copy-status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CopyStatus {
    /// It is made, or there is none.
    #[default]
    Made,
    /// It goes on.
    Pending,
    /// It was given up: the name holds nothing, for ever.
    GivenUp,
}

/// The last thing that came, or did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status of a refusal.
    pub(super) status: Option<u16>,
    /// What the protocol calls it: `NoSuchBucket`, `SlowDown`.
    pub(super) code: Option<String>,
    /// How the transport failed.
    pub(super) transport: Option<HttpErrorKind>,
    /// The status of an answer of success; the error came with its body, or of what the client made
    /// of it.
    pub(super) success: Option<u16>,
    /// Of a copy that Azure has accepted, or by which the object that was looked at came about.
    pub(super) copy: CopyStatus,
    /// It was no request to the store, but one for credentials.
    pub(super) is_for_credentials: bool,
}
