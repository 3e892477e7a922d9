//! Where a coordinator is, and the connection to it.

use std::{fmt, str::FromStr, time::Duration};

use tonic::transport::{Channel, Endpoint};

/// The port that a coordinator listens on unless told otherwise (`WEFT` on a telephone's keys).
pub const DEFAULT_PORT: u16 = 9338;

/// The address of a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    uri: tonic::transport::Uri,
}

/// A text that is no address of a coordinator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("coordinator address {text:?} is not valid: {why}; expected http://HOST:PORT")]
pub struct InvalidAddress {
    text: String,
    why: String,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self { uri: tonic::transport::Uri::from_static("http://127.0.0.1:9338") }
    }
}

impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri.to_string().trim_end_matches('/'))
    }
}

impl FromStr for Coordinator {
    type Err = InvalidAddress;

    /// `http://HOST:PORT`; the scheme and the port may be left out.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |why: &str| InvalidAddress { text: text.to_owned(), why: why.to_owned() };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: tonic::transport::Uri = full.parse().map_err(|_| invalid("not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(invalid("TLS is not available yet")),
            _ => return Err(invalid("the scheme must be http")),
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(invalid("a path is not part of an address"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("the host is missing"))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err(invalid("the host is missing"));
        }
        let uri = match uri.port_u16() {
            Some(_) => uri,
            None => format!("http://{authority}:{DEFAULT_PORT}").parse().map_err(|_| invalid("not a URL"))?,
        };
        Ok(Self { uri })
    }
}

/// Largest message on either side of a channel, in bytes: an advert or a definition is the largest thing sent.
pub const MAX_MESSAGE: usize = 8 * 1024 * 1024;

impl Coordinator {
    /// What a connection to this coordinator needs.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::from(self.uri.clone())
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024)
    }

    /// A channel that connects when it is first used, and again whenever it is used after a failure.
    pub fn channel(&self) -> Channel {
        self.endpoint().connect_lazy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_and_port_may_be_left_out() {
        for (text, full) in [
            ("127.0.0.1", "http://127.0.0.1:9338"),
            ("host:1", "http://host:1"),
            ("http://[::1]:9", "http://[::1]:9"),
            ("http://h", "http://h:9338"),
        ] {
            assert_eq!(text.parse::<Coordinator>().unwrap().to_string(), full);
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        for text in ["", "ftp://x", "http://x/path", "https://x", "http://:9"] {
            assert!(text.parse::<Coordinator>().is_err(), "{text}");
        }
    }
}
