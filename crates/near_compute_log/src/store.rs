//! The log store: opens, takes over, reads, follows, frees.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{BoxFuture, Env, TaskClass, all, within};
use tombolo_segment::call::{Node, Shape};
use tombolo_segment::message::{
    Answer, Body, KEEP_MAX, NodeIncarnation, NodeStatus, Refusal, RegionId, Request,
};
use tombolo_storage::facts::Fact;
use tombolo_storage::fenced::Fenced;
use tombolo_storage::lanes::{Lanes, world_ended};
use tombolo_storage::logged::LoggedErrors;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Error, ErrorKind, FailureDomain, Log, LogContext, LogId, LogOffset, LogReader, LogRecord, LogStore,
    Result, Survival,
};

use crate::configuration::decode;
use crate::destage::delete_objects;
use crate::fence::{Kept, Taking, free_heard, place};
use crate::flight::ask;
use crate::lane::Lane;
use crate::log::OpenLane;
use crate::old::OldLogs;
use crate::peers::{Connect, Neighbours};
use crate::read::{Reader, tail};
use crate::replication::Replication;

/// Most lanes of a log.
const LANES_MAX: u32 = 64;

/// What takeovers have read is kept for the reader that comes next, and until it is in an object,
/// so much at most.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// How long one node may take to give memory back that nothing names.
const COLLECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How often a log looks which nodes have announced themselves.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// How long a node may take to say what it is.
const STATUS_TIME_MAX: Duration = Duration::from_secs(3);

/// What nodes said, judged: whether a log may begin on them, and which are missing.
fn judge(nodes: &[Node], answers: &[Result<NodeStatus>], copies: usize, quorum: usize) -> Vec<Fact> {
    let takes = |answer: &&Result<NodeStatus>| {
        answer.as_ref().is_ok_and(|status| !status.is_draining && status.bytes_free() > 0)
    };
    let ready = answers.iter().filter(takes).count();
    let value = format!("{ready} of {} ready, {copies} wanted, {quorum} needed", nodes.len());
    let mut facts = vec![match ready {
        0.. if ready < quorum => {
            Fact::bad("nodes", value, "start more: nothing is written durably without that many")
        }
        0.. if ready < copies => {
            Fact::warning("nodes", value, "start more: one that is lost now stops all writing")
        }
        _ => Fact::fine("nodes", value),
    }];
    for (node, answer) in nodes.iter().zip(answers) {
        facts.push(match answer {
            Ok(status) if status.is_draining => {
                Fact::warning("node", format!("{}: it is about to end", node.address), "start another")
            }
            Ok(status) if status.bytes_free() == 0 => {
                Fact::warning("node", format!("{}: it is full", node.address), "let it lend more memory")
            }
            Ok(status) => {
                Fact::fine("node", format!("{}: {} MiB free", node.address, status.bytes_free() >> 20))
            }
            Err(error) => {
                let advice = error.next_step().unwrap_or("start it, or check the address and the network");
                Fact::warning("node", format!("{}: {}", node.address, error.message()), advice)
            }
        });
    }
    facts
}

/// Logs in the memory of nodes.
#[derive(Debug)]
pub struct NearLogStore {
    env: Env,
    neighbours: Arc<Neighbours>,
    replication: Replication,
    fenced: Fenced<Vec<Kept>>,
}

impl NearLogStore {
    /// Logs on `nodes`, which are reached by `connect`.
    pub fn new(
        env: &Env,
        connect: Arc<dyn Connect>,
        nodes: Vec<Node>,
        replication: Replication,
    ) -> NearLogStore {
        NearLogStore::of(env, Neighbours::new(env, connect, nodes), replication)
    }

    /// Logs on these neighbours.
    pub fn of(env: &Env, neighbours: Neighbours, replication: Replication) -> NearLogStore {
        let neighbours = Arc::new(neighbours);
        NearLogStore { env: env.clone(), neighbours, replication, fenced: Fenced::new(KEPT_BYTES_MAX) }
    }

    /// Begins lanes, and waits until each is named.
    async fn begin(&self, context: &LogContext, lanes: Range<u32>) -> Result<Vec<OpenLane>> {
        let begun = lanes.map(|lane| Lane::begin(context, &self.neighbours, self.replication, lane));
        let begun: Vec<_> = begun.map(|(lane, opened)| (OpenLane::new(lane), opened)).collect();
        let mut made = Vec::new();
        for (lane, opened) in begun {
            opened.await.unwrap_or_else(|| Err(world_ended()))?;
            made.push(lane);
        }
        Ok(made)
    }

    /// Looks for other nodes from time to time. They change for the log as a whole, which ends with
    /// its first lane.
    fn look_again(&self, made: &mut [OpenLane]) {
        let Some(first) = made.first_mut().filter(|_| self.neighbours.change()) else { return };
        let (env, neighbours, copies) =
            (self.env.clone(), Arc::clone(&self.neighbours), self.replication.shape.copies);
        let look = async move {
            let mut logged = LoggedErrors::default();
            loop {
                env.sleep(LOOK_PERIOD).await;
                match neighbours.look(copies).await {
                    Ok(()) if logged.is_over() => {
                        tracing::info!("nodes that announce themselves are found again");
                    }
                    Err(error) if logged.is_news(&error) => {
                        tracing::warn!(%error, "nodes that announced themselves are not known anew; the \
                            registry is asked every {LOOK_PERIOD:?}");
                    }
                    Ok(()) | Err(_) => {}
                }
            }
        };
        first.keep(self.env.spawn(TaskClass::Background, "nodes of a log", look));
    }

    /// Has every node give back what older epochs of the database made and `named` does not name.
    /// Best effort.
    async fn collect_regions(neighbours: &Neighbours, context: &LogContext, named: &[LogRecord]) {
        // When one of them cannot be read, nothing is freed: it may name what would be.
        let Ok(lanes) = named.iter().map(decode).collect::<Result<Vec<_>>>() else { return };
        let regions = lanes.into_iter().flat_map(|lane| lane.segments).flat_map(|segment| segment.regions);
        let is_kept = !is_enabled(Mutant::NearCollectsNamed);
        let keep: Vec<RegionId> = regions.filter(|_| is_kept).map(|region| RegionId(region.region)).collect();
        if keep.len() > KEEP_MAX {
            return;
        }
        let nodes = neighbours.nodes();
        let calls = nodes.iter().map(|node| -> BoxFuture<'_, ()> {
            let keep = keep.clone();
            Box::pin(async move {
                let mut incarnation = NodeIncarnation(0);
                // The first refusal tells the life that it has.
                for _ in 0..3 {
                    let body = Body::Collect { database: context.database, keep: keep.clone() };
                    let request = Request { incarnation, region: RegionId(0), epoch: context.epoch, body };
                    match ask(&context.env, neighbours, &node.address, request, COLLECT_TIME_MAX).await {
                        Ok(Answer::Refused(Refusal::OtherIncarnation(current))) => incarnation = current,
                        _ => return,
                    }
                }
            })
        });
        let count = nodes.len().max(1);
        all(calls.collect(), count).await;
    }

    /// Frees what a predecessor left that died before it could, or was too late.
    async fn collect(neighbours: Arc<Neighbours>, context: LogContext) {
        let named = context.chain.named();
        NearLogStore::collect_regions(&neighbours, &context, &named).await;
        let is_garbage = |id: LogId| id.epoch < context.epoch && !named.iter().any(|record| record.id == id);
        if let Err(error) = delete_objects(&context, is_garbage).await {
            tracing::warn!(%error, "objects of logs that nothing names stay for now");
        }
    }
}

impl LogStore for NearLogStore {
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            if lanes == 0 || lanes > LANES_MAX {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("a log of {lanes} lanes; 1 to {LANES_MAX} are possible"),
                ));
            }
            let older = context.chain.named().into_iter().filter(|record| record.id.epoch < context.epoch);
            let kept =
                older.map(|record| (record.id, self.fenced.take(context.life(false), record.id))).collect();
            self.fenced.clear();
            self.neighbours.look(self.replication.shape.copies).await?;
            let mut made = self.begin(context, 0..lanes).await?;
            let collecting = NearLogStore::collect(Arc::clone(&self.neighbours), context.clone());
            self.env.spawn(TaskClass::Background, "log collection", collecting).detach();
            if let Some(first) = made.first_mut() {
                first.also_moves(OldLogs::new(context, &self.neighbours, kept));
            }
            self.look_again(&mut made);
            Ok(Arc::new(Lanes::new(made)) as Arc<dyn Log>)
        })
    }

    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            self.neighbours.look(self.replication.shape.copies).await?;
            let mut made = self.begin(context, lane..lane + 1).await?;
            self.look_again(&mut made);
            Ok(Arc::new(Lanes::new(made)) as Arc<dyn Log>)
        })
    }

    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        Box::pin(async move {
            context.check_older(log, "fences", place(log))?;
            self.neighbours.look(self.replication.shape.copies).await?;
            let segment_bytes = self.replication.segment_bytes_for(context);
            let (sealed, kept) =
                Taking { context, neighbours: &self.neighbours, log, segment_bytes }.fence(from).await?;
            let bytes = kept.iter().map(|kept| kept.records.len()).sum();
            self.fenced.keep(context.life(false), log.id, bytes, kept);
            Ok(sealed)
        })
    }

    fn read<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
        to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            let kept = self.fenced.get(context.life(false), log.id);
            Ok(Box::new(Reader::new(context, &self.neighbours, log, from, to, kept)?) as Box<dyn LogReader>)
        })
    }

    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        Box::pin(async move {
            Ok(Box::new(tail(context, &self.neighbours, log, from).await?) as Box<dyn LogReader>)
        })
    }

    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            context.check_freed(log, place(log))?;
            self.fenced.take(context.life(false), log.id);
            let lane = decode(log)?;
            free_heard(context, &self.neighbours, &lane.segments).await;
            delete_objects(context, |id| id == log.id).await
        })
    }

    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            NearLogStore::collect_regions(&self.neighbours, context, &[]).await;
            delete_objects(context, |id| id.epoch < context.epoch).await
        })
    }

    fn facts(&self) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(async move {
            let Shape { copies, quorum } = self.replication.shape;
            self.neighbours.look(copies).await?;
            let nodes = self.neighbours.nodes();
            let calls = nodes.iter().map(|node| -> BoxFuture<'_, Result<NodeStatus>> {
                Box::pin(async move {
                    let asked = self.neighbours.peer(&node.address)?.status();
                    let answer = within(&self.env, STATUS_TIME_MAX, asked).await.flatten();
                    answer.unwrap_or_else(|| {
                        Err(Error::new(ErrorKind::Retry, format!("no answer within {STATUS_TIME_MAX:?}")))
                    })
                })
            });
            let answers = all(calls.collect(), nodes.len().max(1)).await;
            Ok(judge(&nodes, &answers, copies, quorum))
        })
    }

    fn survival(&self) -> Survival {
        let Shape { copies, quorum } = self.replication.shape;
        let lost = quorum - 1;
        let nodes = match self.neighbours.nodes().len() {
            0 => "the nodes that announce themselves".to_owned(),
            count => format!("{count} nodes"),
        };
        Survival {
            store: format!("the near-compute log on {nodes}, {copies} copies, {quorum} to acknowledge"),
            domain: FailureDomain::Nodes,
            accepted: "the same as durable: a write is acknowledged as either when it and all before it are \
                on so many nodes"
                .into(),
            durable: format!(
                "survives the writer together with {lost} of the nodes that hold its segment, counted from \
                when their regions were made: a node that \
                 comes back without its memory still counts; more of them, at once or one after the other, \
                 lose it with the writer, and so does a power failure of all"
            ),
            notes: vec![
                "A living writer keeps what is not flushed in its own memory, and replaces any number of \
                nodes."
                    .into(),
                "A takeover keeps regions that hold all, so losses of before it count on, until it is in \
                the object store, about a second after opening."
                    .into(),
                "When too much is lost, opening says so and serves nothing; nothing is dropped \
                silently."
                    .into(),
                "A takeover fences writers on any machine: nodes refuse an older epoch once they are \
                sealed."
                    .into(),
                "Memory of nodes is a weaker place than a disk: nodes with --disk keep a copy there.".into(),
            ],
        }
    }

    fn identity(&self) -> String {
        "near".into()
    }
}
