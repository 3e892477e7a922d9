//! A TCP proxy whose connections a test can break.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

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
