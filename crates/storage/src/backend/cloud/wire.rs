//! What came over the wire: status and code of a refusal, or how the transport failed.
//!
//! object_store turns answers into errors that no longer say all of it. So its HTTP client is
//! wrapped: the last answer of a request's task is kept beside the task (the first refusal, once
//! there is one), and [`listen`] puts it together with the error.
//!
//! The same place sees every request that goes out, and what the service will charge for: within
//! [`counted`] each is counted.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, HeaderValue};

use super::answer::{Answer, CopyStatus};
use super::failure::Failure;
use crate::layer::RequestKind;
use crate::{Meter, Purpose};

/// Bytes of a refusal's body that are looked at for its code.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Chooses who does the cryptography of TLS, before the first client is made: without it there is
/// none.
pub(super) fn choose_tls() {
    // Fails when another part of the program has chosen already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Who counts the requests of a task, and why they are made.
#[derive(Clone, Debug)]
struct Counting {
    meter: Arc<Meter>,
    purpose: Purpose,
}

tokio::task_local! {
    static ANSWER: RefCell<Answer>;
    static COUNTING: Counting;
}

/// Does `work`; `meter` counts what it sends.
pub(super) fn counted<T>(
    meter: Arc<Meter>,
    purpose: Purpose,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    COUNTING.scope(Counting { meter, purpose }, work)
}

impl Counting {
    /// Counts a request that goes out. `None`: it is nobody's, or one for credentials.
    fn begin(request: &HttpRequest, is_for_credentials: bool) -> Option<(Counting, RequestKind)> {
        let counting = COUNTING.try_with(Counting::clone).ok().filter(|_| !is_for_credentials)?;
        let kind = kind_of(request);
        counting.meter.sent(counting.purpose, kind, request.body().content_length() as u64);
        Some((counting, kind))
    }

    fn end(self, kind: RequestKind, response: &Result<HttpResponse, HttpError>) {
        let Counting { meter, purpose } = self;
        match response {
            // Of a length that was asked for nothing comes but the length.
            Ok(response) if response.status().is_success() && kind != RequestKind::Length => {
                let length = response
                    .headers()
                    .get(CONTENT_LENGTH)
                    .and_then(|length| length.to_str().ok()?.parse().ok());
                meter.received(purpose, kind, length.unwrap_or(0));
            }
            Ok(response) if response.status().is_success() => {}
            _ => meter.failed(purpose, kind),
        }
    }
}

/// What a request asks for, in the protocols of S3, Google and Azure.
fn kind_of(request: &HttpRequest) -> RequestKind {
    let query = request.uri().query().unwrap_or_default();
    let has =
        |wanted: &str| query.split('&').any(|pair| pair == wanted || pair.split('=').next() == Some(wanted));
    let headers = request.headers();
    let is_copy = ["x-amz-copy-source", "x-ms-copy-source", "x-goog-copy-source"]
        .iter()
        .any(|name| headers.contains_key(*name));
    match *request.method() {
        Method::GET if has("list-type") || has("comp=list") => RequestKind::List,
        Method::GET => RequestKind::Read,
        Method::HEAD => RequestKind::Length,
        Method::DELETE => RequestKind::Delete,
        _ if is_copy => RequestKind::Copy,
        _ if has("comp=batch") => RequestKind::Delete,
        _ if has("partNumber") || has("comp=block") => RequestKind::Append,
        _ if has("uploadId") || has("comp=blocklist") => RequestKind::Finish,
        _ if has("uploads") => RequestKind::Create,
        _ => RequestKind::Put,
    }
}

/// Does `work`; a failure comes with what was heard on the wire.
pub(super) async fn listen<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
    hear(work).await.map(|(result, _)| result)
}

/// As [`listen`]; a success comes with what was heard as well.
pub(super) async fn hear<T>(
    work: impl Future<Output = object_store::Result<T>>,
) -> Result<(T, Answer), Failure> {
    let heard = async {
        let result = work.await;
        let answer = ANSWER.with(RefCell::take);
        match result {
            Ok(result) => Ok((result, answer)),
            Err(error) => Err(Failure::judge(&error, &answer)),
        }
    };
    ANSWER.scope(RefCell::default(), heard).await
}

/// Makes the clients of one store, which listen.
///
/// A builder makes one for each source of credentials, and the store's own last: every one but the
/// last asks some source for credentials, and its answers say nothing about objects.
#[derive(Debug, Default)]
pub(super) struct Connector {
    /// Clients made so far.
    made: Arc<AtomicUsize>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(HttpClient::new(Listening { client, number, made: Arc::clone(&self.made) }))
    }
}

#[derive(Debug)]
struct Listening {
    client: HttpClient,
    /// Its place among those that the builder made, from one.
    number: usize,
    made: Arc<AtomicUsize>,
}

impl Listening {
    fn is_for_credentials(&self) -> bool {
        self.number < self.made.load(Ordering::Relaxed)
    }
}

/// Keeps an answer. The store's first refusal stays: nothing is tried again within a call, so that
/// whatever follows is cleaning up, as giving up an upload is after a copy that failed.
fn note(answer: Answer) {
    let _ = ANSWER.try_with(|heard| {
        let mut heard = heard.borrow_mut();
        let is_settled = !heard.is_for_credentials && (heard.status.is_some() || heard.transport.is_some());
        if !is_settled {
            *heard = answer;
        }
    });
}

#[async_trait]
impl HttpService for Listening {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let heard = Answer { is_for_credentials: self.is_for_credentials(), ..Answer::default() };
        let counting = Counting::begin(&request, heard.is_for_credentials);
        let is_batch =
            request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "comp=batch"));
        let response = self.client.execute(request).await;
        if let Some((counting, kind)) = counting {
            counting.end(kind, &response);
        }
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                note(Answer { transport: Some(error.kind()), ..heard });
                return Err(error);
            }
        };
        let status = response.status();
        if status.is_success() && is_batch {
            let (parts, body) = response.into_parts();
            let body = body.bytes().await?;
            let answer = match refusal_in_batch(&body) {
                Some((status, code)) => Answer { status: Some(status), code, ..heard },
                None => Answer { success: Some(status.as_u16()), ..heard },
            };
            note(answer);
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        if status.is_success() {
            let copy = match response.headers().get("x-ms-copy-status").map(HeaderValue::as_bytes) {
                Some(b"pending") => CopyStatus::Pending,
                Some(b"failed" | b"aborted") => CopyStatus::GivenUp,
                _ => CopyStatus::Made,
            };
            note(Answer { success: Some(status.as_u16()), copy, ..heard });
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = beginning(body, REFUSAL_BYTES_MAX).await;
        let code = parts
            .headers
            .get("x-ms-error-code")
            .and_then(|code| code.to_str().ok())
            .map(str::to_owned)
            .or_else(|| code_of(&body));
        note(Answer { status: Some(status.as_u16()), code, ..heard });
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// The beginning of a refusal's body, and no more of it than is looked at: who sends it may go on
/// for ever. What breaks off is as good, because the status is known and says enough.
async fn beginning(mut body: HttpResponseBody, bytes_max: usize) -> Bytes {
    let mut beginning = BytesMut::new();
    while beginning.len() < bytes_max
        && let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(data) = frame.into_data() {
            let room = bytes_max - beginning.len();
            beginning.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    beginning.freeze()
}

/// The first refusal in the answer to a batch, whose parts are answers: Azure deletes by batches of
/// one, and accepts each batch as such.
fn refusal_in_batch(body: &[u8]) -> Option<(u16, Option<String>)> {
    let text = String::from_utf8_lossy(body.get(..body.len().min(REFUSAL_BYTES_MAX))?);
    let mut lines = text.lines();
    let status = lines.by_ref().find_map(|line| {
        let status: u16 = line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        (!(200..300).contains(&status)).then_some(status)
    })?;
    let headers = lines.take_while(|line| !line.is_empty());
    let code = headers
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("x-ms-error-code"));
    Some((status, code.map(|(_, code)| code.trim().to_owned()).filter(|code| code.len() < 100)))
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
    fn a_refusal_in_a_batch_is_found() {
        let part = |answer: &str| {
            format!(
                "--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: \
                0\r\n\r\n{answer}\r\n\r\n--batchresponse_1--"
            )
        };
        let absent = part(
            "HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-request-id: 1\r\nX-Ms-Error-Code: \
            BlobNotFound",
        );
        assert_eq!(refusal_in_batch(absent.as_bytes()), Some((404, Some("BlobNotFound".into()))));
        assert_eq!(refusal_in_batch(part("HTTP/1.1 503 Busy").as_bytes()), Some((503, None)));
        assert_eq!(refusal_in_batch(part("HTTP/1.1 202 Accepted\r\nx-ms-error-code: none").as_bytes()), None);
        assert_eq!(refusal_in_batch(b"HTTP/1.1 \xff"), None);
    }

    /// A body that never ends.
    struct Endless(Arc<AtomicUsize>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, HttpError>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 1000])))))
        }
    }

    #[test]
    fn of_a_refusal_without_end_the_beginning_is_read() {
        let given = Arc::<AtomicUsize>::default();
        let body = HttpResponseBody::new(Endless(Arc::clone(&given)));
        let read = tombolo_env::Env::real().block_on(beginning(body, REFUSAL_BYTES_MAX));
        assert_eq!(
            (read.len(), given.load(Ordering::Relaxed)),
            (REFUSAL_BYTES_MAX, REFUSAL_BYTES_MAX.div_ceil(1000))
        );
        let short = tombolo_env::Env::real()
            .block_on(beginning(Bytes::from_static(b"<Code>SlowDown</Code>").into(), REFUSAL_BYTES_MAX));
        assert_eq!(code_of(&short).as_deref(), Some("SlowDown"));
    }

    #[test]
    fn codes_are_found_in_refusals() {
        assert_eq!(
            code_of(b"<Error><Code>SlowDown</Code><Message>m</Message></Error>").as_deref(),
            Some("SlowDown")
        );
        assert_eq!(
            code_of(br#"{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}"#).as_deref(),
            Some("rateLimitExceeded")
        );
        assert_eq!(code_of(b"<html>502 Bad Gateway</html>"), None);
        assert_eq!(code_of(b""), None);
    }
}
