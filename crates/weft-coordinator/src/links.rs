//! One node's link, from its hello to its end.
//!
//! The coordinator never stops reading a link: nothing below waits for a disk or a caller while messages are
//! unread. Acknowledgements wait for their records beside the reading.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
    stream::FuturesOrdered,
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tonic::Streaming;
use weft_core::{
    advert::Advert,
    credit::{AttemptKey, Cost, Credit},
    event::NodeNews,
    ids::{Digest, JournalId, NodeId},
    node::{Labels, Node, SANDBOX},
    refusal::Refusal,
};
use weft_daemon::Drain;
use weft_proto::{
    LINK_VERSIONS,
    convert::{self, Malformed},
    link::{self, connect_request, connect_response::Message},
    parts::Assembly,
};
use weft_telemetry::Metrics;

use crate::{
    catalog::Keeper,
    config::Config,
    files::Files,
    invocations::{InHand, Invocations},
    nodes::{Arrival, Nodes, Opened},
};

/// How long a new link may take to begin.
const HELLO: Duration = Duration::from_secs(10);
/// How long a node that broke the protocol is asked to stay away.
const REFUSED_RETRY: Duration = Duration::from_secs(30);
/// Most news in one message.
const MAX_EVENTS: usize = 8192;
/// Definitions asked for in one message.
const ASKED_AT_ONCE: usize = 16;
/// Most labels of a node, and longest name or label in bytes.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;

/// What a link needs of the coordinator; all links share it.
pub(crate) struct Links {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) catalog: Arc<Keeper>,
    pub(crate) invocations: Arc<Invocations>,
    pub(crate) files: Arc<Files>,
    pub(crate) config: Config,
    pub(crate) drain: Drain,
    pub(crate) metrics: Metrics,
}

/// A session that a hello opened.
pub(crate) struct Session {
    links: Arc<Links>,
    id: NodeId,
    name: String,
    labels: Labels,
    epoch: u64,
    journal: JournalId,
    /// What the hello named; settled when the session is served.
    in_hand: InHand,
    incoming: Streaming<link::ConnectRequest>,
    /// Of news that come in pieces, what is here.
    assembly: Assembly,
    /// What the node told and is not recorded.
    credit: Credit,
}

/// Why a link ended.
#[derive(Debug)]
enum End {
    /// The node closed it, or the transport broke.
    Closed(String),
    /// A newer session took over.
    Superseded,
    /// The node let too much pile up.
    NotReading,
    /// The node broke the protocol.
    Broken(Malformed),
    /// What the node told cannot be recorded: it keeps it and tells it again.
    NotRecorded,
    /// The coordinator stops.
    Draining,
}

/// News whose records are under way, in the order in which they came.
type Recording = FuturesOrdered<BoxFuture<'static, Option<Done>>>;

/// One piece of news is recorded, or need not be.
struct Done {
    key: AttemptKey,
    /// Everything up to this node sequence is.
    sequence: u64,
    cost: Cost,
}

impl Links {
    /// Reads a hello and opens a session.
    pub(crate) async fn open(
        self: &Arc<Self>,
        mut incoming: Streaming<link::ConnectRequest>,
    ) -> Result<(Session, Opened), Refusal> {
        let first = timeout(HELLO, incoming.message()).await.ok().and_then(Result::ok).flatten();
        let Some(connect_request::Message::Hello(hello)) = first.and_then(|message| message.message) else {
            return Err(malformed(Malformed::new("message", "a link begins with hello, within 10 s")));
        };
        let (arrival, in_hand) = read_hello(hello)?;
        // While it drains, a coordinator still wants to hear how everything ends.
        if self.drain.has_begun() && !self.invocations.knows_any(&in_hand) {
            return Err(Refusal::Draining);
        }
        let node = &arrival.node;
        let (id, name, labels) = (node.id.clone(), node.name.clone(), node.labels.clone());
        let journal = arrival.journal.clone();
        let timings = &self.config.timings;
        let opened = self.nodes.open(arrival, 3 * timings.heartbeat, |session_epoch| link::Welcome {
            protocol_version: LINK_VERSIONS.0,
            session_epoch,
            coordinator: self.config.name.clone(),
            heartbeat_interval: Some(convert::duration_to_wire(timings.heartbeat)),
            lease: Some(convert::duration_to_wire(timings.lease)),
            invocation_credit: weft_core::limits::INVOCATION_CREDIT,
            link_credit: weft_core::limits::LINK_CREDIT,
        });
        let epoch = opened.epoch;
        tracing::info!(weft.node.id = %id, node = %name, epoch, in_hand = in_hand.len(), "node connected");
        let session = Session {
            links: self.clone(),
            id,
            name,
            labels,
            epoch,
            journal,
            in_hand,
            incoming,
            assembly: Assembly::default(),
            credit: Credit::default(),
        };
        Ok((session, opened))
    }
}

impl Session {
    /// Serves the link to its end.
    pub(crate) async fn serve(mut self) {
        let _connected = self.links.metrics.node_connected();
        self.links.catalog.set_ready(&self.id, self.epoch, true);
        let in_hand = std::mem::take(&mut self.in_hand);
        self.links.invocations.node_connected(&self.id, &self.journal, self.epoch, in_hand).await;
        let end = self.read_all().await;
        if let End::Broken(malformed) = &end {
            self.send(Message::Goodbye(link::Goodbye {
                reason: link::goodbye::Reason::Refused.into(),
                message: malformed.to_string(),
                retry_after: Some(convert::duration_to_wire(REFUSED_RETRY)),
            }));
        }
        let current = self.links.nodes.close(&self.id, self.epoch);
        if current {
            self.links.catalog.set_ready(&self.id, self.epoch, false);
        }
        let (id, node, epoch) = (&self.id, &self.name, self.epoch);
        match end {
            End::Superseded => tracing::info!(weft.node.id = %id, %node, epoch, "session superseded"),
            End::Draining => tracing::debug!(weft.node.id = %id, %node, epoch, "session ended by drain"),
            End::Closed(why) if current => {
                tracing::warn!(weft.node.id = %id, %node, epoch, %why, "node disconnected");
            }
            End::Closed(why) => tracing::debug!(weft.node.id = %id, %node, epoch, %why, "old session closed"),
            End::NotReading => {
                tracing::warn!(weft.node.id = %id, %node, epoch, "the node does not read its link")
            }
            End::NotRecorded => {
                tracing::error!(weft.node.id = %id, %node, epoch, "cannot record what the node tells")
            }
            End::Broken(malformed) => {
                tracing::error!(weft.node.id = %id, %node, epoch, %malformed, "the node broke the protocol");
            }
        }
    }

    fn send(&self, message: Message) -> bool {
        self.links.nodes.send(&self.id, self.epoch, message)
    }

    async fn read_all(&mut self) -> End {
        let mut recording = Recording::new();
        let mut heartbeat = interval(self.links.config.timings.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deaf_since = None;
        loop {
            let message = tokio::select! {
                message = self.incoming.message() => message,
                Some(done) = recording.next(), if !recording.is_empty() => {
                    if !self.acknowledge(done, &mut recording) {
                        return End::NotRecorded;
                    }
                    continue;
                }
                _ = heartbeat.tick() => {
                    let beat = link::Heartbeat {
                        time: Some(convert::timestamp_to_wire(jiff::Timestamp::now())),
                        ..Default::default()
                    };
                    if self.send(Message::Heartbeat(beat)) {
                        continue;
                    }
                    if !self.links.nodes.is_current(&self.id, self.epoch) {
                        return End::Superseded;
                    }
                    // Nothing goes out any more, but what came in may hold results: it is read to its end.
                    let deaf = *deaf_since.get_or_insert_with(Instant::now);
                    if deaf.elapsed() > self.links.config.timings.lease {
                        return End::NotReading;
                    }
                    continue;
                }
                () = self.links.drain.stopped() => return End::Draining,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return End::Closed("it closed the link".into()),
                Err(status) => return End::Closed(status.message().to_owned()),
            };
            if !self.links.nodes.heard(&self.id, self.epoch) {
                return End::Superseded;
            }
            if let Err(malformed) = self.take(message, &mut recording).await {
                return End::Broken(malformed);
            }
        }
    }

    /// Takes one message.
    async fn take(
        &mut self,
        message: link::ConnectRequest,
        recording: &mut Recording,
    ) -> Result<(), Malformed> {
        match message.message {
            Some(connect_request::Message::Hello(_)) => {
                return Err(Malformed::new("hello", "a link has one hello"));
            }
            Some(connect_request::Message::Advert(advert)) => self.advertise(advert.try_into()?),
            Some(connect_request::Message::Definitions(definitions)) => {
                // Schemas are compiled here, which a hostile one makes slow within its bounds.
                let (catalog, id) = (self.links.catalog.clone(), self.id.clone());
                let define = move || -> Vec<Malformed> {
                    let all = definitions.definitions.iter();
                    all.filter_map(|bytes| catalog.define(&id, bytes).err()).collect()
                };
                for malformed in tokio::task::spawn_blocking(define).await.unwrap_or_default() {
                    tracing::warn!(weft.node.id = %self.id, %malformed, "definition refused");
                }
            }
            Some(connect_request::Message::Events(events)) => self.report(events, recording).await?,
            Some(connect_request::Message::Part(part)) => {
                if let Some(events) = self.assembly.push(part)? {
                    self.report(events, recording).await?;
                }
            }
            Some(connect_request::Message::Draining(draining)) => {
                tracing::info!(weft.node.id = %self.id, node = %self.name, reason = %draining.reason, "node draining");
                self.links.nodes.set_draining(&self.id, self.epoch);
                self.links.catalog.set_ready(&self.id, self.epoch, false);
            }
            Some(connect_request::Message::Heartbeat(_)) => {}
            Some(connect_request::Message::FileContent(content)) => {
                self.links.files.answer(&self.id, content)
            }
            Some(connect_request::Message::CancelAcknowledged(cancel)) => {
                let id = convert::parse("invocation_id", &cancel.invocation_id)?;
                if !cancel.in_hand {
                    self.links.invocations.cancel_missed(&self.id, self.epoch, id, cancel.attempt);
                }
            }
            // From a newer node: what it means is not known, and it does no harm to leave it out.
            None => {}
        }
        Ok(())
    }

    fn advertise(&self, advert: Advert) {
        let skills = advert.rows.len();
        let ask = self.links.catalog.advertise(&self.id, self.epoch, &self.labels, advert);
        tracing::info!(weft.node.id = %self.id, node = %self.name, skills, asked = ask.len(), "node advertised");
        ask_for(&self.links.nodes, &self.id, self.epoch, &ask);
    }

    async fn report(&mut self, events: link::NodeEvents, recording: &mut Recording) -> Result<(), Malformed> {
        if events.events.len() > MAX_EVENTS {
            return Err(Malformed::new("events", format_args!("more than {MAX_EVENTS} in one message")));
        }
        for event in events.events {
            let invocation = convert::parse("invocation_id", &event.invocation_id)?;
            let (attempt, sequence) = (event.attempt, event.node_sequence);
            let news = convert::news_from_wire(event.event)?;
            let (key, cost) = ((invocation, attempt), Cost::of(news.as_ref()));
            if !self.credit.is_sound(key, cost) {
                return Err(Malformed::new("events", "more than the credit allows is not recorded yet"));
            }
            self.credit.take(key, cost);
            let news = NodeNews { invocation, attempt, sequence, news };
            let taken = self.links.invocations.report(&self.id, news).await;
            let done = Done { key, sequence: taken.acknowledged, cost };
            recording.push_back(match taken.recorded {
                None => Box::pin(ready(Some(done))),
                // What cannot be recorded is not acknowledged: the node keeps it.
                Some(recorded) => Box::pin(async move { recorded.await.ok().map(|()| done) }),
            });
        }
        Ok(())
    }

    /// Acknowledges what is recorded: this, and all that follows and is ready as well, in one message. `false` when
    /// something could not be recorded.
    fn acknowledge(&mut self, first: Option<Done>, recording: &mut Recording) -> bool {
        let mut done: BTreeMap<AttemptKey, u64> = BTreeMap::new();
        let mut next = Some(Some(first));
        while let Some(Some(recorded)) = next {
            let Some(Done { key, sequence, cost }) = recorded else { return false };
            self.credit.give_back(key, cost);
            // The last of an attempt speaks for all before it.
            done.insert(key, sequence);
            next = recording.next().now_or_never();
        }
        let attempts = done
            .into_iter()
            .map(|((invocation, attempt), node_sequence)| link::AcknowledgedAttempt {
                invocation_id: invocation.to_string(),
                attempt,
                node_sequence,
            })
            .collect();
        self.send(Message::Acknowledgement(link::Acknowledgement { attempts }));
        true
    }
}

/// Asks a node for definitions in the session with this epoch.
pub(crate) fn ask_for(nodes: &Nodes, node: &NodeId, epoch: u64, digests: &[Digest]) {
    for digests in digests.chunks(ASKED_AT_ONCE) {
        let digests = digests.iter().map(|digest| bytes::Bytes::copy_from_slice(digest.as_bytes())).collect();
        nodes.send(node, epoch, Message::DefinitionsRequest(link::DefinitionsRequest { digests }));
    }
}

fn malformed(malformed: Malformed) -> Refusal {
    Refusal::RequestInvalid { field: malformed.field.into(), message: malformed.message }
}

/// Checks a hello.
///
/// # Errors
/// When it breaks the protocol, or speaks none that is spoken here.
pub(crate) fn read_hello(hello: link::Hello) -> Result<(Arrival, InHand), Refusal> {
    let theirs = hello.protocol.unwrap_or_default();
    let (current, oldest) = LINK_VERSIONS;
    if theirs.oldest > current || theirs.current < oldest {
        return Err(Refusal::ProtocolSkew {
            theirs: format!("{} to {}", theirs.oldest, theirs.current),
            ours: format!("{oldest} to {current}"),
        });
    }
    let id: NodeId = convert::parse("node_id", &hello.node_id).map_err(malformed)?;
    let texts = [&hello.name, &hello.os, &hello.arch, &hello.version];
    let labels_fit = hello.labels.len() <= MAX_LABELS
        && hello.labels.iter().all(|(label, value)| label.len() <= MAX_LABEL && value.len() <= MAX_LABEL);
    if !labels_fit || texts.iter().any(|text| text.len() > MAX_LABEL) {
        return Err(malformed(Malformed::new(
            "labels",
            format_args!("at most {MAX_LABELS} labels, and {MAX_LABEL} bytes for each name and value"),
        )));
    }
    let mut in_hand = InHand::new();
    for attempt in hello.attempts {
        let invocation = convert::parse("attempts", &attempt.invocation_id).map_err(malformed)?;
        in_hand.insert((invocation, attempt.attempt), attempt);
    }
    let arrival = Arrival {
        journal: convert::parse("journal_id", &hello.journal_id).map_err(malformed)?,
        previous_epoch: hello.previous_epoch,
        queue: hello.queue,
        node: Node {
            name: if hello.name.is_empty() { id.to_string() } else { hello.name },
            id,
            os: hello.os,
            arch: hello.arch,
            version: hello.version,
            labels: convert::labels_from_wire(hello.labels),
            slots: hello.slots,
            sandbox: hello.features.iter().any(|feature| feature == SANDBOX),
        },
    };
    Ok((arrival, in_hand))
}
