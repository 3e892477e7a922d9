//! A TCP proxy whose connections a test can break, or that breaks them itself at an exact moment.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;

use crate::wait::eventually;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No more bytes to the server; its bytes still come.
    HalfClose,
    /// Closed in both directions.
    Close,
    /// Reset, after the server's system has acknowledged every byte.
    Reset,
}

/// Passes bytes on between its clients and one server.
pub struct Proxy {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Listens on a free port of loopback and connects each client to this server.
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (server, connections) = (server.to_owned(), open.clone());
        // Ends with the process of the test: a listener cannot be woken, and a test is its own process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for stream in [&client, &upstream] {
                    stream.set_nodelay(true).unwrap();
                    connections.lock().unwrap().push(stream.try_clone().unwrap());
                }
                pass(client.try_clone().unwrap(), upstream.try_clone().unwrap());
                pass(upstream, client);
            }
        });
        Self { address, open }
    }

    /// Ends each connection to the server at once when these bytes have gone to it.
    pub fn ending(server: &str, marker: &'static [u8], end: End) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for stream in [&client, &upstream] {
                    stream.set_nodelay(true).unwrap();
                }
                if end != End::Reset {
                    pass(upstream.try_clone().unwrap(), client.try_clone().unwrap());
                    thread::spawn(move || {
                        pass_until(&client, &upstream, marker);
                        let how = if end == End::Close { Shutdown::Both } else { Shutdown::Write };
                        let _ = upstream.shutdown(how);
                        let _ = client.shutdown(Shutdown::Read);
                    });
                } else {
                    // One owner of the socket, so that closing it is what ends it.
                    thread::spawn(move || pass_and_reset(client, upstream, marker));
                }
            }
        });
        Self { address, open: Arc::default() }
    }

    /// Where it listens: HOST:PORT.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Breaks every connection. New ones work. Returns how many there were.
    pub fn cut(&self) -> usize {
        let broken = std::mem::take(&mut *self.open.lock().unwrap());
        for stream in &broken {
            let _ = stream.shutdown(Shutdown::Both);
        }
        broken.len() / 2
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Passes bytes on until these have gone; false when the connection ends before.
fn pass_until(mut from: &TcpStream, mut to: &TcpStream, marker: &[u8]) -> bool {
    let mut seen = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            return false;
        }
        seen.extend_from_slice(&buffer[..read]);
        if seen.windows(marker.len()).any(|window| window == marker) {
            return true;
        }
        // Only what may be the beginning of the marker is kept.
        let kept = seen.len().min(marker.len());
        seen.drain(..seen.len() - kept);
    }
    false
}

fn pass_and_reset(client: TcpStream, upstream: TcpStream, marker: &[u8]) {
    thread::scope(|scope| {
        let back = scope.spawn(|| {
            let (mut from, mut to) = (&upstream, &client);
            let _ = io::copy(&mut from, &mut to);
        });
        if pass_until(&client, &upstream, marker) {
            let port = upstream.local_addr().unwrap().port();
            eventually("every byte to be acknowledged", Duration::from_secs(10), || {
                (unacknowledged(port) == Some(0)).then_some(())
            });
            set_socket_linger(&upstream, Some(Duration::ZERO)).unwrap();
        }
        // The reader of the other direction ends with its client, and lets the socket go.
        let _ = client.shutdown(Shutdown::Both);
        let _ = upstream.shutdown(Shutdown::Read);
        back.join().unwrap();
    });
    drop(upstream);
}

/// How many bytes of the connection from this port the other end's system has not acknowledged.
fn unacknowledged(port: u16) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{port:04X}");
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| {
        row.get(1).is_some_and(|address| address.ends_with(&local))
            // The listening side of the same port is another socket.
            && row.get(3).is_some_and(|state| *state != "0A")
    })?;
    u64::from_str_radix(row.get(4)?.split(':').next()?, 16).ok()
}
