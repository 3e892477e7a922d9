//! Places that every user of the host can write to: who can, decides what a node runs.
//!
//! Only the outermost such place on a way is told, since what lies below it is no safer. They are warnings: a file
//! system without modes has nothing else to offer.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use weft_core::ids::SkillKey;

use crate::{
    platform::{self, Identity},
    report::{Problem, Report},
};

/// The exposed places that one load has told of, each with the skill that it was told for.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    told: HashSet<(Identity, Option<SkillKey>)>,
}

impl Exposure {
    /// Looks at a source, of which `canonical` is the resolved path, and at what leads to it. Whether others can
    /// replace all of it.
    pub(crate) fn source(&mut self, root: &Path, canonical: &Path, report: &mut Report) -> bool {
        let Some(place) = outermost(canonical.ancestors()) else { return false };
        // Under the name that the operator gave it, where it is the source itself.
        let shown = if place == canonical { root } else { &place };
        self.tell(&place, shown, None, report);
        true
    }

    /// Looks at what lies between `root` and a file that decides how a skill in `directory` runs, and at the file.
    pub(crate) fn file(
        &mut self,
        file: &Path,
        root: &Path,
        directory: &Path,
        key: &SkillKey,
        report: &mut Report,
    ) {
        if let Some(place) = outermost(file.ancestors().take_while(|place| *place != root)) {
            // A directory that several skills lie in is told of once, not for each of them.
            let shared = place != directory && directory.starts_with(&place);
            self.tell(&place, &place, (!shared).then_some(key), report);
        }
    }

    fn tell(&mut self, place: &Path, shown: &Path, key: Option<&SkillKey>, report: &mut Report) {
        let Ok(metadata) = fs::metadata(place) else { return };
        if self.told.insert((Identity::of(&metadata), key.cloned())) {
            let what = if metadata.is_dir() { "directory" } else { "file" };
            let message = format!(
                "every user of this host can write to this {what}, and so decide what the node runs; chmod o-w it"
            );
            report.warn(shown, key, &Problem::warning("mode", message));
        }
    }
}

/// The outermost exposed place of a way, which is given from its inner end.
fn outermost<'a>(way: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    let exposed = |place: &&Path| fs::metadata(place).is_ok_and(|found| platform::open_to_all(&found));
    way.filter(exposed).last().map(Path::to_owned)
}
