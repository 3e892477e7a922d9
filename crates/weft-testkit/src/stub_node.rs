//! A node that does what a test tells it, also what no sound node would.

use std::sync::Arc;

use std::time::Duration;

use bytes::Bytes;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Endpoint};
use weft_core::{
    advert::{Advert, Row, Scope},
    ids::{Digest, SkillKey},
    skill::{Class, Definition, Kind, Layer},
};
use weft_proto::{
    convert::{encode_definition, timestamp_to_wire},
    link::{
        self, connect_request::Message, connect_response::Message as Response,
        link_service_client::LinkServiceClient, node_event,
    },
    v1,
};

/// How long a coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// See the module.
pub struct StubNode {
    outgoing: mpsc::Sender<link::ConnectRequest>,
    incoming: Streaming<link::ConnectResponse>,
    /// The epoch of its session.
    pub epoch: u64,
}

/// A hello that a sound node could send.
pub fn hello(id: &str) -> link::Hello {
    link::Hello {
        protocol: Some(link::ProtocolVersions { current: 1, oldest: 1 }),
        node_id: id.into(),
        name: id.into(),
        os: "linux".into(),
        arch: "x86_64".into(),
        version: "0".into(),
        boot_id: "b".into(),
        journal_id: format!("journal-of-{id}"),
        slots: 4,
        queue: 16,
        ..Default::default()
    }
}

/// A definition without anything special.
pub fn definition(name: &str, class: Class) -> Definition {
    let plain = Definition::new(SkillKey::normalise(name).unwrap(), Kind::Executable);
    Definition { description: format!("stub {name}"), class, ..plain }
}

/// A final record with this outcome.
pub fn finished(outcome: v1::Outcome, result: Option<&'static [u8]>) -> node_event::Event {
    node_event::Event::Finished(v1::Finished {
        outcome: outcome.into(),
        duration: Some(Default::default()),
        result: result.map(|bytes| v1::finished::Result::Inline(Bytes::from_static(bytes))),
        ..Default::default()
    })
}

impl StubNode {
    /// Opens a session.
    ///
    /// # Errors
    /// When the coordinator refuses the hello.
    pub async fn connect(address: &str, hello: link::Hello) -> Result<Self, Status> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let (outgoing, stream) = mpsc::channel(64);
        outgoing.send(request(Message::Hello(hello))).await.unwrap();
        let mut incoming =
            LinkServiceClient::new(channel).connect(ReceiverStream::new(stream)).await?.into_inner();
        match incoming.message().await?.and_then(|first| first.message) {
            Some(Response::Welcome(welcome)) => Ok(Self { outgoing, incoming, epoch: welcome.session_epoch }),
            other => panic!("instead of a welcome: {other:?}"),
        }
    }

    /// Sends a message.
    pub async fn send(&self, message: Message) {
        // A session that the coordinator ended takes nothing, which the test sees in what follows.
        let _ = self.outgoing.send(request(message)).await;
    }

    /// The next message that is no heartbeat; `None` when the session has ended.
    pub async fn next(&mut self) -> Option<Response> {
        loop {
            let message = timeout(ANSWER, self.incoming.message()).await.expect("no message in time");
            match message.ok().flatten()?.message? {
                Response::Heartbeat(_) => {}
                other => return Some(other),
            }
        }
    }

    /// Offers these definitions, which the coordinator knows already or will not ask for now.
    pub async fn advertise(&self, definitions: &[Definition]) {
        let encoded: Vec<_> = definitions.iter().map(encode_definition).collect();
        let rows = definitions
            .iter()
            .zip(&encoded)
            .map(|(definition, (_, digest))| Row {
                scope: Scope::All,
                key: definition.key.clone(),
                layer: Layer::Managed,
                path: format!("/stub/{}", definition.key),
                digest: Digest::of(definition.key.as_str().as_bytes()),
                partial: false,
                definition: *digest,
                verdicts: vec![],
                shadowed_by: None,
            })
            .map(Arc::new)
            .collect();
        self.send(Message::Advert((&Advert { revision: 1, rows, diagnostics: vec![] }).into())).await;
    }

    /// Offers these definitions, and sends what the coordinator asks for.
    pub async fn offer(&mut self, definitions: &[Definition]) {
        self.advertise(definitions).await;
        let encoded: Vec<_> = definitions.iter().map(encode_definition).collect();
        let Some(Response::DefinitionsRequest(asked)) = self.next().await else {
            panic!("the coordinator asks for no definition");
        };
        let definitions = asked
            .digests
            .iter()
            .filter_map(|asked| encoded.iter().find(|(_, digest)| digest.as_bytes()[..] == asked[..]))
            .map(|(bytes, _)| bytes.clone())
            .collect();
        self.send(Message::Definitions(link::Definitions { definitions })).await;
    }

    /// The next dispatch.
    pub async fn dispatch(&mut self) -> link::Dispatch {
        loop {
            match self.next().await {
                Some(Response::Dispatch(dispatch)) => return dispatch,
                Some(_) => {}
                None => panic!("the session ended"),
            }
        }
    }

    /// Says no more: what was sent still arrives. Waits until the coordinator has ended the session.
    pub async fn half_close(self) {
        let Self { outgoing, mut incoming, .. } = self;
        drop(outgoing);
        while let Ok(Some(_)) = timeout(ANSWER, incoming.message()).await.expect("no end in time") {}
    }

    /// Tells news of an attempt, numbered from `sequence` on.
    pub async fn tell(&self, dispatch: &link::Dispatch, sequence: u64, events: Vec<node_event::Event>) {
        let events = events
            .into_iter()
            .zip(sequence..)
            .map(|(event, node_sequence)| link::NodeEvent {
                invocation_id: dispatch.invocation_id.clone(),
                attempt: dispatch.attempt,
                node_sequence,
                time: Some(timestamp_to_wire(jiff::Timestamp::now())),
                event: Some(event),
            })
            .collect();
        self.send(Message::Events(link::NodeEvents { events })).await;
    }
}

/// The news that an attempt is in the journal, and that its process has started.
pub fn begun(attempt: u32) -> Vec<node_event::Event> {
    vec![
        node_event::Event::Accepted(link::Accepted { queued_before: 0 }),
        node_event::Event::Started(v1::Started { attempt, pid: 1 }),
    ]
}

fn request(message: Message) -> link::ConnectRequest {
    link::ConnectRequest { message: Some(message) }
}
