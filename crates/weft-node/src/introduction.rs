//! Asks a coordinator what it would say to a node, without becoming one: `weft doctor`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use tokio::time::timeout;
use tonic::{Status, metadata::MetadataMap};
use weft_client::{Coordinator, channel::MAX_MESSAGE};
use weft_proto::{
    LINK_VERSIONS,
    link::{self, connect_request::Message, link_service_client::LinkServiceClient},
    status,
};

use crate::link::root_cause;

/// How long the coordinator may take.
const ANSWER: Duration = Duration::from_secs(5);

/// What a coordinator said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// Why no version of the link is spoken by both sides, if none is.
    pub skew: Option<String>,
    /// How far its clock is ahead of ours, to the second; `None` when it did not say.
    pub ahead: Option<SignedDuration>,
}

/// Introduces a node that has no identity. A coordinator compares versions first and refuses it then, so that it
/// leaves no trace there.
///
/// # Errors
/// With the reason in words, when no coordinator answers.
pub async fn introduce(coordinator: &Coordinator) -> Result<Introduction, String> {
    let hello = link::Hello {
        protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
        ..link::Hello::default()
    };
    let hello = link::ConnectRequest { message: Some(Message::Hello(hello)) };
    let answer = timeout(ANSWER, async {
        let channel = coordinator.endpoint().connect().await.map_err(|error| root_cause(&error))?;
        let mut service = LinkServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        Ok::<_, String>(service.connect(tokio_stream::once(hello)).await)
    });
    match answer.await.map_err(|_| "it does not answer".to_owned())?? {
        Ok(taken) => Ok(Introduction { skew: None, ahead: ahead(taken.metadata()) }),
        Err(refusal) => read(&refusal),
    }
}

fn read(refusal: &Status) -> Result<Introduction, String> {
    let refused = status::read(refusal);
    match refused.reason.as_str() {
        "" => Err(format!("what answers there is no coordinator: {}", refusal.message())),
        "PROTOCOL_SKEW" => Ok(Introduction { skew: Some(refused.message), ahead: ahead(refusal.metadata()) }),
        _ => Ok(Introduction { skew: None, ahead: ahead(refusal.metadata()) }),
    }
}

/// From the `date` header that every HTTP server sends.
fn ahead(headers: &MetadataMap) -> Option<SignedDuration> {
    let theirs = rfc2822::parse(headers.get("date")?.to_str().ok()?).ok()?;
    Some(theirs.timestamp().duration_since(Timestamp::now()))
}

#[cfg(test)]
mod tests {
    use weft_core::refusal::Refusal;

    use super::*;

    #[test]
    fn a_refusal_tells_what_a_node_would_meet() {
        let skew = Refusal::ProtocolSkew { theirs: "1 to 1".into(), ours: "2 to 3".into() };
        let met = read(&status::from_refusal(&skew)).unwrap();
        assert!(met.skew.is_some_and(|skew| skew.contains("2 to 3")));
        let unnamed = Refusal::RequestInvalid { field: "node_id".into(), message: "is missing".into() };
        assert_eq!(read(&status::from_refusal(&unnamed)), Ok(Introduction { skew: None, ahead: None }));
        assert!(read(&Status::unimplemented("no such service")).is_err());
    }

    #[test]
    fn the_date_header_tells_the_clock() {
        let mut headers = MetadataMap::new();
        headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert!(ahead(&headers).is_some_and(|ahead| ahead.is_negative()));
        assert_eq!(ahead(&MetadataMap::new()), None);
    }
}
