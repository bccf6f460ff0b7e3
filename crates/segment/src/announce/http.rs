//! One request over HTTP: asked for as HTTP/1.0, so that the answer ends with its connection.

use std::time::Duration;

use tombolo_env::{Env, within};
use tombolo_storage::{Error, ErrorKind, Result};

/// How long a request may take.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Most bytes of an answer, its head included.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// An answer: its status, and what it says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Posts JSON to `address` (`host:port`).
///
/// # Errors
/// `Retry` when it cannot be reached, takes too long, or answers without HTTP, or at too great a
/// length.
pub(super) async fn post(env: &Env, address: &str, path: &str, json: &str) -> Result<Answer> {
    let trouble = |what: String| Error::new(ErrorKind::Retry, format!("{address}{path}: {what}"));
    let work = async {
        let mut connection = env
            .network()
            .connect(address)
            .await
            .map_err(|error| trouble(format!("no connection: {error}")))?;
        let length = json.len();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: \
            {length}\r\n\r\n"
        );
        let broken = |error: std::io::Error| trouble(format!("the connection broke: {error}"));
        connection.write_all([head.as_bytes(), json.as_bytes()].concat().as_slice()).await.map_err(broken)?;
        let (mut answer, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        loop {
            let count = connection.read(&mut buffer).await.map_err(broken)?;
            answer.extend_from_slice(&buffer[..count]);
            match parse(&answer) {
                // A sender that states the length need not be waited for any more.
                Some((answer, says_length)) if says_length || count == 0 => return Ok(answer),
                None if count == 0 => {
                    return Err(trouble("an answer that is no HTTP, or was cut".to_owned()));
                }
                _ => {}
            }
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(trouble(format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
    };
    within(env, REQUEST_MAX, work)
        .await
        .unwrap_or_else(|| Err(trouble(format!("no answer within {REQUEST_MAX:?}"))))
}

/// Takes an answer apart, and whether it says its length; `None`: it is none, or not all of it is
/// there.
fn parse(bytes: &[u8]) -> Option<(Answer, bool)> {
    let head_bytes = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&bytes[..head_bytes]).ok()?, &bytes[head_bytes + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let mut says_length = false;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let is_length = name.eq_ignore_ascii_case("content-length");
        if is_length && value.trim().parse() != Ok(body.len())
            || name.eq_ignore_ascii_case("transfer-encoding")
        {
            return None;
        }
        says_length |= is_length;
    }
    Some((Answer { status, body: body.to_vec() }, says_length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart_and_cut_ones_are_none() {
        let whole = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(whole), Some((Answer { status: 200, body: b"{}".to_vec() }, true)));
        assert!((0..whole.len()).all(|end| parse(&whole[..end]).is_none()));
        let without_length = b"HTTP/1.1 404 Not Found\r\n\r\nno";
        assert_eq!(parse(without_length), Some((Answer { status: 404, body: b"no".to_vec() }, false)));
        for wrong in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"[..],
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.0\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert_eq!(parse(wrong), None);
        }
    }
}
