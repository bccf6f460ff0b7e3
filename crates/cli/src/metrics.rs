//! `tombolo metrics`: what a database says of itself, as Prometheus reads it.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tombolo::{Answered, Ask, Env, MetricsServer, Presence};

use tombolo_format::question::LINE_END;

use crate::database::{DatabaseArguments, LookArguments};
use crate::failure::Result;
use crate::interrupt;
use crate::output::Output;

/// Arguments of `metrics`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo metrics file:///data/orders                          prints them once
  tombolo metrics file:///data/orders --listen 127.0.0.1:9464   until Ctrl-C: http://127.0.0.1:9464/metrics

The process that has the database open is asked for each answer, and needs no code of its own; where there is none, a look shows what is
durable. A program that serves HTTP itself gives out Db::metrics_text, or calls Db::serve_metrics.
docs/console.md has a dashboard for Grafana.")]
pub struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Serves them over HTTP at this address, until Ctrl-C. Who can connect may read: an address
    /// beyond this host needs something before it that asks who is there.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// What the label `database` says; the URI when not given.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// How long a writer may take for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// The text that a writer answered with, in parts.
fn text_of(told: &Answered) -> String {
    told.facts.iter().map(|(_, part)| part.replace(LINE_END, "\n")).collect()
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let name = arguments.name.clone().unwrap_or_else(|| arguments.database.store.clone());
    let Some(address) = &arguments.listen else {
        if let Some(told) = arguments.database.told_by_writer(Ask::Metrics(name.clone()))? {
            return output.line(text_of(&told).trim_end());
        }
        let text =
            arguments.database.look(&LookArguments::default(), output, |db| Ok(db.metrics_text(&name)))?;
        return output.line(text.trim_end());
    };
    let interrupted = interrupt::listen()?;
    let builder = arguments.database.builder()?;
    let name: Arc<str> = name.into();
    let env = Env::real();
    let source = move || {
        let (builder, name) = (builder.clone(), Arc::clone(&name));
        async move {
            if let Presence::Alive(..) = builder.clone().presence(Duration::ZERO).await? {
                let ask = Ask::Metrics(name.to_string());
                return Ok(text_of(&builder.clone().deadline(ANSWER_TIME_MAX).ask(ask).await?));
            }
            let db = builder.open_read_only().await?;
            let text = db.metrics_text(&name);
            db.close().await?;
            Ok(text)
        }
    };
    let server = MetricsServer::start(&env, address, source).wait()?;
    let at = format!("http://{}/metrics", server.address());
    output.result(|| json!({ "listening": at }), || format!("listening at {at}"))?;
    output.finish()?;
    while !interrupted.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
