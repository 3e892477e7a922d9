//! A node without processes: it answers every dispatch at once with its args. Through it the way from a caller to a
//! node and back is measured, and nothing else. It runs as a process of its own, as a real node does.

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_stream::wrappers::ReceiverStream;
use weft_client::Coordinator;
use weft_core::{
    advert::{Advert, Row, Scope},
    ids::Digest,
    limits,
    skill::{Definition, Kind, Layer},
};
use weft_daemon::signal::Signals;
use weft_proto::{
    LINK_VERSIONS,
    convert::{encode_definition, timestamp_to_wire},
    link::{
        self, connect_request::Message, connect_response::Message as Response,
        link_service_client::LinkServiceClient, node_event::Event,
    },
    v1,
};

use super::samples::{SCHEMA, Sample};

/// Messages that may wait for the transport.
const OUTBOX: usize = 64;

/// Offers the echo skill until a signal, or until the coordinator ends the link.
pub(super) async fn serve(coordinator: &Coordinator) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("catch signals")?;
    tokio::select! {
        ended = session(coordinator) => ended,
        _ = signals.next() => Ok(()),
    }
}

async fn session(coordinator: &Coordinator) -> anyhow::Result<()> {
    let channel = coordinator.endpoint().connect().await.context("reach the coordinator")?;
    let (outbox, stream) = mpsc::channel(OUTBOX);
    let say = async |message| {
        let sent = outbox.send(link::ConnectRequest { message: Some(message) }).await;
        sent.map_err(|_| anyhow!("the link closed"))
    };
    say(Message::Hello(hello())).await?;
    let mut incoming =
        LinkServiceClient::new(channel).connect(ReceiverStream::new(stream)).await?.into_inner();
    let (definition, advert) = offer();
    say(advert).await?;
    let mut heartbeat = interval(limits::LINK_HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = incoming.message() => message?,
            _ = heartbeat.tick() => {
                let time = Some(timestamp_to_wire(Timestamp::now()));
                say(Message::Heartbeat(link::Heartbeat { time, ..Default::default() })).await?;
                continue;
            }
        };
        match message.and_then(|message| message.message) {
            Some(Response::Dispatch(dispatch)) => say(Message::Events(answer(dispatch))).await?,
            // It has one, so that is the one asked for.
            Some(Response::DefinitionsRequest(_)) => {
                let definitions = vec![definition.clone().into()];
                say(Message::Definitions(link::Definitions { definitions })).await?;
            }
            Some(Response::Goodbye(goodbye)) => bail!("the coordinator ends the link: {}", goodbye.message),
            Some(
                Response::Welcome(_)
                | Response::Cancel(_)
                | Response::Acknowledgement(_)
                | Response::Heartbeat(_)
                | Response::FileRequest(_),
            ) => {}
            None => return Ok(()),
        }
    }
}

fn hello() -> link::Hello {
    link::Hello {
        protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
        node_id: "bench-echo".into(),
        name: "bench-echo".into(),
        os: std::env::consts::OS.into(),
        arch: std::env::consts::ARCH.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        journal_id: format!("j-{}", uuid::Uuid::now_v7().simple()),
        // It never makes anybody wait.
        slots: 4096,
        ..Default::default()
    }
}

/// The encoded definition of the echo skill, and the advert of it.
fn offer() -> (Vec<u8>, Message) {
    let key = Sample::Echo.key();
    let definition = Definition {
        description: "Answers with its args, without a process.".into(),
        schema: SCHEMA.into(),
        ..Definition::new(key.clone(), Kind::Executable)
    };
    let (encoded, digest) = encode_definition(&definition);
    let row = Row {
        scope: Scope::All,
        path: format!("/{key}"),
        key,
        layer: Layer::Managed,
        digest: Digest::of(b"no files"),
        partial: false,
        definition: digest,
        verdicts: vec![],
        shadowed_by: None,
    };
    let advert = Advert { revision: 1, rows: vec![row.into()], diagnostics: vec![] };
    (encoded.to_vec(), Message::Advert((&advert).into()))
}

/// All news of an attempt in one frame: a node that starts processes sends two or three.
fn answer(dispatch: link::Dispatch) -> link::NodeEvents {
    let attempt = dispatch.attempt;
    let news = [
        Event::Accepted(link::Accepted { queued_before: 0 }),
        Event::Started(v1::Started { attempt, pid: std::process::id() }),
        Event::Finished(v1::Finished {
            outcome: v1::Outcome::Succeeded.into(),
            started: Some(true),
            duration: Some(Default::default()),
            result: Some(v1::finished::Result::Inline(dispatch.args)),
            ..Default::default()
        }),
    ];
    let time = Some(timestamp_to_wire(Timestamp::now()));
    let events = news
        .into_iter()
        .zip(1..)
        .map(|(event, node_sequence)| link::NodeEvent {
            invocation_id: dispatch.invocation_id.clone(),
            attempt,
            node_sequence,
            time,
            event: Some(event),
        })
        .collect();
    link::NodeEvents { events }
}
