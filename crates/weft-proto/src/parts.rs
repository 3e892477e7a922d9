//! News that are larger than a frame, in pieces.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use weft_core::limits;

use crate::{convert::Malformed, link};

/// Most bytes of one message in pieces: a final record with its result inline, both tails and its words.
const MOST: usize = 1024 * 1024;

/// Cuts news into pieces that each fit a frame.
pub fn split(events: &link::NodeEvents) -> VecDeque<link::Part> {
    let mut rest = Bytes::from(events.encode_to_vec());
    let mut parts = VecDeque::new();
    while !rest.is_empty() {
        let data = rest.split_to(rest.len().min(limits::FRAME_BYTES));
        parts.push_back(link::Part { data, last: rest.is_empty() });
    }
    parts
}

/// Puts pieces together again.
#[derive(Debug, Default)]
pub struct Assembly(BytesMut);

impl Assembly {
    /// Takes the next piece; the news are whole after the last.
    ///
    /// # Errors
    /// When they are too large, or no news.
    pub fn push(&mut self, part: link::Part) -> Result<Option<link::NodeEvents>, Malformed> {
        if self.0.len() + part.data.len() > MOST {
            return Err(Malformed::new("part", format_args!("more than {MOST} bytes in one message")));
        }
        self.0.extend_from_slice(&part.data);
        if !part.last {
            return Ok(None);
        }
        let whole = self.0.split().freeze();
        link::NodeEvents::decode(whole).map(Some).map_err(|error| Malformed::new("part", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(bytes: usize) -> link::NodeEvents {
        let chunk = crate::v1::OutputChunk { offset: 7, data: Bytes::from(vec![b'x'; bytes]) };
        let event = link::NodeEvent {
            event: Some(link::node_event::Event::OutputChunk(chunk)),
            ..link::NodeEvent::default()
        };
        link::NodeEvents { events: vec![event] }
    }

    #[test]
    fn pieces_fit_a_frame_and_make_the_whole() {
        let mut assembly = Assembly::default();
        for bytes in [1, limits::FRAME_BYTES, limits::CHUNK_BYTES, 900_000] {
            let parts = split(&news(bytes));
            assert!(parts.iter().all(|part| part.data.len() <= limits::FRAME_BYTES));
            let mut wholes = parts.into_iter().filter_map(|part| assembly.push(part).unwrap());
            assert_eq!(wholes.next(), Some(news(bytes)));
            assert_eq!(wholes.next(), None);
        }
    }

    #[test]
    fn a_message_without_end_and_garbage_are_refused() {
        let endless = link::Part { data: Bytes::from(vec![0; limits::FRAME_BYTES]), last: false };
        let mut assembly = Assembly::default();
        let refused = (0..100).map(|_| assembly.push(endless.clone())).find_map(Result::err);
        assert!(refused.is_some());
        let garbage = link::Part { data: Bytes::from_static(&[0xff; 10]), last: true };
        assert!(Assembly::default().push(garbage).is_err());
    }
}
