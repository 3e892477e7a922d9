//! The catalog as a stream: everything, or what changed since a bookmark, and then every change.
//!
//! A watch reads the catalog at its own pace. It holds one moment of it, which costs nothing, and tells the way from
//! there to the next; what changed twice meanwhile is told once.

use std::{
    collections::{BTreeSet, VecDeque},
    future::pending,
};

use futures::{Stream, stream};
use prost::Message as _;
use tokio::{sync::watch, time::sleep};
use tonic::Status;
use weft_core::{
    ids::{AgentId, Digest, SkillKey},
    refusal::Refusal,
};
use weft_proto::v1::{self, watch_catalog_response::Message};

use super::{Catalog, refused};
use crate::visible::Visible;

/// Bytes of skills after which a message ends.
const MESSAGE: usize = 128 * 1024;

pub(super) struct Watch {
    service: Catalog,
    /// The moment that is being told.
    visible: Visible,
    revisions: watch::Receiver<u64>,
    include_ineligible: bool,
    /// Names what is watched: a token is of use to the same watch only.
    view: String,
    rest: Rest,
    /// What the client was told in this stream and has not been told to remove.
    told: BTreeSet<SkillKey>,
    /// The client may have more than it was told here.
    resumed: bool,
    control: VecDeque<Message>,
}

/// What of the moment is still to be told.
enum Rest {
    /// Every skill after this key.
    All { after: String },
    /// These keys.
    Keys(VecDeque<SkillKey>),
    /// Nothing; the client has the bookmark.
    Nothing,
}

impl Watch {
    pub(super) fn new(service: Catalog, visible: Visible, request: &v1::WatchCatalogRequest) -> Self {
        let view = view(&visible, request.include_ineligible);
        let changed = since(&service, &visible, &view, &request.resume_token);
        let mut revisions = service.catalog.revisions();
        // It may have moved on since `visible` was taken.
        revisions.mark_changed();
        let resumed = changed.is_some();
        let (rest, control) = match changed {
            Some(keys) => (Rest::Keys(keys.into_iter().collect()), VecDeque::new()),
            None => (Rest::All { after: String::new() }, [Message::Reset(v1::CatalogReset {})].into()),
        };
        Self {
            revisions,
            service,
            visible,
            include_ineligible: request.include_ineligible,
            view,
            rest,
            told: BTreeSet::new(),
            resumed,
            control,
        }
    }

    pub(super) fn stream(self) -> impl Stream<Item = Result<v1::WatchCatalogResponse, Status>> + Send {
        stream::unfold(Some(self), |watch| async {
            let mut watch = watch?;
            match watch.next().await {
                Ok(message) => Some((Ok(v1::WatchCatalogResponse { message: Some(message) }), Some(watch))),
                Err(refusal) => Some((Err(refused(refusal)), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Message, Refusal> {
        loop {
            if let Some(message) = self.control.pop_front() {
                return Ok(message);
            }
            if !matches!(self.rest, Rest::Nothing) {
                let change = self.change();
                if !change.upserted.is_empty() || !change.removed.is_empty() {
                    return Ok(Message::Change(change));
                }
                if self.is_told() {
                    self.rest = Rest::Nothing;
                    return Ok(Message::Bookmark(self.bookmark()));
                }
                continue;
            }
            let heartbeat = self.service.config.timings.watch_heartbeat;
            tokio::select! {
                changed = self.revisions.changed() => match changed {
                    Ok(()) => self.go_on(),
                    // The keeper is gone with the coordinator, which says so by its drain.
                    Err(_) => pending().await,
                },
                () = sleep(heartbeat) => return Ok(Message::Heartbeat(v1::CatalogHeartbeat {})),
                () = self.service.drain.begun() => {
                    return Err(Refusal::StreamMoved { invocation: String::new() });
                }
            }
        }
    }

    /// Turns to the present moment.
    fn go_on(&mut self) {
        let now = Visible::new(self.service.catalog.current(), self.visible.agent().cloned());
        let (old, new) = (self.visible.merged(), now.merged());
        if old.revision() == new.revision() {
            return;
        }
        let same_settings = old.settings_revision() == new.settings_revision();
        let changed = match same_settings {
            true => self.service.catalog.changed_between(old.revision(), new, now.agent()),
            false => None,
        };
        // What is not remembered, or may be seen by others now, is told anew; what the client has and should not is in
        // what it was told.
        let remembered = changed.is_some();
        let keys = changed.unwrap_or_else(|| {
            now.after("").map(|skill| skill.key.clone()).chain(self.told.iter().cloned()).collect()
        });
        if !remembered && self.resumed {
            // Nobody here knows what the client has from before.
            self.control.push_back(Message::Reset(v1::CatalogReset {}));
            (self.resumed, self.rest) = (false, Rest::All { after: String::new() });
            self.told.clear();
        } else {
            self.rest = Rest::Keys(keys.into_iter().collect());
        }
        self.visible = now;
    }

    fn is_told(&self) -> bool {
        match &self.rest {
            Rest::All { after } => self.visible.after(after).next().is_none(),
            Rest::Keys(keys) => keys.is_empty(),
            Rest::Nothing => true,
        }
    }

    /// The next piece of what is to be told; may be empty when a stretch of keys tells the client nothing.
    fn change(&mut self) -> v1::CatalogChange {
        let mut change = v1::CatalogChange::default();
        let mut bytes = 0;
        while bytes < MESSAGE
            && let Some(key) = self.take_key()
        {
            let skill = self.visible.get(&key);
            let shown = skill.filter(|skill| {
                self.include_ineligible || self.visible.is_usable(skill, &self.service.nodes)
            });
            match shown {
                Some(skill) => {
                    let skill = self.service.basic(&self.visible, skill);
                    bytes += skill.encoded_len();
                    change.upserted.push(skill);
                    self.told.insert(key);
                }
                // The name of a skill that the agent may not see is told to it only to take it away.
                None if self.told.remove(&key) || (self.resumed && self.visible.may_name(&key)) => {
                    bytes += key.as_str().len();
                    change.removed.push(key.to_string());
                }
                None => {}
            }
        }
        change
    }

    fn take_key(&mut self) -> Option<SkillKey> {
        match &mut self.rest {
            Rest::All { after } => {
                let key = self.visible.after(after).next()?.key.clone();
                key.as_str().clone_into(after);
                Some(key)
            }
            Rest::Keys(keys) => keys.pop_front(),
            Rest::Nothing => None,
        }
    }

    fn bookmark(&self) -> v1::CatalogBookmark {
        let merged = self.visible.merged();
        let (life, settings, revision) =
            (self.service.catalog.life(), merged.settings_revision(), merged.revision());
        v1::CatalogBookmark {
            resume_token: format!("{life}.{settings}.{}.{revision}", self.view),
            warming: self.service.is_warming(),
        }
    }
}

/// Names an agent's view, without a dot in it.
fn view(visible: &Visible, include_ineligible: bool) -> String {
    let agent = visible.agent().map(AgentId::as_str).unwrap_or_default();
    Digest::of(format!("{include_ineligible} {agent}").as_bytes()).short()
}

/// What changed since a token. `None`: it does not say, or nobody remembers.
fn since(service: &Catalog, visible: &Visible, view: &str, token: &str) -> Option<BTreeSet<SkillKey>> {
    let mut parts = token.split('.');
    let (life, settings) = (parts.next()?, parts.next()?);
    let (viewed, revision) = (parts.next()?, parts.next()?);
    let now = visible.merged();
    let same =
        life == service.catalog.life() && settings.parse() == Ok(now.settings_revision()) && viewed == view;
    let revision = revision.parse().ok().filter(|_| same && parts.next().is_none())?;
    service.catalog.changed_between(revision, now, visible.agent())
}
