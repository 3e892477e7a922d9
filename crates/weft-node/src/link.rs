//! The link to the coordinator: one stream, opened again whenever it breaks.

use std::{collections::VecDeque, future::pending, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use prost::Message as _;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use weft_client::{backoff::Backoff, channel::MAX_MESSAGE};
use weft_core::{
    ids::{JournalId, NodeId},
    limits,
    skill::Diagnostic,
};
use weft_daemon::{Drain, Readiness, readiness::Missing};
use weft_exec::StopReason;
use weft_proto::{
    LINK_VERSIONS,
    convert::{self, Malformed},
    link::{self, connect_request::Message, link_service_client::LinkServiceClient},
    parts, status,
};
use weft_skills::Inventory;

use crate::{advert::Offer, config::Config, files, supervisor::Supervisor};

/// Frames that may wait for the transport. What waits longer waits in the supervisor, where turns are kept.
const IN_FLIGHT: usize = 4;
/// How long a coordinator may take to answer a hello.
const WELCOME: Duration = Duration::from_secs(10);
/// How long news that can wait for company do.
const COMPANY: Duration = Duration::from_millis(5);
/// Definitions in one message.
const DEFINITIONS_AT_ONCE: usize = 8;

/// See the module.
pub(crate) struct Link {
    pub(crate) config: Config,
    pub(crate) node_id: NodeId,
    pub(crate) journal: JournalId,
    pub(crate) boot_id: String,
    pub(crate) supervisor: Supervisor,
    pub(crate) drain: Drain,
    pub(crate) previous_epoch: u64,
    pub(crate) unconnected: Unconnected,
}

/// Keeps the node from being ready while it has no coordinator.
pub(crate) struct Unconnected {
    readiness: Readiness,
    missing: Option<Missing>,
}

impl Unconnected {
    pub(crate) fn new(readiness: Readiness) -> Self {
        let mut unconnected = Self { readiness, missing: None };
        unconnected.set(true);
        unconnected
    }

    fn set(&mut self, unconnected: bool) {
        self.missing = unconnected.then(|| self.readiness.waits_for("a coordinator"));
    }
}

/// Why a session ended, or never began.
enum End {
    /// Try again after the usual back-off.
    Broken(String),
    /// Try again after this long.
    RetryAfter(Duration, String),
    /// Another node has this identity: do not fight.
    Superseded(String),
}

impl Link {
    /// Keeps the link up until the drain's second step.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(limits::RECONNECT.0, limits::RECONNECT.1);
        let stopping = self.drain.clone();
        let mut told_down = false;
        loop {
            let end = tokio::select! {
                end = self.session(&mut backoff, &mut told_down) => end,
                () = stopping.stopped() => return,
            };
            self.unconnected.set(true);
            let (wait, why) = match end {
                End::Broken(why) => (backoff.next_wait(), why),
                End::RetryAfter(wait, why) => (wait.max(backoff.next_wait()), why),
                End::Superseded(why) => {
                    tracing::error!(
                        weft.node.id = %self.node_id, %why,
                        "another node took over this identity; this one takes no more work. \
                         Give each host a state directory of its own and restart"
                    );
                    self.supervisor.refuse_new();
                    stopping.stopped().await;
                    return;
                }
            };
            // Said once for each time without a coordinator, not once for each try.
            if told_down {
                tracing::debug!(%why, wait_ms = wait.as_millis(), "still without a coordinator");
            } else {
                tracing::warn!(coordinator = %self.config.coordinator, %why, "no coordinator; trying again until there is");
                told_down = true;
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = stopping.stopped() => return,
            }
        }
    }

    async fn session(&mut self, backoff: &mut Backoff, told_down: &mut bool) -> End {
        // A new channel for each try: names are resolved again, and nothing of a broken connection is left.
        let channel = match self.config.coordinator.endpoint().connect().await {
            Ok(channel) => channel,
            Err(error) => return End::Broken(root_cause(&error)),
        };
        let mut service = LinkServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let (outgoing, stream) = mpsc::channel(IN_FLIGHT);
        // The channel is empty, so there is room.
        let _ = outgoing.try_send(message(Message::Hello(self.hello())));
        let opened = timeout(WELCOME, async {
            let mut incoming = service.connect(ReceiverStream::new(stream)).await?.into_inner();
            let first = incoming.message().await?;
            Ok::<_, Status>((incoming, first))
        })
        .await;
        let (incoming, first) = match opened {
            Err(_) => return End::Broken("the coordinator does not answer".into()),
            Ok(Err(status)) => return refused(&status),
            Ok(Ok(opened)) => opened,
        };
        use link::connect_response::Message as Response;
        let welcome = match first.and_then(|first| first.message) {
            Some(Response::Welcome(welcome)) => welcome,
            Some(Response::Goodbye(goodbye)) => return left(&goodbye),
            _ => return End::Broken("the coordinator did not begin with a welcome".into()),
        };
        backoff.reset();
        *told_down = false;
        self.unconnected.set(false);
        self.previous_epoch = welcome.session_epoch;
        self.supervisor.set_credit(
            Some(welcome.invocation_credit).filter(|c| *c > 0).unwrap_or(limits::INVOCATION_CREDIT),
            Some(welcome.link_credit).filter(|c| *c > 0).unwrap_or(limits::LINK_CREDIT),
        );
        tracing::info!(
            coordinator = %self.config.coordinator, epoch = welcome.session_epoch, "connected to the coordinator"
        );
        Session::new(self, welcome, incoming, outgoing).run().await
    }

    fn hello(&self) -> link::Hello {
        link::Hello {
            protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
            features: vec![],
            node_id: self.node_id.to_string(),
            name: self.config.name.clone(),
            os: if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS }.into(),
            arch: std::env::consts::ARCH.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            labels: self.config.labels.clone().into_iter().collect(),
            boot_id: self.boot_id.clone(),
            journal_id: self.journal.to_string(),
            slots: u32::try_from(self.supervisor.slots()).unwrap_or(u32::MAX),
            queue: u32::try_from(self.config.queue).unwrap_or(u32::MAX),
            attempts: self.supervisor.in_hand(),
            previous_epoch: self.previous_epoch,
        }
    }
}

/// One session: from its welcome to its end.
struct Session<'a> {
    link: &'a mut Link,
    epoch: u64,
    heartbeat: Duration,
    lease: Duration,
    incoming: Streaming<link::ConnectResponse>,
    outgoing: mpsc::Sender<link::ConnectRequest>,
    /// Goes before any news.
    control: VecDeque<Message>,
    /// What is left of a frame of news that was too large to go at once.
    parts: VecDeque<link::Part>,
    /// Files that are read for the coordinator.
    reading: FuturesUnordered<JoinHandle<link::FileContent>>,
    inventory: watch::Receiver<Arc<Inventory>>,
    complaint: watch::Receiver<Option<Diagnostic>>,
    offer: Offer,
}

impl<'a> Session<'a> {
    fn new(
        link: &'a mut Link,
        welcome: link::Welcome,
        incoming: Streaming<link::ConnectResponse>,
        outgoing: mpsc::Sender<link::ConnectRequest>,
    ) -> Self {
        let or = |duration: Option<prost_types::Duration>, default| {
            let given = duration.and_then(|given| convert::duration_from_wire("welcome", given).ok());
            given.filter(|given| !given.is_zero()).unwrap_or(default)
        };
        Self {
            epoch: welcome.session_epoch,
            heartbeat: or(welcome.heartbeat_interval, limits::LINK_HEARTBEAT),
            lease: or(welcome.lease, limits::LEASE),
            inventory: link.supervisor.inventory(),
            complaint: link.supervisor.complaint(),
            control: VecDeque::new(),
            parts: VecDeque::new(),
            reading: FuturesUnordered::new(),
            offer: Offer::default(),
            link,
            incoming,
            outgoing,
        }
    }

    async fn run(mut self) -> End {
        let drain = self.link.drain.clone();
        let supervisor = self.link.supervisor.clone();
        let mut heartbeat = interval(self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut told_draining = false;
        let outgoing = self.outgoing.clone();
        // Taken for sending, and read from the spool.
        let (mut next, mut loading) = (None, None);
        // There may be news to send now, or at a later moment.
        let (mut due, mut due_at) = (true, None);
        self.advertise();
        loop {
            if next.is_none() {
                next = self.control.pop_front().or_else(|| self.parts.pop_front().map(Message::Part));
            }
            if due && next.is_none() && loading.is_none() {
                match supervisor.next_frame() {
                    // The link is read meanwhile, and control goes out.
                    Some(frame) if frame.is_spooled() => {
                        loading = Some(tokio::task::spawn_blocking(|| frame.load()));
                    }
                    Some(frame) => next = frame.load().ok().map(|events| self.frame(events)),
                    None => (due, due_at) = (false, None),
                }
            }
            let loaded = async {
                match &mut loading {
                    Some(loading) => loading.await,
                    None => pending().await,
                }
            };
            // Every arm gets its turn, also when one is always ready: heartbeats among results, and acknowledgements
            // while the transport is busy.
            tokio::select! {
                room = outgoing.reserve(), if next.is_some() => match room {
                    Ok(room) => {
                        if let Some(next) = next.take() {
                            room.send(message(next));
                        }
                    }
                    Err(_) => return End::Broken("the link closed".into()),
                },
                loaded = loaded => {
                    loading = None;
                    match loaded {
                        // Behind what was put there meanwhile.
                        Ok(Ok(events)) => {
                            let frame = self.frame(events);
                            self.control.push_back(frame);
                        }
                        Ok(Err(error)) => return End::Broken(format!("the spool cannot be read: {error}")),
                        Err(_) => return End::Broken("the spool cannot be read".into()),
                    }
                }
                incoming = self.incoming.message() => {
                    heard = Instant::now();
                    if let Some(end) = self.take(incoming) {
                        return end;
                    }
                }
                Some(read) = self.reading.next(), if !self.reading.is_empty() => {
                    // A panic in there was reported when it happened; whoever asked stops waiting.
                    self.control.extend(read.ok().map(Message::FileContent));
                }
                () = supervisor.has_news(), if !due => due = true,
                () = supervisor.has_news_for_later(), if !due && due_at.is_none() => {
                    due_at = Some(Instant::now() + COMPANY);
                }
                () = sleep_until(due_at.unwrap_or(heard + self.lease)), if !due && due_at.is_some() => due = true,
                Ok(()) = self.inventory.changed() => self.advertise(),
                Ok(()) = self.complaint.changed() => self.advertise(),
                _ = heartbeat.tick() => {
                    let (running, queued) = supervisor.load();
                    let time = Some(convert::timestamp_to_wire(Timestamp::now()));
                    self.control.push_back(Message::Heartbeat(link::Heartbeat { time, running, queued }));
                }
                () = drain.begun(), if !told_draining => {
                    told_draining = true;
                    self.control.push_back(Message::Draining(link::Draining { reason: "the node is stopping".into() }));
                }
                () = sleep_until(heard + self.lease) => return silent(),
            }
        }
    }

    /// What goes out first of a frame of news; the rest of a large one comes in parts, when nothing of control waits.
    fn frame(&mut self, events: link::NodeEvents) -> Message {
        if events.encoded_len() <= limits::FRAME_BYTES {
            return Message::Events(events);
        }
        self.parts = parts::split(&events);
        self.parts.pop_front().map_or(Message::Events(events), Message::Part)
    }

    fn advertise(&mut self) {
        let inventory = self.inventory.borrow_and_update().clone();
        let mut offer = Offer::of(&inventory);
        offer.advert.diagnostics.extend(self.complaint.borrow_and_update().clone());
        // Stamps of files change without anything to tell.
        if offer.advert != self.offer.advert || self.offer.definitions.is_empty() {
            self.control.push_back(Message::Advert((&offer.advert).into()));
        }
        self.offer = offer;
    }

    /// Takes one message; `Some` ends the session.
    fn take(&mut self, incoming: Result<Option<link::ConnectResponse>, Status>) -> Option<End> {
        let message = match incoming {
            Ok(Some(message)) => message.message?,
            Ok(None) => return Some(End::Broken("the coordinator closed the link".into())),
            Err(status) => return Some(refused(&status)),
        };
        match self.act(message) {
            Ok(end) => end,
            Err(malformed) => Some(End::Broken(format!("the coordinator broke the protocol: {malformed}"))),
        }
    }

    fn act(&mut self, message: link::connect_response::Message) -> Result<Option<End>, Malformed> {
        use link::connect_response::Message as Response;
        let supervisor = &self.link.supervisor;
        match message {
            Response::Welcome(_) => return Err(Malformed::new("welcome", "a session has one welcome")),
            Response::Dispatch(dispatch) => supervisor.dispatch(dispatch, self.epoch)?,
            Response::Cancel(cancel) => {
                let key = (convert::parse("invocation_id", &cancel.invocation_id)?, cancel.attempt);
                tracing::debug!(weft.invocation.id = %key.0, reason = %cancel.reason, "cancel");
                let in_hand = supervisor.cancel(key, StopReason::Cancelled);
                self.control.push_back(Message::CancelAcknowledged(link::CancelAcknowledged {
                    invocation_id: cancel.invocation_id,
                    attempt: cancel.attempt,
                    in_hand,
                }));
            }
            Response::Acknowledgement(acknowledgement) => supervisor.acknowledge(acknowledgement)?,
            Response::DefinitionsRequest(request) => {
                let known: Vec<_> = request
                    .digests
                    .iter()
                    .filter_map(|digest| {
                        self.offer.definitions.iter().find(|(d, _)| d.as_bytes()[..] == digest[..])
                    })
                    .map(|(_, bytes)| bytes.clone())
                    .collect();
                for definitions in known.chunks(DEFINITIONS_AT_ONCE) {
                    let definitions = definitions.to_vec();
                    self.control.push_back(Message::Definitions(link::Definitions { definitions }));
                }
            }
            Response::FileRequest(request) if self.reading.len() >= limits::FILES_AT_ONCE => {
                self.control.push_back(Message::FileContent(files::busy(&request)));
            }
            Response::FileRequest(request) => {
                let (inventory, agents) = (self.inventory.borrow().clone(), supervisor.agents());
                let read = move || files::read(&inventory, &agents, &request);
                self.reading.push(tokio::task::spawn_blocking(read));
            }
            Response::Heartbeat(_) => {}
            Response::Goodbye(goodbye) => return Ok(Some(left(&goodbye))),
        }
        Ok(None)
    }
}

fn message(message: Message) -> link::ConnectRequest {
    link::ConnectRequest { message: Some(message) }
}

fn silent() -> End {
    End::Broken("no message from the coordinator for a whole lease".into())
}

fn left(goodbye: &link::Goodbye) -> End {
    let why = goodbye.message.clone();
    let retry_after =
        goodbye.retry_after.and_then(|wait| convert::duration_from_wire("retry_after", wait).ok());
    match (goodbye.reason(), retry_after) {
        (link::goodbye::Reason::Superseded, _) => End::Superseded(why),
        (_, Some(wait)) => End::RetryAfter(wait, why),
        (_, None) => End::Broken(why),
    }
}

fn refused(status: &Status) -> End {
    let read = status::read(status);
    match read.retry_after {
        Some(wait) => End::RetryAfter(wait, read.message),
        None if read.message.is_empty() => End::Broken(format!("{:?}", read.code)),
        None => End::Broken(read.message),
    }
}

/// The innermost cause: it is the one that helps ("connection refused").
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
