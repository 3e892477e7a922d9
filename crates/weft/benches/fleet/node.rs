//! A fleet of simulated nodes. Each keeps its link up as a real node does: a connection of its own, hello, advert, the
//! definitions that it is asked for, heartbeats, and the back-off of a real node when the link breaks.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use weft_client::{Coordinator, backoff::Backoff};
use weft_core::limits;
use weft_proto::{
    LINK_VERSIONS,
    link::{
        self, connect_request::Message, connect_response::Message as Response,
        link_service_client::LinkServiceClient,
    },
};

use crate::offer::Offer;

/// Nodes that arrive at the same time, at first. After the coordinator was away, nothing holds them back.
const ARRIVING: usize = 128;
/// How long a node waits for its welcome.
const WELCOME: Duration = Duration::from_secs(10);
/// Messages that may wait for the transport.
const OUTBOX: usize = 16;

/// See the module.
pub(crate) struct Fleet {
    shared: Rc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    coordinator: Coordinator,
    offer: Offer,
    arriving: Semaphore,
    /// For each node, what makes it close its link.
    flaps: Vec<Notify>,
    /// Links that are up.
    up: Cell<usize>,
    /// Sessions that were opened, and tries that failed.
    opened: Cell<usize>,
    failed: Cell<usize>,
    /// Why the last try failed.
    failure: RefCell<String>,
}

/// A link that is up.
struct Up<'a>(&'a Cell<usize>);

impl<'a> Up<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Fleet {
    /// Starts so many nodes. Must be called within a `LocalSet`.
    pub(crate) fn start(coordinator: Coordinator, nodes: usize, skills: usize) -> Self {
        let shared = Rc::new(Shared {
            coordinator,
            offer: Offer::new(skills),
            arriving: Semaphore::new(ARRIVING),
            flaps: (0..nodes).map(|_| Notify::new()).collect(),
            up: Cell::default(),
            opened: Cell::default(),
            failed: Cell::default(),
            failure: RefCell::default(),
        });
        let mut tasks = JoinSet::new();
        for node in 0..nodes {
            let shared = shared.clone();
            tasks.spawn_local(async move { shared.live(node).await });
        }
        Self { shared, tasks }
    }

    /// Closes the link of a node, which comes back by itself.
    pub(crate) fn flap(&self, node: usize) {
        self.shared.flaps[node].notify_one();
    }

    /// Links that are up.
    pub(crate) fn up(&self) -> usize {
        self.shared.up.get()
    }

    /// Sessions opened so far, and tries that failed.
    pub(crate) fn tries(&self) -> (usize, usize) {
        (self.shared.opened.get(), self.shared.failed.get())
    }

    /// Why the last try failed.
    pub(crate) fn failure(&self) -> String {
        self.shared.failure.borrow().clone()
    }

    /// Ends every node.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Shared {
    async fn live(&self, node: usize) {
        let mut backoff = Backoff::new(limits::RECONNECT.0, limits::RECONNECT.1);
        let mut previous_epoch = 0;
        let mut arriving = self.arriving.acquire().await.ok();
        loop {
            if let Err(why) = self.session(node, &mut previous_epoch, &mut backoff, &mut arriving).await {
                self.failed.set(self.failed.get() + 1);
                *self.failure.borrow_mut() = why;
            }
            sleep(backoff.next_wait()).await;
        }
    }

    /// One session, to the end of its link.
    async fn session(
        &self,
        node: usize,
        previous_epoch: &mut u64,
        backoff: &mut Backoff,
        arriving: &mut Option<tokio::sync::SemaphorePermit<'_>>,
    ) -> Result<(), String> {
        let channel = self.coordinator.endpoint().connect().await.map_err(|error| format!("{error:?}"))?;
        let (outgoing, stream) = mpsc::channel(OUTBOX);
        let say = async |message| {
            // A session that has ended takes nothing, which is seen when its next message is read.
            let _ = outgoing.send(link::ConnectRequest { message: Some(message) }).await;
        };
        say(Message::Hello(hello(node, *previous_epoch))).await;
        let opened = timeout(WELCOME, async {
            let mut service = LinkServiceClient::new(channel);
            let mut incoming = service.connect(ReceiverStream::new(stream)).await?.into_inner();
            let first = incoming.message().await?;
            Ok::<_, tonic::Status>((incoming, first))
        });
        let opened = opened.await.map_err(|_| "no welcome in time".to_owned())?;
        let (mut incoming, first) = opened.map_err(|status| status.to_string())?;
        let Some(Response::Welcome(welcome)) = first.and_then(|first| first.message) else {
            return Err("something else than a welcome".into());
        };
        *previous_epoch = welcome.session_epoch;
        backoff.reset();
        let _up = Up::new(&self.up);
        self.opened.set(self.opened.get() + 1);
        say(Message::Advert(self.offer.advert(node))).await;
        arriving.take();
        // At random, so that the fleet is not in step.
        let first = Instant::now() + Backoff::new(limits::LINK_HEARTBEAT, limits::LINK_HEARTBEAT).next_wait();
        let mut heartbeat = interval_at(first, limits::LINK_HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                message = incoming.message() => message,
                _ = heartbeat.tick() => {
                    let time = Some(weft_proto::convert::timestamp_to_wire(jiff::Timestamp::now()));
                    say(Message::Heartbeat(link::Heartbeat { time, ..Default::default() })).await;
                    continue;
                }
                () = self.flaps[node].notified() => return Ok(()),
            };
            match message.map_err(|status| status.to_string())?.and_then(|message| message.message) {
                Some(Response::DefinitionsRequest(asked)) => {
                    say(Message::Definitions(self.offer.definitions(&asked.digests))).await;
                }
                Some(Response::Goodbye(goodbye)) => return Err(goodbye.message),
                Some(_) => {}
                None => return Err("the coordinator closed the link".into()),
            }
        }
    }
}

fn hello(node: usize, previous_epoch: u64) -> link::Hello {
    link::Hello {
        protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
        // Ids are random in life: in the order of their ids, neighbours have nothing in common.
        node_id: format!("n-{:016x}{node:016x}", (node as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        name: format!("host-{node:05}.example"),
        os: "linux".into(),
        arch: "x86_64".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        labels: [("zone", format!("z{}", node % 8)), ("role", format!("r{}", node % 5))]
            .map(|(label, value)| (label.to_owned(), value))
            .into(),
        boot_id: format!("boot-{node}"),
        journal_id: format!("journal-{node}"),
        slots: 4,
        queue: 256,
        previous_epoch,
        ..Default::default()
    }
}
