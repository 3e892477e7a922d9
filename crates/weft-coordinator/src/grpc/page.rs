//! Pages: opaque tokens and bounded sizes.

use prost::Message;
use tonic::Status;
use weft_proto::convert::Malformed;

/// The size of a page: what is asked for, within bounds.
pub(super) fn size(asked: i32, default: usize, most: usize) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(default),
        Ok(size) => Ok(size.min(most)),
        Err(_) => Err(super::malformed(Malformed::new("page_size", "must not be negative"))),
    }
}

/// Bytes after which a page ends, whatever its size: half of what a client takes unless told otherwise.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// A page of messages, and the token of the next one: what `name` gives for the last. Each message is made only when
/// it is looked at.
pub(super) fn fill<T: Message>(
    items: impl Iterator<Item = T>,
    size: usize,
    name: impl Fn(&T) -> String,
) -> (Vec<T>, String) {
    let mut rest = items.peekable();
    let mut page: Vec<T> = Vec::new();
    let mut bytes = 0;
    while page.len() < size
        && let Some(item) = rest.next_if(|item| page.is_empty() || bytes + item.encoded_len() <= MAX_BYTES)
    {
        bytes += item.encoded_len();
        page.push(item);
    }
    let next = match (rest.peek(), page.last()) {
        (Some(_), Some(last)) => name(last),
        _ => String::new(),
    };
    (page, next)
}

/// As many messages of these items as fit beside a page, and how many are left out: of those no message is made.
pub(super) fn head<I, T: Message>(
    mut items: impl Iterator<Item = I>,
    make: impl Fn(I) -> T,
) -> (Vec<T>, u32) {
    let mut room = MAX_BYTES / 4;
    let mut head = Vec::new();
    let mut left_out = 0;
    for item in items.by_ref() {
        let message = make(item);
        let Some(left) = room.checked_sub(message.encoded_len()) else {
            left_out = 1;
            break;
        };
        room = left;
        head.push(message);
    }
    left_out += items.count();
    (head, u32::try_from(left_out).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_join_to_the_whole_however_large_the_items_are() {
        let mut all: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
        all[4] += &"x".repeat(3 * MAX_BYTES);
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let rest = all.iter().filter(|item| **item > token).cloned();
            let (page, next) = fill(rest, 3, Clone::clone);
            assert!(page.len() == 1 || page.iter().map(String::len).sum::<usize>() <= MAX_BYTES);
            seen.extend(page);
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, all);
        let (head, left_out) = head(0..1000, |n: u32| n.to_string().repeat(MAX_BYTES / 100));
        assert!(head.len() > 10 && head.iter().map(String::len).sum::<usize>() <= MAX_BYTES / 4);
        assert_eq!(left_out as usize, 1000 - head.len());
        assert_eq!(size(0, 5, 9).unwrap(), 5);
        assert_eq!(size(100, 5, 9).unwrap(), 9);
        assert!(size(-1, 5, 9).is_err());
    }
}
