//! A key-value service on tokio: a TCP server of one line for each request.
//!
//! ```console
//! $ cargo run -p tombolo-examples --bin service
//! $ cargo run -p tombolo-examples --bin service -- file:///data/kv 127.0.0.1:7000
//! ```
//!
//! The first starts it, talks to it, and ends. The second serves until Ctrl-C.
//!
//! What to copy:
//! 1. One `Db` for the process. Handles are cheap to clone, and a task takes its own.
//! 2. `.await` every verb. Tombolo needs no runtime and blocks none.
//! 3. A deadline for each request, so that a slow store never holds a connection for ever.
//! 4. `Fenced` ends the process: another one has the database.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tombolo::{Db, Error, ErrorKind, Keyspace};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Entries of one answer to `scan`.
const SCAN_MAX: usize = 1000;
/// Bytes of one request: a longer one ends its connection.
const LINE_MAX: u64 = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [uri, address] = arguments.as_slice() {
        let db = Db::builder(uri).open().await?;
        let listener = TcpListener::bind(address).await?;
        println!("serving {uri} on {}", listener.local_addr()?);
        return serve(db, listener).await;
    }
    demo().await
}

/// Serves until Ctrl-C, or until another process has taken the database over.
async fn serve(db: Db, listener: TcpListener) -> Result<(), Failure> {
    let entries = db.default_keyspace().within(LIMIT);
    let fenced = Arc::new(Notify::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                let (entries, fenced) = (entries.clone(), Arc::clone(&fenced));
                tokio::spawn(async move {
                    match answer_all(&entries, stream).await {
                        Err(Ended::Fenced) => fenced.notify_one(),
                        Err(Ended::Connection(error)) => eprintln!("{peer}: {error}"),
                        Ok(()) => {}
                    }
                });
            }
            () = fenced.notified() => return Err("another process has taken the database over".into()),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    // Accepted writes become durable, and the next start has less to replay.
    db.close().await?;
    Ok(())
}

enum Ended {
    Fenced,
    Connection(std::io::Error),
}

async fn answer_all(entries: &Keyspace, stream: TcpStream) -> Result<(), Ended> {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(tokio::io::AsyncReadExt::take(reading, LINE_MAX));
    let mut line = String::new();
    loop {
        line.clear();
        reading.get_mut().set_limit(LINE_MAX);
        if reading.read_line(&mut line).await.map_err(Ended::Connection)? == 0 {
            return Ok(());
        }
        let answer = match answer(entries, line.trim_end()).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::Fenced => return Err(Ended::Fenced),
            // Nothing took effect: the client may try again.
            Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy) => {
                format!("again {error}\n")
            }
            Err(error) => format!("error {error}\n"),
        };
        writing.write_all(answer.as_bytes()).await.map_err(Ended::Connection)?;
    }
}

async fn answer(entries: &Keyspace, line: &str) -> Result<String, Error> {
    let mut words = line.splitn(3, ' ');
    match (words.next().unwrap_or_default(), words.next(), words.next()) {
        ("put", Some(key), Some(value)) => {
            entries.put(key, value).await?;
            Ok("ok\n".to_owned())
        }
        ("get", Some(key), None) => Ok(match entries.get(key).await? {
            Some(value) => format!("value {}\n", String::from_utf8_lossy(&value)),
            None => "none\n".to_owned(),
        }),
        ("delete", Some(key), None) => {
            entries.delete(key).await?;
            Ok("ok\n".to_owned())
        }
        ("scan", Some(prefix), None) => {
            let mut scan = entries.prefix(prefix);
            let mut text = String::new();
            for _ in 0..SCAN_MAX {
                let Some((key, value)) = scan.next_async().await? else { break };
                let (key, value) = (String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
                text.push_str(&format!("entry {key} {value}\n"));
            }
            Ok(text + "end\n")
        }
        _ => Ok("error put KEY VALUE, get KEY, delete KEY or scan PREFIX\n".to_owned()),
    }
}

/// Starts the service on a directory of its own, and lets a few clients talk to it.
async fn demo() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let db = Db::builder(format!("file://{}/kv", folder.path().display())).open().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(db.clone(), listener));

    let clients: Vec<_> = (0..8).map(|client| tokio::spawn(client_of(address, client))).collect();
    for client in clients {
        client.await??;
    }
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    for request in ["put order/1 two books", "get order/1", "scan client/3/99", "get order/2", "dance"] {
        println!("> {request}");
        stream.get_mut().write_all(format!("{request}\n").as_bytes()).await?;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            print!("< {line}");
            if !line.starts_with("entry ") {
                break;
            }
        }
    }
    println!("{} writes were made durable", db.stats().writes);
    server.abort();
    db.close().await?;
    Ok(())
}

/// A client that writes a hundred entries, one after the other.
async fn client_of(address: std::net::SocketAddr, client: u32) -> Result<(), Failure> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    for number in 0..100 {
        let request = format!("put client/{client}/{number:02} written\n");
        stream.get_mut().write_all(request.as_bytes()).await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line != "ok\n" {
            return Err(format!("client {client}: {line}").into());
        }
    }
    Ok(())
}
