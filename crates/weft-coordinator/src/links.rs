//! One node's link, from its hello to its end.
//!
//! The coordinator never stops reading a link: nothing below waits for a disk or a caller while messages are
//! unread. Acknowledgements wait for their records beside the reading.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Streaming;
use weft_core::{
    advert::Advert,
    event::NodeNews,
    ids::{Digest, InvocationId, NodeId},
    node::Node,
    refusal::Refusal,
};
use weft_daemon::Drain;
use weft_proto::{
    LINK_VERSIONS,
    convert::{self, Malformed},
    link::{self, connect_request, connect_response::Message},
};

use crate::{
    catalog::Keeper,
    config::Config,
    invocations::{InHand, Invocations},
    nodes::{Arrival, Nodes, Opened},
};

/// Definitions asked for in one message.
const ASKED_AT_ONCE: usize = 16;
/// Most labels of a node, and longest name or label in bytes.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;

/// What a link needs of the coordinator.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) catalog: Arc<Keeper>,
    pub(crate) invocations: Arc<Invocations>,
    pub(crate) config: Config,
    pub(crate) drain: Drain,
}

/// A session that a hello opened.
pub(crate) struct Session {
    links: Links,
    id: NodeId,
    name: String,
    epoch: u64,
    incoming: Streaming<link::ConnectRequest>,
}

/// Why a link ended.
#[derive(Debug)]
enum End {
    /// The node closed it, or the transport broke.
    Closed(String),
    /// A newer session took over.
    Superseded,
    /// The node broke the protocol.
    Broken(Malformed),
    /// The coordinator stops.
    Draining,
}

impl Links {
    /// Reads a hello and opens a session.
    pub(crate) async fn open(
        &self,
        mut incoming: Streaming<link::ConnectRequest>,
    ) -> Result<(Session, Opened), Refusal> {
        if self.drain.has_begun() {
            return Err(Refusal::Draining);
        }
        let first = incoming.message().await.ok().flatten().and_then(|message| message.message);
        let Some(connect_request::Message::Hello(hello)) = first else {
            return Err(malformed(Malformed::new("message", "the first message of a link must be hello")));
        };
        let (arrival, in_hand) = read_hello(hello)?;
        let (id, name, journal) =
            (arrival.node.id.clone(), arrival.node.name.clone(), arrival.journal.clone());
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
        self.invocations.node_connected(&id, &journal, epoch, in_hand).await;
        Ok((Session { links: self.clone(), id, name, epoch, incoming }, opened))
    }
}

impl Session {
    /// Serves the link to its end.
    pub(crate) async fn serve(mut self) {
        let end = self.read_all().await;
        let current = self.links.nodes.close(&self.id, self.epoch);
        let (id, node, epoch) = (&self.id, &self.name, self.epoch);
        match end {
            End::Superseded => tracing::info!(weft.node.id = %id, %node, epoch, "session superseded"),
            End::Draining => tracing::debug!(weft.node.id = %id, %node, epoch, "session ended by drain"),
            End::Closed(why) if current => {
                tracing::warn!(weft.node.id = %id, %node, epoch, %why, "node disconnected");
            }
            End::Closed(why) => tracing::debug!(weft.node.id = %id, %node, epoch, %why, "old session closed"),
            End::Broken(malformed) => {
                tracing::error!(weft.node.id = %id, %node, epoch, %malformed, "the node broke the protocol");
            }
        }
    }

    async fn read_all(&mut self) -> End {
        let mut recording = FuturesUnordered::new();
        let mut heartbeat = interval(self.links.config.timings.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                biased;
                message = self.incoming.message() => message,
                Some(acknowledged) = recording.next(), if !recording.is_empty() => {
                    if let Some(acknowledged) = acknowledged {
                        self.acknowledge(vec![acknowledged]);
                    }
                    continue;
                }
                _ = heartbeat.tick() => {
                    let beat = link::Heartbeat {
                        time: Some(convert::timestamp_to_wire(jiff::Timestamp::now())),
                        ..Default::default()
                    };
                    if !self.links.nodes.send(&self.id, Message::Heartbeat(beat)) {
                        return End::Superseded;
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
            match self.take(message).await {
                Ok(pending) => recording.extend(pending),
                Err(malformed) => return End::Broken(malformed),
            }
        }
    }

    /// Takes one message. Returns the acknowledgements that wait for a record.
    async fn take(
        &self,
        message: link::ConnectRequest,
    ) -> Result<Vec<impl Future<Output = Option<link::AcknowledgedAttempt>> + Send + use<>>, Malformed> {
        let mut pending = Vec::new();
        match message.message {
            Some(connect_request::Message::Hello(_)) => {
                return Err(Malformed::new("hello", "a link has one hello"));
            }
            Some(connect_request::Message::Advert(advert)) => self.advertise(advert.try_into()?),
            Some(connect_request::Message::Definitions(definitions)) => {
                for bytes in definitions.definitions {
                    // The schema is compiled here, which a hostile one makes slow within its bounds.
                    let catalog = self.links.catalog.clone();
                    let defined = tokio::task::spawn_blocking(move || catalog.define(&bytes)).await;
                    if let Ok(Err(malformed)) = defined {
                        tracing::warn!(weft.node.id = %self.id, %malformed, "definition refused");
                    }
                }
            }
            Some(connect_request::Message::Events(events)) => {
                pending = self.report(events).await?;
            }
            Some(connect_request::Message::Draining(draining)) => {
                tracing::info!(weft.node.id = %self.id, node = %self.name, reason = %draining.reason, "node draining");
                self.links.nodes.set_draining(&self.id, self.epoch);
            }
            Some(connect_request::Message::Heartbeat(_)) => {}
            Some(connect_request::Message::CancelAcknowledged(cancel)) => {
                tracing::debug!(
                    weft.invocation.id = %cancel.invocation_id, weft.node.id = %self.id,
                    in_hand = cancel.in_hand, "cancel acknowledged"
                );
            }
            // From a newer node: what it means is not known, and it does no harm to leave it out.
            None => {}
        }
        Ok(pending)
    }

    fn advertise(&self, advert: Advert) {
        let skills = advert.rows.len();
        let missing: Vec<Digest> = self.links.catalog.advertise(&self.id, advert);
        tracing::info!(weft.node.id = %self.id, node = %self.name, skills, new = missing.len(), "node advertised");
        for digests in missing.chunks(ASKED_AT_ONCE) {
            let digests =
                digests.iter().map(|digest| bytes::Bytes::copy_from_slice(digest.as_bytes())).collect();
            self.links
                .nodes
                .send(&self.id, Message::DefinitionsRequest(link::DefinitionsRequest { digests }));
        }
    }

    async fn report(
        &self,
        events: link::NodeEvents,
    ) -> Result<Vec<impl Future<Output = Option<link::AcknowledgedAttempt>> + Send + use<>>, Malformed> {
        // The last acknowledgement of an attempt speaks for all before it.
        let mut done: BTreeMap<(InvocationId, u32), u64> = BTreeMap::new();
        let mut pending = Vec::new();
        for event in events.events {
            let invocation = convert::parse("invocation_id", &event.invocation_id)?;
            let (attempt, sequence) = (event.attempt, event.node_sequence);
            let Some(news) = convert::news_from_wire(event.event)? else {
                done.insert((invocation, attempt), sequence);
                continue;
            };
            let news = NodeNews { invocation, attempt, sequence, news };
            let taken = self.links.invocations.report(&self.id, news).await;
            match taken.recorded {
                None => {
                    done.insert((invocation, attempt), taken.acknowledged);
                }
                Some(recorded) => pending.push(async move {
                    // What cannot be recorded is not acknowledged: the node keeps it.
                    recorded.await.ok()?;
                    Some(acknowledged(invocation, attempt, taken.acknowledged))
                }),
            }
        }
        if !done.is_empty() {
            let list = done.into_iter().map(|((id, attempt), to)| acknowledged(id, attempt, to)).collect();
            self.acknowledge(list);
        }
        Ok(pending)
    }

    fn acknowledge(&self, attempts: Vec<link::AcknowledgedAttempt>) {
        self.links.nodes.send(&self.id, Message::Acknowledgement(link::Acknowledgement { attempts }));
    }
}

fn acknowledged(invocation: InvocationId, attempt: u32, node_sequence: u64) -> link::AcknowledgedAttempt {
    link::AcknowledgedAttempt { invocation_id: invocation.to_string(), attempt, node_sequence }
}

fn malformed(malformed: Malformed) -> Refusal {
    Refusal::RequestInvalid { field: malformed.field.into(), message: malformed.message }
}

fn read_hello(hello: link::Hello) -> Result<(Arrival, InHand), Refusal> {
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
        },
    };
    Ok((arrival, in_hand))
}
