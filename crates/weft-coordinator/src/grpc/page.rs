//! Pages: opaque tokens and bounded sizes.

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

/// A page of items that are sorted by the text that `name` gives, from the one after `token` on, and the token of
/// the next page.
pub(super) fn after<'a, T>(
    items: impl Iterator<Item = T> + 'a,
    token: &str,
    size: usize,
    name: impl Fn(&T) -> String,
) -> (Vec<T>, String) {
    let mut rest = items.skip_while(|item| !token.is_empty() && name(item).as_str() <= token).peekable();
    let page: Vec<T> = rest.by_ref().take(size).collect();
    let next = match (rest.peek(), page.last()) {
        (Some(_), Some(last)) => name(last),
        _ => String::new(),
    };
    (page, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_join_to_the_whole() {
        let all: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = after(all.iter().cloned(), &token, 3, Clone::clone);
            seen.extend(page);
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, all);
        assert_eq!(size(0, 5, 9).unwrap(), 5);
        assert_eq!(size(100, 5, 9).unwrap(), 9);
        assert!(size(-1, 5, 9).is_err());
    }
}
