//! What the fleet offered, kept on disk for the next life: after a restart known skills are listed, and calls of them
//! wait for their nodes.
//!
//! The file is a memory and not a truth: what cannot be read is left aside with a warning, and what a node says when it
//! is back replaces what was kept of it.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use tokio::time::sleep;
use weft_core::{
    advert::{Advert, Row, Scope},
    ids::{AgentId, NodeId, SkillKey},
    node::SANDBOX,
    skill::Class,
};
use weft_daemon::{Drain, Exclusive};
use weft_proto::{
    LINK_VERSIONS,
    convert::{self, Malformed, encode_definition},
    link, state, v1,
};

use crate::{
    catalog::{Keeper, Kept},
    links,
    nodes::{Nodes, View},
};

/// The file's name in the state directory.
const FILE: &str = "catalog";
/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Shortest time between two writes.
const PAUSE: Duration = Duration::from_secs(2);

/// The file, in a directory that this process alone uses.
#[derive(Debug)]
pub(crate) struct Saved {
    directory: Exclusive,
}

impl Saved {
    pub(crate) fn new(directory: Exclusive) -> Self {
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(FILE)
    }

    /// Takes up what the last life kept: its nodes count as on their way. Blocks on the file system.
    pub(crate) fn restore(&self, nodes: &Nodes, catalog: &Keeper) {
        let path = self.path();
        match read(&path) {
            Ok(None) => {}
            Ok(Some(saved)) => {
                let awaited = take_up(saved, nodes, catalog);
                tracing::info!(
                    nodes = awaited,
                    "the catalog of the last life is listed until its nodes are back"
                );
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "ignoring what the last life kept; it is overwritten");
            }
        }
    }

    /// Keeps the file current until the drain has ended, and writes it once more then.
    pub(crate) async fn keep(self, nodes: Arc<Nodes>, catalog: Arc<Keeper>, drain: Drain) {
        let saved = Arc::new(self);
        let mut told = catalog.told();
        loop {
            let last = tokio::select! {
                changed = told.changed() => changed.is_err(),
                () = drain.stopped() => true,
            };
            let (writer, nodes, catalog) = (saved.clone(), nodes.clone(), catalog.clone());
            let written = tokio::task::spawn_blocking(move || writer.write(&nodes, &catalog)).await;
            if let Ok(Err(error)) = written {
                tracing::error!(path = %saved.path().display(), %error, "cannot keep the catalog for the next life");
            }
            if last {
                return;
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = drain.stopped() => {}
            }
        }
    }

    /// Writes the file anew, whole or not at all.
    fn write(&self, nodes: &Nodes, catalog: &Keeper) -> io::Result<()> {
        let message = message(&catalog.kept(), nodes);
        let mut file = tempfile::NamedTempFile::new_in(self.directory.path())?;
        file.write_all(&message.encode_to_vec())?;
        file.as_file().sync_data()?;
        file.persist(self.path())?;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Option<state::SavedCatalog>> {
    let size = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if size > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {MAX_BYTES} bytes"),
        ));
    }
    let bytes = Bytes::from(fs::read(path)?);
    state::SavedCatalog::decode(bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn message(kept: &Kept, nodes: &Nodes) -> state::SavedCatalog {
    let mut message = state::SavedCatalog::default();
    let mut places: HashMap<*const Row, u32> = HashMap::new();
    for (node, advert) in &kept.adverts {
        let Some(view) = nodes.view(node) else { continue };
        let rows = advert.rows.iter().map(|row| {
            *places.entry(Arc::as_ptr(row)).or_insert_with(|| {
                message.rows.push((&**row).into());
                u32::try_from(message.rows.len() - 1).unwrap_or(u32::MAX)
            })
        });
        let rows = rows.collect();
        message.nodes.push(state::SavedNode {
            hello: Some(hello(&view)),
            revision: advert.revision,
            rows,
            diagnostics: advert.diagnostics.iter().map(Into::into).collect(),
        });
    }
    message.definitions = kept.definitions.iter().map(|definition| encode_definition(definition).0).collect();
    message.accepted = kept
        .accepted
        .iter()
        .map(|((scope, key), class)| state::AcceptedClass {
            agent: match scope {
                Scope::All => String::new(),
                Scope::Agent(agent) => agent.to_string(),
            },
            key: key.to_string(),
            class: v1::SkillClass::from(*class).into(),
        })
        .collect();
    message
}

fn hello(view: &View) -> link::Hello {
    let node = &view.node;
    link::Hello {
        protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
        features: if node.sandbox { vec![SANDBOX.to_owned()] } else { vec![] },
        node_id: node.id.to_string(),
        name: node.name.clone(),
        os: node.os.clone(),
        arch: node.arch.clone(),
        version: node.version.clone(),
        labels: node.labels.clone().into_iter().collect(),
        journal_id: view.journal.to_string(),
        slots: node.slots,
        queue: view.capacity.saturating_sub(node.slots),
        previous_epoch: view.epoch,
        ..link::Hello::default()
    }
}

/// Puts what was kept in place. Returns how many nodes are on their way.
fn take_up(saved: state::SavedCatalog, nodes: &Nodes, catalog: &Keeper) -> usize {
    for class in &saved.accepted {
        if let Ok((place, class)) = accepted(class) {
            catalog.accept(place, class);
        }
    }
    let rows: Vec<Option<Arc<Row>>> =
        saved.rows.into_iter().map(|row| row.try_into().map(Arc::new).ok()).collect();
    let mut awaited = 0;
    for node in saved.nodes {
        let Some(Ok((arrival, _))) = node.hello.map(links::read_hello) else { continue };
        let (id, labels): (NodeId, _) = (arrival.node.id.clone(), arrival.node.labels.clone());
        let row = |at: &u32| rows.get(usize::try_from(*at).ok()?)?.clone();
        let advert = Advert {
            revision: node.revision,
            rows: node.rows.iter().filter_map(row).collect(),
            diagnostics: node.diagnostics.into_iter().map(Into::into).collect(),
        };
        nodes.expect(arrival);
        catalog.expect(&id, &labels, advert);
        awaited += 1;
    }
    for definition in saved.definitions {
        catalog.remember(&definition);
    }
    awaited
}

fn accepted(class: &state::AcceptedClass) -> Result<((Scope, SkillKey), Class), Malformed> {
    let agent = convert::parse_optional::<AgentId>("agent", &class.agent)?;
    let key = SkillKey::normalise(&class.key).map_err(|error| Malformed::new("key", error))?;
    Ok(((agent.map_or(Scope::All, Scope::Agent), key), convert::class(class.class)))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use weft_core::{
        ids::Digest,
        node::Labels,
        skill::{Definition, Kind, Layer},
    };

    use super::*;
    use crate::settings::Settings;

    fn fleet() -> (Nodes, Keeper) {
        (Nodes::new(), Keeper::new(Settings::default()))
    }

    #[test]
    fn the_next_life_lists_what_the_last_one_did_and_keeps_its_classes() {
        let dir = tempfile::tempdir().unwrap();
        let saved = Saved::new(Exclusive::take(dir.path()).unwrap());
        let (nodes, catalog) = fleet();
        saved.restore(&nodes, &catalog);
        let key = SkillKey::normalise("a").unwrap();
        let definition =
            Definition { class: Class::Dangerous, ..Definition::new(key.clone(), Kind::Executable) };
        let (bytes, digest) = encode_definition(&definition);
        let row = Row {
            scope: Scope::All,
            key: key.clone(),
            layer: Layer::Managed,
            path: "/skills/a".into(),
            digest: Digest::of(b"files"),
            partial: false,
            definition: digest,
            verdicts: vec![],
            shadowed_by: None,
        };
        for name in ["n1", "n2"] {
            let hello = link::Hello {
                protocol: Some(link::ProtocolVersions { current: LINK_VERSIONS.0, oldest: LINK_VERSIONS.1 }),
                node_id: name.into(),
                journal_id: "j".into(),
                slots: 4,
                queue: 8,
                ..link::Hello::default()
            };
            let id: NodeId = name.parse().unwrap();
            nodes.expect(links::read_hello(hello).unwrap().0);
            catalog.expect(
                &id,
                &Labels::new(),
                Advert { revision: 3, rows: vec![row.clone().into()], ..Advert::default() },
            );
        }
        catalog.remember(&bytes);
        catalog.merge_all();
        assert_eq!(catalog.current().len(), 1);
        saved.write(&nodes, &catalog).unwrap();

        let (nodes, catalog) = fleet();
        saved.restore(&nodes, &catalog);
        catalog.merge_all();
        let merged = catalog.current();
        let skill = merged.find(None, &key).unwrap();
        assert_eq!((skill.shown().ready, skill.shown().digest), (2, Digest::of(b"files")));
        assert!(nodes.awaits_any());
        let view = nodes.view(&"n1".parse().unwrap()).unwrap();
        assert_eq!((view.capacity, view.journal.as_str()), (12, "j"));
        assert!(catalog.overdue_at(Instant::now()).is_empty(), "nothing is missing");
        // A class that a node lowered meanwhile is lowered for nobody.
        let (_, tame) = encode_definition(&Definition { class: Class::Safe, ..definition });
        let mut lowered = skill.shown().clone();
        lowered.definition_digest = tame;
        assert_eq!(merged.class_of(skill, &lowered), Class::Dangerous);
    }

    #[test]
    fn a_damaged_file_is_ignored_and_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let saved = Saved::new(Exclusive::take(dir.path()).unwrap());
        fs::write(saved.path(), b"\xff\xff not a catalog").unwrap();
        let (nodes, catalog) = fleet();
        saved.restore(&nodes, &catalog);
        assert!(catalog.current().is_empty() && !nodes.awaits_any());
        saved.write(&nodes, &catalog).unwrap();
        assert_eq!(read(&saved.path()).unwrap(), Some(state::SavedCatalog::default()));
    }
}
