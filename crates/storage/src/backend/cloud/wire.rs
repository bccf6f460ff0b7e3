//! What came over the wire: status and code of a refusal, or how the transport failed.
//!
//! object_store turns answers into errors that no longer say all of it. So its HTTP client is wrapped: the last answer of a request's task is
//! kept beside the task, and [`listen`] puts it together with the error.

use std::cell::RefCell;
use std::future::Future;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector};

use super::failure::Failure;

/// Bytes of a refusal's body that are looked at for its code.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The addresses at which machines of the clouds find their credentials.
const METADATA_HOSTS: [&str; 4] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "[fd00:ec2::254]"];

/// The last thing that came, or did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status of a refusal.
    pub(super) status: Option<u16>,
    /// What the protocol calls it: `NoSuchBucket`, `SlowDown`.
    pub(super) code: Option<String>,
    /// How the transport failed.
    pub(super) transport: Option<HttpErrorKind>,
    /// The status of an answer of success; the error came with its body, or of what the client made of it.
    pub(super) success: Option<u16>,
    /// It was no request to the store, but for credentials.
    pub(super) is_for_credentials: bool,
}

tokio::task_local! {
    static ANSWER: RefCell<Answer>;
}

/// Does `work`; a failure comes with what was heard on the wire.
pub(super) async fn listen<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
    let heard = async {
        let result = work.await;
        result.map_err(|error| Failure::judge(&error, &ANSWER.with(RefCell::take)))
    };
    ANSWER.scope(RefCell::default(), heard).await
}

/// Makes clients that listen.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Listening(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Listening(HttpClient);

#[async_trait]
impl HttpService for Listening {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_for_credentials = request.uri().host().is_some_and(|host| METADATA_HOSTS.contains(&host));
        let note = |answer: Answer| {
            let _ = ANSWER.try_with(|heard| *heard.borrow_mut() = Answer { is_for_credentials, ..answer });
        };
        let response = match self.0.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                note(Answer { transport: Some(error.kind()), ..Answer::default() });
                return Err(error);
            }
        };
        let status = response.status();
        if status.is_success() {
            note(Answer { success: Some(status.as_u16()), ..Answer::default() });
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = match body.bytes().await {
            Ok(body) => body,
            // The status is known, and says enough.
            Err(_) => Bytes::new(),
        };
        let code = parts.headers.get("x-ms-error-code").and_then(|code| code.to_str().ok()).map(str::to_owned).or_else(|| code_of(&body));
        note(Answer { status: Some(status.as_u16()), code, ..Answer::default() });
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// The code in a refusal's body: `<Code>…</Code>` of S3 and Azure, `"reason": "…"` of Google.
fn code_of(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..body.len().min(REFUSAL_BYTES_MAX))?);
    let between = |start: &str, end: &str| {
        let rest = text.split_once(start)?.1;
        rest.split_once(end).map(|(code, _)| code.to_owned()).filter(|code| code.len() < 100)
    };
    between("<Code>", "</Code>").or_else(|| between("\"reason\": \"", "\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_in_refusals() {
        assert_eq!(code_of(b"<Error><Code>SlowDown</Code><Message>m</Message></Error>").as_deref(), Some("SlowDown"));
        assert_eq!(code_of(br#"{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}"#).as_deref(), Some("rateLimitExceeded"));
        assert_eq!(code_of(b"<html>502 Bad Gateway</html>"), None);
        assert_eq!(code_of(b""), None);
    }
}
