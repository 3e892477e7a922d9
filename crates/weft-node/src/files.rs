//! Files of skills that the coordinator reads for its callers.

use bytes::Bytes;
use weft_core::{
    agents::Agents,
    ids::{AgentId, Digest, SkillKey},
    limits,
};
use weft_proto::{convert, link};
use weft_skills::Inventory;

/// Answers a request. Blocks on the file system.
pub(crate) fn read(inventory: &Inventory, agents: &Agents, request: &link::FileRequest) -> link::FileContent {
    match piece(inventory, agents, request) {
        Ok(content) => content,
        Err(error) => {
            link::FileContent { request_id: request.request_id, error, ..link::FileContent::default() }
        }
    }
}

/// The answer to a request that finds too many others under way.
pub(crate) fn busy(request: &link::FileRequest) -> link::FileContent {
    let error = "too many files are being read there; try again".into();
    link::FileContent { request_id: request.request_id, error, ..link::FileContent::default() }
}

fn piece(
    inventory: &Inventory,
    agents: &Agents,
    request: &link::FileRequest,
) -> Result<link::FileContent, String> {
    let skill = SkillKey::normalise(&request.skill).map_err(|error| error.to_string())?;
    let agent = convert::parse_optional::<AgentId>("agent", &request.agent).map_err(|e| e.to_string())?;
    if !agents.sees(agent.as_ref(), &skill) {
        return Err("the operator of the node does not let the agent see the skill".to_owned());
    }
    let digest = <[u8; 32]>::try_from(&request.digest[..]).map(Digest::from_bytes);
    let digest = digest.map_err(|_| "the request names no digest".to_owned())?;
    let copy = inventory.winners(agent.as_ref(), &skill).find(|copy| copy.digest == digest);
    let copy = copy.ok_or("the files of the skill have changed; look at the catalog again")?;
    let content = copy.read_file(&request.path).map_err(|error| error.to_string())?;
    let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(content.len());
    let to = content.len().min(from.saturating_add(limits::FILE_PIECE));
    Ok(link::FileContent {
        request_id: request.request_id,
        data: Bytes::copy_from_slice(&content[from..to]),
        size: content.len() as u64,
        file_digest: Bytes::copy_from_slice(Digest::of(&content).as_bytes()),
        error: String::new(),
    })
}
