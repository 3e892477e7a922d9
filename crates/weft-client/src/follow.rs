//! Following an invocation to its end, through broken streams and coordinators that restart.
//!
//! A broken stream says nothing about the invocation. As long as no event came, the same request is sent again
//! under the same request id, which attaches to the first try; afterwards the invocation is watched again from
//! the last event that was seen.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Streaming};
use weft_core::{
    event::{Event, EventKind},
    ids::InvocationId,
};
use weft_proto::{
    convert::event_from_wire,
    status, v1,
    v1::{invoke_response, watch_invocation_response},
};

use crate::{
    Client, Error,
    backoff::Backoff,
    error::{is_transport, never_left},
};

/// How long a coordinator that went away is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// First and longest wait between two tries.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Something about an invocation that is followed.
#[derive(Debug, Clone)]
pub enum Followed {
    /// The invocation exists under this id.
    Known(InvocationId),
    /// A recorded event.
    Event(Event),
    /// Nothing happened for a while; it is alive.
    Heartbeat,
    /// The stream broke; it is looked for again.
    Interrupted {
        /// What the transport or the coordinator said.
        why: String,
    },
    /// The stream is back.
    Resumed,
}

/// See the module.
#[derive(Debug)]
pub struct Follow {
    client: Client,
    /// What to create, as long as the id is not known.
    request: Option<v1::InvocationRequest>,
    id: Option<InvocationId>,
    announced: bool,
    after: u64,
    /// Came with the news of the id and is told after it.
    held_back: Option<Box<v1::InvocationEvent>>,
    stream: Option<Source>,
    connected_before: bool,
    /// The end was told; what may still come is a later truth that replaces an `UNKNOWN`.
    finished: bool,
    interrupted: Option<Instant>,
    backoff: Backoff,
    ended: bool,
}

#[derive(Debug)]
enum Source {
    Invoke(Streaming<v1::InvokeResponse>),
    Watch(Streaming<v1::WatchInvocationResponse>),
}

enum Message {
    Event(Box<v1::InvocationEvent>),
    Heartbeat,
}

impl Follow {
    pub(crate) fn invoke(client: Client, request: v1::InvocationRequest) -> Self {
        Self::new(client, Some(request), None, 0)
    }

    pub(crate) fn watch(client: Client, id: InvocationId, after: u64) -> Self {
        Self::new(client, None, Some(id), after)
    }

    fn new(
        client: Client,
        request: Option<v1::InvocationRequest>,
        id: Option<InvocationId>,
        after: u64,
    ) -> Self {
        Self {
            client,
            request,
            id,
            announced: id.is_some(),
            after,
            held_back: None,
            stream: None,
            connected_before: false,
            finished: false,
            interrupted: None,
            backoff: Backoff::new(WAITS.0, WAITS.1),
            ended: false,
        }
    }

    /// The id, once it is known.
    pub fn id(&self) -> Option<InvocationId> {
        self.id
    }

    /// What comes next; `None` after the last event. Cancel safe: what is lost is asked for again.
    ///
    /// # Errors
    /// When the coordinator refuses, cannot be reached, or no longer knows the invocation.
    pub async fn next(&mut self) -> Option<Result<Followed, Error>> {
        while !self.ended {
            let step = match (self.held_back.take(), &self.stream) {
                (Some(event), _) => self.take(Message::Event(event)),
                (None, None) => self.connect().await,
                (None, Some(_)) => self.read().await,
            };
            match step {
                Ok(Some(followed)) => return Some(Ok(followed)),
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    async fn connect(&mut self) -> Result<Option<Followed>, Error> {
        if self.interrupted.is_some() {
            tokio::time::sleep(self.backoff.next_wait()).await;
        }
        let mut service = self.client.invocations();
        let opened = match (self.id, &self.request) {
            (Some(id), _) => {
                let request =
                    v1::WatchInvocationRequest { invocation_id: id.to_string(), after_sequence: self.after };
                service.watch_invocation(request).await.map(|response| Source::Watch(response.into_inner()))
            }
            (None, request) => {
                let request = v1::InvokeRequest { invocation: request.clone() };
                service.invoke(request).await.map(|response| Source::Invoke(response.into_inner()))
            }
        };
        match opened {
            Ok(stream) => {
                self.stream = Some(stream);
                self.connected_before = true;
                self.backoff.reset();
                Ok(self.interrupted.take().map(|_| Followed::Resumed))
            }
            Err(status) => self.broken(&status),
        }
    }

    async fn read(&mut self) -> Result<Option<Followed>, Error> {
        let message = match &mut self.stream {
            None => return Ok(None),
            Some(Source::Invoke(stream)) => stream.message().await.map(|message| {
                message.map(|message| {
                    let body = match message.message {
                        Some(invoke_response::Message::Event(event)) => Message::Event(Box::new(event)),
                        Some(invoke_response::Message::Heartbeat(_)) | None => Message::Heartbeat,
                    };
                    (message.invocation_id, body)
                })
            }),
            Some(Source::Watch(stream)) => stream.message().await.map(|message| {
                message.map(|message| {
                    let body = match message.message {
                        Some(watch_invocation_response::Message::Event(event)) => {
                            Message::Event(Box::new(event))
                        }
                        Some(watch_invocation_response::Message::Heartbeat(_)) | None => Message::Heartbeat,
                    };
                    (String::new(), body)
                })
            }),
        };
        match message {
            Ok(Some((id, body))) => {
                if self.id.is_none() && !id.is_empty() {
                    self.id = Some(weft_proto::convert::parse("invocation_id", &id)?);
                }
                self.take(body)
            }
            Ok(None) | Err(_) if self.finished => {
                self.ended = true;
                Ok(None)
            }
            Ok(None) => {
                let status = tonic::Status::unavailable("the stream ended before the invocation did");
                self.broken(&status)
            }
            Err(status) => self.broken(&status),
        }
    }

    fn take(&mut self, body: Message) -> Result<Option<Followed>, Error> {
        match body {
            Message::Heartbeat => Ok(Some(Followed::Heartbeat)),
            Message::Event(event) => {
                if let (false, Some(id)) = (self.announced, self.id) {
                    self.announced = true;
                    self.held_back = Some(event);
                    return Ok(Some(Followed::Known(id)));
                }
                let sequence = event.sequence;
                let Some(event) = event_from_wire(*event)? else {
                    self.after = sequence;
                    return Ok(None);
                };
                self.after = sequence;
                self.finished = matches!(event.kind, EventKind::Finished(_));
                Ok(Some(Followed::Event(event)))
            }
        }
    }

    /// Decides what a broken stream means.
    fn broken(&mut self, status: &tonic::Status) -> Result<Option<Followed>, Error> {
        self.stream = None;
        let read = status::read(status);
        let moved = status.code() == Code::Aborted && read.reason == "STREAM_MOVED";
        let draining = self.connected_before && read.reason == "DRAINING";
        if !moved && !draining && !is_transport(status) {
            return Err(match (self.id, read.reason.as_str()) {
                (Some(id), "INVOCATION_NOT_FOUND") if self.connected_before => Error::Lost {
                    id,
                    why: "the coordinator restarted and does not know it any more; it may have run".into(),
                },
                _ => self.client.failed(status),
            });
        }
        if !self.connected_before && never_left(status) {
            return Err(self.client.failed(status));
        }
        // From here on a request has left, and the same one under the same id attaches to whatever it did.
        self.connected_before = true;
        let first_break = self.interrupted.is_none();
        let since = *self.interrupted.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            return Err(match self.id {
                Some(id) => Error::Lost { id, why: format!("{} does not answer", self.client.address()) },
                None => Error::Unsure { address: self.client.address().to_string(), why: read.message },
            });
        }
        Ok(first_break.then_some(Followed::Interrupted { why: read.message }))
    }
}
