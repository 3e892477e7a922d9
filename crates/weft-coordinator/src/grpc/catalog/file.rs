//! Reading a file of a skill.

use bytes::Bytes;
use tonic::Status;
use weft_core::{
    ids::Digest,
    prompt::{self, parse_location},
    refusal::Refusal,
};
use weft_proto::{
    convert::{self, Malformed},
    v1,
};

use super::{Catalog, malformed, refused, skill_key};

/// The file that every skill has.
const DOCUMENT: &str = "SKILL.md";
/// Longest path, in bytes.
const MAX_PATH: usize = 1024;

impl Catalog {
    pub(super) async fn read_file(
        &self,
        request: v1::ReadSkillFileRequest,
    ) -> Result<v1::ReadSkillFileResponse, Status> {
        let visible = self.visible(&request.agent)?;
        let (key, path) = match parse_location(&request.skill) {
            Some((key, path)) if request.path.is_empty() => (key, path.to_owned()),
            Some(_) => {
                let message = "is given twice: the location in `skill` names a file already";
                return Err(malformed(Malformed::new("path", message)));
            }
            None => (skill_key(&request.skill)?, request.path.clone()),
        };
        let path = if path.is_empty() { DOCUMENT } else { path.as_str() };
        if path.len() > MAX_PATH || parse_location(&prompt::location_of(&key, path)).is_none() {
            let message =
                "must be the plain path of a file below the skill's directory, such as references/x.md";
            return Err(malformed(Malformed::new("path", message)));
        }
        let pinned = convert::parse_optional::<Digest>("digest", &request.digest).map_err(malformed)?;
        let skill = visible.find(&key).map_err(refused)?.clone();
        let variant = match pinned {
            None => skill.shown(),
            Some(pinned) => skill
                .variants
                .iter()
                .find(|variant| variant.digest == pinned)
                .ok_or_else(|| refused(Refusal::DigestMismatch { skill: key.clone(), pinned }))?,
        };
        let content = match path == DOCUMENT {
            // It came with the definition, or was made for a skill without one.
            true => Bytes::from(variant.definition.instructions.clone()),
            false => self.files.read(&self.nodes, variant, visible.agent(), path).await.map_err(refused)?,
        };
        Ok(v1::ReadSkillFileResponse {
            content,
            digest: variant.digest.to_string(),
            location: prompt::location_of(&key, path),
        })
    }
}
