//! A server of the S3 protocol in this process, as far as the store uses it: right by default, and
//! wrong in the ways that a test asks for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub(in super::super) enum Trouble {
    /// It is refused with a status and a code.
    Refuse(u16, &'static str),
    /// It takes effect, and is refused.
    KeepAndRefuse(u16, &'static str),
    /// The connection ends before it takes effect.
    LostRequest,
    /// It takes effect, and the connection ends before the answer.
    LostAnswer,
    /// The answer's body ends after so many bytes, and the connection with it.
    CutBody(usize),
    /// No answer, for so long.
    Silence(Duration),
    /// A list's page without a key, and more to come: after where the page began, or after a key.
    EmptyPage(Option<&'static str>),
    /// A copy of Azure's is accepted, and there after its length was asked for so often: until then
    /// its name holds nothing.
    PendingCopy(u32),
    /// The same, but then it is given up.
    FailingCopy(u32),
}

/// How the server puts what must be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum ConditionalPut {
    /// Rightly.
    Atomic,
    /// Looks, then puts: two may find the name free.
    LooksThenPuts,
    /// Takes no notice of the condition.
    Ignored,
}

/// A request as rules see it.
#[derive(Clone, Debug)]
pub(in super::super) struct Asked {
    pub(in super::super) method: String,
    pub(in super::super) key: String,
    pub(in super::super) query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Asked {
    pub(in super::super) fn is_list(&self) -> bool {
        self.query.contains_key("list-type") || self.query.contains_key("comp")
    }
}

type Rule = Box<dyn FnMut(&Asked) -> Option<Trouble> + Send>;

#[derive(Clone, Debug, Default)]
struct Stored {
    bytes: Vec<u8>,
    metadata: Vec<(String, String)>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    requests: Vec<String>,
    next_upload: u32,
    /// Copies that go on, by key: for how many looks, and what they come to.
    pending: BTreeMap<String, (u32, Option<Stored>)>,
}

struct Shared {
    state: Mutex<State>,
    rules: Mutex<Vec<Rule>>,
    conditional_put: ConditionalPut,
    /// A range that holds the whole object is answered as if there were none, as versitygw does.
    answers_whole: bool,
    is_ended: AtomicBool,
}

/// See the module. It has one bucket, `bucket`.
pub(in super::super) struct Server {
    shared: Arc<Shared>,
    address: String,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    fn refusal(status: u16, code: &str) -> Answer {
        Answer {
            body: format!("<Error><Code>{code}</Code><Message>said by the test</Message></Error>")
                .into_bytes(),
            ..Answer::new(status)
        }
    }

    fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

impl Server {
    pub(in super::super) fn start() -> Server {
        Server::with(ConditionalPut::Atomic, false)
    }

    pub(in super::super) fn with(conditional_put: ConditionalPut, answers_whole: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            rules: Mutex::default(),
            conditional_put,
            answers_whole,
            is_ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), serving) = (stream, Arc::clone(&serving)) else { return };
                std::thread::spawn(move || serving.connection(stream));
            }
        });
        Server { shared, address }
    }

    /// The URI of a prefix of its bucket, with further parameters.
    pub(in super::super) fn uri(&self, prefix: &str, parameters: &str) -> String {
        format!("s3://bucket/{prefix}?endpoint=http://{}&anonymous=yes{parameters}", self.address)
    }

    /// As [`Server::uri`], for the protocol of Azure, of which lists, reads, puts and copies are
    /// answered.
    pub(in super::super) fn azure_uri(&self, prefix: &str) -> String {
        format!("az://bucket/{prefix}?endpoint=http://{}&account=tests&anonymous=yes", self.address)
    }

    /// Where it listens, as a URL.
    pub(in super::super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks `rule` about every request from here on.
    pub(in super::super) fn trouble(&self, rule: impl FnMut(&Asked) -> Option<Trouble> + Send + 'static) {
        self.shared.rules.lock().push(Box::new(rule));
    }

    /// Trouble of one kind for the next `times` requests with this method.
    pub(in super::super) fn next(&self, method: &'static str, mut times: u32, trouble: Trouble) {
        self.trouble(move |asked| {
            let strikes = asked.method == method && times > 0;
            times -= u32::from(strikes);
            strikes.then(|| trouble.clone())
        });
    }

    /// What rules may use of it while it serves.
    pub(in super::super) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Puts an object past the protocol.
    pub(in super::super) fn plant(&self, key: &str, bytes: &[u8]) {
        self.handle().plant(key, bytes);
    }

    /// An object's bytes.
    pub(in super::super) fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.state.lock().objects.get(key).map(|stored| stored.bytes.clone())
    }

    /// The requests so far, as `METHOD key`.
    pub(in super::super) fn requests(&self) -> Vec<String> {
        self.shared.state.lock().requests.clone()
    }

    /// Uploads that were begun and neither completed nor given up.
    pub(in super::super) fn open_uploads(&self) -> usize {
        self.shared.state.lock().uploads.len()
    }
}

/// See [`Server::handle`].
pub(in super::super) struct Handle(Arc<Shared>);

impl Handle {
    /// Puts an object past the protocol.
    pub(in super::super) fn plant(&self, key: &str, bytes: &[u8]) {
        self.0
            .state
            .lock()
            .objects
            .insert(key.to_owned(), Stored { bytes: bytes.to_vec(), metadata: Vec::new() });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        // The accepting thread looks at the flag when somebody comes.
        drop(TcpStream::connect(&self.address));
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digits = [*high, *low];
                bytes.push(
                    u8::from_str_radix(std::str::from_utf8(&digits).expect("digits"), 16).expect("digits"),
                );
                rest = tail;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).expect("text")
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut parts = line.split_whitespace();
    let (method, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    });
    let key = decode(path).trim_start_matches('/').to_owned();
    let key = key.strip_prefix("bucket/").map_or_else(String::new, str::to_owned);
    Some(Asked { method, key, query: query.collect(), headers, body })
}

impl Shared {
    fn connection(&self, stream: TcpStream) {
        let mut writing = stream.try_clone().expect("a second handle");
        let mut reader = BufReader::new(stream);
        while let Some(asked) = read_request(&mut reader) {
            self.state.lock().requests.push(format!("{} {}", asked.method, asked.key));
            let trouble = self.rules.lock().iter_mut().find_map(|rule| rule(&asked));
            let (answer, cut) = match trouble {
                Some(Trouble::LostRequest) => return,
                Some(Trouble::Refuse(status, code)) => (Answer::refusal(status, code), None),
                Some(Trouble::KeepAndRefuse(status, code)) => {
                    self.serve(&asked);
                    (Answer::refusal(status, code), None)
                }
                Some(Trouble::LostAnswer) => {
                    self.serve(&asked);
                    return;
                }
                Some(Trouble::Silence(time)) => {
                    std::thread::sleep(time);
                    return;
                }
                Some(Trouble::EmptyPage(after)) => (self.list(&asked, Some(after)), None),
                Some(Trouble::PendingCopy(looks)) => (self.copy(&asked, looks, true), None),
                Some(Trouble::FailingCopy(looks)) => (self.copy(&asked, looks, false), None),
                Some(Trouble::CutBody(bytes)) => (self.serve(&asked), Some(bytes)),
                None => (self.serve(&asked), None),
            };
            if !send(&mut writing, &asked.method, &answer, cut) || cut.is_some() {
                return;
            }
        }
    }

    fn serve(&self, asked: &Asked) -> Answer {
        let upload = asked.query.get("uploadId");
        match (asked.method.as_str(), upload) {
            ("GET", _) if asked.is_list() => self.list(asked, None),
            ("GET" | "HEAD", _) => self.get(asked),
            ("PUT", Some(upload)) => self.put_part(asked, upload),
            ("PUT", None) if asked.headers.contains_key("x-ms-copy-source") => self.copy(asked, 0, true),
            ("PUT", None) => self.put(asked),
            ("POST", Some(upload)) => self.complete(asked, upload),
            ("POST", None) => self.begin_upload(),
            ("DELETE", Some(upload)) => match self.state.lock().uploads.remove(upload) {
                Some(_) => Answer::new(204),
                None => Answer::refusal(404, "NoSuchUpload"),
            },
            ("DELETE", None) => {
                self.state.lock().objects.remove(&asked.key);
                Answer::new(204)
            }
            _ => Answer::refusal(405, "MethodNotAllowed"),
        }
    }

    /// A copy as Azure makes it, which is there after `looks`, or given up then.
    fn copy(&self, asked: &Asked, looks: u32, succeeds: bool) -> Answer {
        let source = decode(&asked.headers["x-ms-copy-source"]);
        let mut state = self.state.lock();
        let Some(stored) = source.split_once("/bucket/").and_then(|(_, key)| state.objects.get(key)).cloned()
        else {
            return Answer::refusal(404, "BlobNotFound");
        };
        if asked.headers.contains_key("if-none-match") && state.objects.contains_key(&asked.key) {
            return Answer::refusal(409, "BlobAlreadyExists");
        }
        if looks == 0 {
            state.objects.insert(asked.key.clone(), stored);
            return Answer::new(202).header("x-ms-copy-status", "success");
        }
        state.objects.insert(asked.key.clone(), Stored::default());
        state.pending.insert(asked.key.clone(), (looks, succeeds.then_some(stored)));
        Answer::new(202).header("x-ms-copy-status", "pending")
    }

    /// One look more at a copy that goes on, and the answer.
    fn look(&self, asked: &Asked) -> Option<&'static str> {
        let mut state = self.state.lock();
        let (looks, _) = state.pending.get_mut(&asked.key)?;
        *looks = looks.saturating_sub(1);
        if *looks > 0 {
            return Some("pending");
        }
        match state.pending.get(&asked.key)?.1.clone() {
            None => Some("failed"),
            Some(stored) => {
                state.objects.insert(asked.key.clone(), stored);
                state.pending.remove(&asked.key);
                Some("success")
            }
        }
    }

    fn get(&self, asked: &Asked) -> Answer {
        let Some(stored) = self.state.lock().objects.get(&asked.key).cloned() else {
            return Answer::refusal(404, "NoSuchKey");
        };
        let copy = if asked.method == "HEAD" { self.look(asked) } else { None };
        let length = stored.bytes.len();
        let range = asked
            .headers
            .get("range")
            .and_then(|range| range.strip_prefix("bytes="))
            .and_then(|range| range.split_once('-'));
        let mut answer = match range {
            None => Answer { body: stored.bytes, ..Answer::new(200) },
            Some((start, end)) => {
                let start: usize = start.parse().expect("a start");
                let end = end.parse::<usize>().map_or(length, |end| (end + 1).min(length));
                if start >= length {
                    return Answer::refusal(416, "InvalidRange");
                }
                if start == 0 && end == length && self.answers_whole {
                    return Answer { body: stored.bytes, ..Answer::new(200) }
                        .header("Last-Modified", "Sun, 22 Nov 2026 08:00:00 GMT")
                        .header("ETag", "\"e\"");
                }
                let answer = Answer { body: stored.bytes[start..end].to_vec(), ..Answer::new(206) };
                answer.header("Content-Range", &format!("bytes {start}-{}/{length}", end - 1))
            }
        };
        for (name, value) in stored.metadata {
            answer = answer.header(&name, &value);
        }
        if let Some(status) = copy {
            answer = answer.header("x-ms-copy-status", status);
        }
        answer.header("Last-Modified", "Sun, 22 Nov 2026 08:00:00 GMT").header("ETag", "\"e\"")
    }

    fn put(&self, asked: &Asked) -> Answer {
        let stored = Stored {
            bytes: asked.body.clone(),
            metadata: asked
                .headers
                .iter()
                .filter(|(name, _)| name.starts_with("x-amz-meta-"))
                .map(|(a, b)| (a.clone(), b.clone()))
                .collect(),
        };
        let is_conditional = asked.headers.get("if-none-match").is_some_and(|condition| condition == "*");
        let taken = |state: &State| is_conditional && state.objects.contains_key(&asked.key);
        match self.conditional_put {
            ConditionalPut::LooksThenPuts => {
                if taken(&self.state.lock()) {
                    return Answer::refusal(412, "PreconditionFailed");
                }
                std::thread::sleep(Duration::from_millis(5));
                self.state.lock().objects.insert(asked.key.clone(), stored);
            }
            kind => {
                let mut state = self.state.lock();
                if kind == ConditionalPut::Atomic && taken(&state) {
                    return Answer::refusal(412, "PreconditionFailed");
                }
                state.objects.insert(asked.key.clone(), stored);
            }
        }
        Answer::new(200).header("ETag", "\"e\"")
    }

    fn begin_upload(&self) -> Answer {
        let mut state = self.state.lock();
        state.next_upload += 1;
        let id = format!("upload-{}", state.next_upload);
        state.uploads.insert(id.clone(), BTreeMap::new());
        let body = format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        );
        Answer { body: body.into_bytes(), ..Answer::new(200) }
    }

    fn put_part(&self, asked: &Asked, upload: &str) -> Answer {
        let mut state = self.state.lock();
        let copied = match asked.headers.get("x-amz-copy-source") {
            Some(source) => {
                let key = decode(source).trim_start_matches('/').trim_start_matches("bucket/").to_owned();
                match state.objects.get(&key) {
                    Some(stored) => Some(stored.bytes.clone()),
                    None => return Answer::refusal(404, "NoSuchKey"),
                }
            }
            None => None,
        };
        let is_copy = copied.is_some();
        let number: u32 = asked.query["partNumber"].parse().expect("a number");
        let Some(parts) = state.uploads.get_mut(upload) else { return Answer::refusal(404, "NoSuchUpload") };
        parts.insert(number, copied.unwrap_or_else(|| asked.body.clone()));
        let body = if is_copy {
            b"<CopyPartResult><ETag>\"e\"</ETag></CopyPartResult>".to_vec()
        } else {
            Vec::new()
        };
        Answer { body, ..Answer::new(200) }.header("ETag", &format!("\"e{number}\""))
    }

    fn complete(&self, asked: &Asked, upload: &str) -> Answer {
        let mut state = self.state.lock();
        if asked.headers.contains_key("if-none-match") && state.objects.contains_key(&asked.key) {
            return Answer::refusal(412, "PreconditionFailed");
        }
        let Some(parts) = state.uploads.remove(upload) else { return Answer::refusal(404, "NoSuchUpload") };
        let bytes = parts.into_values().flatten().collect();
        state.objects.insert(asked.key.clone(), Stored { bytes, metadata: Vec::new() });
        let body = "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>";
        Answer { body: body.into(), ..Answer::new(200) }
    }

    /// A page of the keys. `empty`: one without keys, which goes on after the key given, or after
    /// where it began.
    fn list(&self, asked: &Asked, empty: Option<Option<&str>>) -> Answer {
        let state = self.state.lock();
        let is_azure = asked.query.contains_key("comp");
        let parameter = |s3: &str, azure: &str| asked.query.get(if is_azure { azure } else { s3 }).cloned();
        let prefix = parameter("prefix", "prefix").unwrap_or_default();
        let token = parameter("continuation-token", "marker");
        let began = match (&token, parameter("start-after", "startFrom")) {
            (Some(token), _) => {
                Bound::Excluded(token.strip_prefix(TOKEN).expect("a token of this server").to_owned())
            }
            // Azure begins with the key, S3 after it.
            (None, Some(key)) if is_azure => Bound::Included(key),
            (None, key) => Bound::Excluded(key.unwrap_or_default()),
        };
        let limit: usize =
            parameter("max-keys", "maxresults").map_or(1000, |limit| limit.parse().expect("a number"));
        let mut matching = state
            .objects
            .range::<String, _>((began.clone(), Bound::Unbounded))
            .filter(|(key, _)| key.starts_with(&prefix));
        let page: Vec<_> = matching.by_ref().take(if empty.is_some() { 0 } else { limit }).collect();
        let next = match (empty, page.last()) {
            (Some(after), _) => Some(after.map(str::to_owned).unwrap_or(match began {
                Bound::Included(key) | Bound::Excluded(key) => key,
                Bound::Unbounded => String::new(),
            })),
            (None, Some((last, _))) if matching.next().is_some() => Some((*last).clone()),
            _ => None,
        };
        let next = next.map(|after| format!("{TOKEN}{after}"));
        let body = if is_azure { azure_page(&page, next) } else { s3_page(&page, next) };
        Answer { body: body.into_bytes(), ..Answer::new(200) }
    }
}

/// What a token to go on with begins with.
const TOKEN: &str = "after:";

fn s3_page(page: &[(&String, &Stored)], next: Option<String>) -> String {
    let mut body = format!("<ListBucketResult><IsTruncated>{}</IsTruncated>", next.is_some());
    for (key, stored) in page {
        let _ = write!(
            body,
            "<Contents><Key>{key}</Key><LastModified>2026-11-22T08:00:00.000Z</LastModified>\
            <ETag>\"e\"</ETag><Size>{}</Size></Contents>",
            stored.bytes.len()
        );
    }
    let next = next
        .map_or_else(String::new, |next| format!("<NextContinuationToken>{next}</NextContinuationToken>"));
    body + &next + "</ListBucketResult>"
}

fn azure_page(page: &[(&String, &Stored)], next: Option<String>) -> String {
    let mut body = String::from("<EnumerationResults><Blobs>");
    for (key, stored) in page {
        let _ = write!(
            body,
            "<Blob><Name>{key}</Name><Properties><Last-Modified>Sun, 22 Nov 2026 08:00:00 GMT</Last-Modified>\
             <Content-Length>{}</Content-Length><Content-Type>bytes</Content-Type></Properties></Blob>",
            stored.bytes.len()
        );
    }
    body + &format!("</Blobs><NextMarker>{}</NextMarker></EnumerationResults>", next.unwrap_or_default())
}

/// Sends an answer, or its beginning. Whether the connection may go on.
fn send(stream: &mut TcpStream, method: &str, answer: &Answer, cut: Option<usize>) -> bool {
    let mut head = format!("HTTP/1.1 {} Said\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    let body = if method == "HEAD" {
        &[][..]
    } else {
        &answer.body[..cut.unwrap_or(answer.body.len()).min(answer.body.len())]
    };
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_ok()
}
