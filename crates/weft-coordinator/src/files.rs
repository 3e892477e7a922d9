//! Files of skills, read from the nodes that have them, piece by piece.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use dashmap::DashMap;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};
use weft_core::{
    catalog::Variant,
    ids::{AgentId, Digest, NodeId},
    limits,
    refusal::Refusal,
};
use weft_proto::link::{self, connect_response::Message};

use crate::nodes::{Nodes, Presence};

/// How long a node may take to send a piece.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a file may take, whoever sends it.
const WHOLE: Duration = Duration::from_secs(30);
/// Longest reason of a node that is passed on, in bytes.
const REASON: usize = 300;
/// Providers that are asked one after the other.
const TRIES: usize = 3;

/// Requests that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Files {
    waiting: DashMap<(NodeId, u64), oneshot::Sender<link::FileContent>>,
    last: AtomicU64,
    /// How many more each node takes that is asked now: what is too many for it waits here.
    room: DashMap<NodeId, Arc<Semaphore>>,
}

impl Files {
    /// Reads a file of a variant from one of its providers.
    ///
    /// # Errors
    /// When there is no such file, or no provider is there to read it.
    pub(crate) async fn read(
        &self,
        nodes: &Nodes,
        variant: &Variant,
        agent: Option<&AgentId>,
        path: &str,
    ) -> Result<Bytes, Refusal> {
        let skill = &variant.definition.key;
        let not_found =
            |why: String| Refusal::FileNotFound { skill: skill.clone(), path: path.to_owned(), why };
        match timeout(WHOLE, self.read_from_any(nodes, variant, agent, path)).await {
            Ok(read) => read.map_err(not_found),
            Err(_) => Err(not_found(format!("it did not come within {} s", WHOLE.as_secs()))),
        }
    }

    /// Reads from one provider after the other: one may be busy, behind, or lie.
    async fn read_from_any(
        &self,
        nodes: &Nodes,
        variant: &Variant,
        agent: Option<&AgentId>,
        path: &str,
    ) -> Result<Bytes, String> {
        let mut why = "no node that has its files is connected".to_owned();
        let providers = variant.providers.iter().filter(|(_, provider)| provider.ready);
        for (node, _) in providers.take(TRIES) {
            match self.read_from(nodes, node, variant, agent, path).await {
                Ok(content) => return Ok(content),
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    async fn read_from(
        &self,
        nodes: &Nodes,
        node: &NodeId,
        variant: &Variant,
        agent: Option<&AgentId>,
        path: &str,
    ) -> Result<Bytes, String> {
        let mut content = BytesMut::new();
        let mut whole: Option<Digest> = None;
        loop {
            let request = link::FileRequest {
                request_id: 0,
                skill: variant.definition.key.to_string(),
                digest: Bytes::copy_from_slice(variant.digest.as_bytes()),
                agent: agent.map(ToString::to_string).unwrap_or_default(),
                path: path.to_owned(),
                offset: content.len() as u64,
            };
            let piece = self.ask(nodes, node, request).await?;
            if !piece.error.is_empty() {
                let end = piece.error.floor_char_boundary(REASON);
                return Err(piece.error[..end].to_owned());
            }
            let digest = piece.file_digest.as_ref().try_into().map(Digest::from_bytes);
            let digest = digest.map_err(|_| "its node sent no digest of it".to_owned())?;
            if *whole.get_or_insert(digest) != digest {
                return Err("it changed while it was read".to_owned());
            }
            content.extend_from_slice(&piece.data);
            let (have, size) = (content.len() as u64, piece.size);
            if size > limits::FILE_BYTES || have > size || (piece.data.is_empty() && have < size) {
                return Err("its node sent something else than it said".to_owned());
            }
            if have == size {
                return match Digest::of(&content) == digest {
                    true => Ok(content.freeze()),
                    false => Err("its node sent something else than it said".to_owned()),
                };
            }
        }
    }

    async fn ask(
        &self,
        nodes: &Nodes,
        node: &NodeId,
        request: link::FileRequest,
    ) -> Result<link::FileContent, String> {
        let away = || "its node went away".to_owned();
        let mut turn = Turn { files: self, node, permit: None };
        turn.take().await;
        let view = nodes.view(node).filter(|view| view.presence == Presence::Connected).ok_or_else(away)?;
        let request_id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        self.waiting.insert((node.clone(), request_id), sender);
        let _forget = Forget(self, (node.clone(), request_id));
        if !nodes.send(node, view.epoch, Message::FileRequest(link::FileRequest { request_id, ..request })) {
            return Err(away());
        }
        match timeout(PATIENCE, answer).await {
            Ok(Ok(content)) => Ok(content),
            Ok(Err(_)) => Err(away()),
            Err(_) => Err(format!("its node did not answer within {} s", PATIENCE.as_secs())),
        }
    }

    /// Takes what a node sent. An answer to nothing is dropped.
    pub(crate) fn answer(&self, node: &NodeId, content: link::FileContent) {
        if let Some((_, sender)) = self.waiting.remove(&(node.clone(), content.request_id)) {
            let _ = sender.send(content);
        }
    }
}

/// Forgets a request when nobody waits for its answer any more.
struct Forget<'a>(&'a Files, (NodeId, u64));

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.waiting.remove(&self.1);
    }
}

/// A request's room on a node. Nothing is left of it when the last one is over.
struct Turn<'a> {
    files: &'a Files,
    node: &'a NodeId,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn<'_> {
    /// Waits for it.
    async fn take(&mut self) {
        let fresh = || Arc::new(Semaphore::new(limits::FILES_AT_ONCE));
        let room = self.files.room.entry(self.node.clone()).or_insert_with(fresh).clone();
        // Never closed.
        self.permit = room.acquire_owned().await.ok();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        self.files.room.remove_if(self.node, |_, room| Arc::strong_count(room) == 1);
    }
}
