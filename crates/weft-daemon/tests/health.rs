//! The health port, over real connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout},
};
use weft_daemon::{Drain, Health, Readiness};

struct Running {
    address: SocketAddr,
    readiness: Readiness,
    drain: Drain,
    served: JoinSet<()>,
}

async fn start() -> Running {
    let health = Health::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let (address, drain) = (health.address().unwrap(), Drain::new());
    let readiness = Readiness::new(drain.clone());
    let mut served = JoinSet::new();
    served.spawn(health.run(readiness.clone(), || "figures 1\n".into(), drain.clone()));
    Running { address, readiness, drain, served }
}

/// The whole answer, head and body.
async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn it_answers_what_is_asked_and_nothing_else() {
    let Running { address, served: _served, .. } = start().await;
    let answer = ask(address, "GET /healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200") && body(&answer) == "ok\n", "{answer}");
    let answer = ask(address, "GET /metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert_eq!(body(&answer), "figures 1\n");
    assert!(ask(address, "HEAD /metrics").await.starts_with("HTTP/1.1 200"));
    assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
    assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn readiness_names_what_is_missing_and_ends_with_the_drain() {
    let Running { address, readiness, drain, mut served } = start().await;
    let catalog = readiness.waits_for("catalog");
    let answer = ask(address, "GET /readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503") && body(&answer) == "catalog\n", "{answer}");
    drop(catalog);
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 200"));
    drain.begin();
    assert_eq!(body(&ask(address, "GET /readyz").await), "draining\n");
    assert!(ask(address, "GET /healthz").await.starts_with("HTTP/1.1 200"));
    // Somebody who says nothing does not hold up the end.
    let _silent = TcpStream::connect(address).await.unwrap();
    drain.stop();
    timeout(Duration::from_secs(5), served.join_next()).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_crowd_that_says_nothing_is_left_and_others_get_their_turn() {
    let Running { address, served: _served, .. } = start().await;
    let mut crowd = Vec::new();
    for _ in 0..40 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    let begun = Instant::now();
    assert_eq!(body(&ask(address, "GET /healthz").await), "ok\n");
    assert!(begun.elapsed() >= Duration::from_secs(5), "the crowd was not in the way");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_named() {
    let Running { address, served: _served, .. } = start().await;
    let error = Health::bind(address).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}
