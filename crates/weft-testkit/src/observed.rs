//! An invocation as a client saw it: every event, with the moment of its arrival.

use std::time::SystemTime;

use bytes::Bytes;
use weft_client::{Error, Follow, Followed};
use weft_core::{
    event::{Event, EventKind},
    ids::{Digest, InvocationId, SkillKey},
    invocation::Request,
    node::Target,
    outcome::{Final, ResultBody},
};

/// See the module.
#[derive(Debug, Default)]
pub struct Observed {
    /// The events and when they arrived, in order.
    pub events: Vec<(SystemTime, Event)>,
}

impl Observed {
    /// Follows an invocation to its end.
    ///
    /// # Errors
    /// When it is refused, or its coordinator cannot be reached.
    pub async fn of(mut follow: Follow) -> Result<Self, Error> {
        let mut observed = Self::default();
        while let Some(followed) = follow.next().await {
            if let Followed::Event(event) = followed? {
                observed.events.push((SystemTime::now(), event));
            }
        }
        Ok(observed)
    }

    /// The final record.
    #[track_caller]
    pub fn last(&self) -> &Final {
        match self.events.last() {
            Some((_, Event { kind: EventKind::Finished(last), .. })) => last,
            other => panic!("the last event is not its end: {other:?}"),
        }
    }

    /// All bytes of stderr joined; each piece stands where its offset says.
    #[track_caller]
    pub fn stderr(&self) -> Vec<u8> {
        let mut joined = Vec::new();
        for (_, event) in &self.events {
            if let EventKind::Stderr { offset, bytes } = &event.kind {
                assert_eq!(*offset, joined.len() as u64, "a piece of stderr is missing or comes twice");
                joined.extend_from_slice(bytes);
            }
        }
        joined
    }

    /// The bytes of the result, checked against its digest.
    #[track_caller]
    pub fn result(&self) -> Vec<u8> {
        match &self.last().result {
            ResultBody::None => Vec::new(),
            ResultBody::Inline(bytes) => bytes.to_vec(),
            ResultBody::Chunked { size, digest } => {
                let mut joined = Vec::new();
                for (_, event) in &self.events {
                    if let EventKind::OutputChunk { bytes, .. } = &event.kind {
                        joined.extend_from_slice(bytes);
                    }
                }
                assert_eq!((joined.len() as u64, Digest::of(&joined)), (*size, *digest));
                joined
            }
        }
    }
}

/// A request that a caller watches, under a request id of its own.
#[track_caller]
pub fn request(skill: &str, args: impl Into<Bytes>) -> Request {
    let args = args.into();
    Request {
        caller: "local".parse().unwrap(),
        request_id: Some(InvocationId::generate().to_string().parse().unwrap()),
        agent: None,
        skill: SkillKey::normalise(skill).unwrap(),
        pinned: None,
        session: None,
        among: [].into(),
        args_digest: Digest::of(&args),
        args,
        target: Target::Any,
        budget: None,
        detach: false,
    }
}
