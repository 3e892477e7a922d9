//! Refusals as gRPC statuses, and back.
//!
//! Every status of ours carries one `google.rpc.ErrorInfo` with the domain `weft` and a stable reason, and the
//! detail that fits it. Details travel in trailers, which proxies bound, so they are cut to a few kilobytes.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};
use weft_core::refusal::{Obstacle, Refusal};

use crate::convert::Malformed;

/// The domain of every reason of ours.
pub const DOMAIN: &str = "weft";

/// Most violations in the details of one status.
const MAX_VIOLATIONS: usize = 16;
/// Longest message, in bytes: it travels percent-encoded in a header.
const MAX_MESSAGE: usize = 1500;
/// Longest text of one violation, in bytes.
const MAX_VIOLATION_TEXT: usize = 300;
/// Longest name of a node in the details, in bytes.
const MAX_NODE_NAME: usize = 64;

/// The status that a caller sees for a refusal.
pub fn from_refusal(refusal: &Refusal) -> Status {
    let mut details = ErrorDetails::new();
    let mut metadata = HashMap::new();
    let code = match refusal {
        Refusal::SkillNotFound { skill } => {
            metadata.insert("skill".into(), skill.clone());
            Code::NotFound
        }
        Refusal::SkillInvalid { skill, diagnostics } => {
            metadata.insert("skill".into(), skill.to_string());
            details.set_precondition_failure(
                diagnostics
                    .iter()
                    .take(MAX_VIOLATIONS)
                    .map(|(node, d)| violation(&d.rule, node.as_str(), &d.to_string()))
                    .collect::<Vec<_>>(),
            );
            Code::FailedPrecondition
        }
        Refusal::SkillNotExecutable { skill } | Refusal::SchemaConflict { skill } => {
            metadata.insert("skill".into(), skill.to_string());
            Code::FailedPrecondition
        }
        Refusal::ArgsInvalid { skill, violations } => {
            metadata.insert("skill".into(), skill.to_string());
            details.set_bad_request(
                violations
                    .iter()
                    .take(MAX_VIOLATIONS)
                    .map(|violation| FieldViolation::new(cut(&violation.pointer), cut(&violation.message)))
                    .collect::<Vec<_>>(),
            );
            Code::InvalidArgument
        }
        Refusal::RequestInvalid { field, message } => {
            details.set_bad_request(vec![FieldViolation::new(field.as_str(), cut(message))]);
            Code::InvalidArgument
        }
        Refusal::NoEligibleNode { skill, obstacles } => {
            metadata.insert("skill".into(), skill.to_string());
            metadata.extend(names(obstacles));
            details.set_precondition_failure(violations(obstacles));
            Code::FailedPrecondition
        }
        Refusal::DigestMismatch { skill, pinned } => {
            metadata.insert("skill".into(), skill.to_string());
            metadata.insert("digest".into(), pinned.to_string());
            Code::FailedPrecondition
        }
        Refusal::ProtocolSkew { theirs, ours } => {
            metadata.insert("theirs".into(), theirs.clone());
            metadata.insert("ours".into(), ours.clone());
            Code::FailedPrecondition
        }
        Refusal::PolicyDenied { skill, class, .. } => {
            metadata.insert("skill".into(), skill.to_string());
            metadata.insert("class".into(), class.to_string());
            Code::PermissionDenied
        }
        Refusal::NodeOffline { skill, obstacles } => {
            metadata.insert("skill".into(), skill.to_string());
            metadata.extend(names(obstacles));
            details.set_precondition_failure(violations(obstacles));
            Code::Unavailable
        }
        Refusal::QueueFull { skill, retry_after } => {
            metadata.insert("skill".into(), skill.to_string());
            details.set_retry_info(Some(*retry_after));
            Code::ResourceExhausted
        }
        Refusal::Quota { retry_after, .. } => {
            details.set_retry_info(Some(*retry_after));
            Code::ResourceExhausted
        }
        Refusal::RequestIdReused { request_id } => {
            metadata.insert("request_id".into(), request_id.clone());
            Code::AlreadyExists
        }
        Refusal::WatchExpired { last, .. } => {
            metadata.insert("last_sequence".into(), last.to_string());
            Code::OutOfRange
        }
        Refusal::Draining => Code::Unavailable,
        Refusal::StreamMoved { invocation } => {
            metadata.insert("invocation_id".into(), invocation.clone());
            Code::Aborted
        }
        Refusal::InvocationNotFound { invocation } => {
            metadata.insert("invocation_id".into(), invocation.clone());
            Code::NotFound
        }
        Refusal::SessionNotFound { session } => {
            metadata.insert("session_id".into(), session.clone());
            Code::NotFound
        }
        Refusal::FileNotFound { skill, path, .. } => {
            metadata.insert("skill".into(), skill.to_string());
            metadata.insert("path".into(), path.clone());
            Code::NotFound
        }
        Refusal::NodeAmbiguous { node, .. } => {
            metadata.insert("node".into(), node.clone());
            Code::FailedPrecondition
        }
        Refusal::NodeNotFound { node } => {
            metadata.insert("node".into(), node.clone());
            Code::NotFound
        }
        Refusal::Internal(_) => Code::Internal,
    };
    for value in metadata.values_mut() {
        *value = cut(value);
    }
    details.set_error_info(refusal.reason(), DOMAIN, metadata);
    Status::with_error_details(code, cut_to(&refusal.to_string(), MAX_MESSAGE), details)
}

/// The status for a request that does not keep the rules of the protocol.
pub fn from_malformed(malformed: &Malformed) -> Status {
    from_refusal(&Refusal::RequestInvalid {
        field: malformed.field.into(),
        message: malformed.message.clone(),
    })
}

fn violations(obstacles: &[Obstacle]) -> Vec<PreconditionViolation> {
    obstacles
        .iter()
        .take(MAX_VIOLATIONS)
        .map(|obstacle| violation(&obstacle.kind, obstacle.node.as_str(), &obstacle.reason))
        .collect()
}

/// What people call the nodes that the violations name by id.
fn names(obstacles: &[Obstacle]) -> impl Iterator<Item = (String, String)> {
    let named = obstacles.iter().take(MAX_VIOLATIONS).filter(|obstacle| !obstacle.name.is_empty());
    named.map(|obstacle| (name_key(obstacle.node.as_str()), cut_to(&obstacle.name, MAX_NODE_NAME)))
}

/// Where the metadata have the name of a node.
fn name_key(node: &str) -> String {
    format!("node-{node}")
}

fn violation(kind: &str, subject: &str, description: &str) -> PreconditionViolation {
    PreconditionViolation::new(cut(kind), cut(subject), cut(description))
}

fn cut(text: &str) -> String {
    cut_to(text, MAX_VIOLATION_TEXT)
}

fn cut_to(text: &str, most: usize) -> String {
    match text.floor_char_boundary(most) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// A status as a caller reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code.
    pub code: Code,
    /// The stable reason; empty when the status is not one of ours.
    pub reason: String,
    /// In words.
    pub message: String,
    /// What the reason is about.
    pub metadata: HashMap<String, String>,
    /// Field and message of each violation of the request.
    pub fields: Vec<(String, String)>,
    /// Kind, subject (a node) and description of each precondition that failed.
    pub preconditions: Vec<(String, String, String)>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// What people call a node that a precondition has as its subject: its name, or its id where none came.
    pub fn name_of<'a>(&'a self, node: &'a str) -> &'a str {
        self.metadata.get(&name_key(node)).map_or(node, |name| name)
    }
}

/// Reads a status. An expired deadline, which the transport reports as cancelled, gets its own code.
pub fn read(status: &Status) -> Refused {
    let details = status.get_error_details();
    let info = details.error_info().filter(|info| info.domain == DOMAIN);
    let code = match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => Code::DeadlineExceeded,
        code => code,
    };
    Refused {
        code,
        reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
        message: status.message().to_owned(),
        metadata: info.map(|info| info.metadata.clone()).unwrap_or_default(),
        fields: details
            .bad_request()
            .map(|bad| {
                bad.field_violations.iter().map(|v| (v.field.clone(), v.description.clone())).collect()
            })
            .unwrap_or_default(),
        preconditions: details
            .precondition_failure()
            .map(|failure| {
                failure
                    .violations
                    .iter()
                    .map(|v| (v.r#type.clone(), v.subject.clone(), v.description.clone()))
                    .collect()
            })
            .unwrap_or_default(),
        retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
    }
}

#[cfg(test)]
mod tests {
    use weft_core::{
        ids::{Digest, SkillKey},
        schema::Violation,
        skill::{Class, Diagnostic, Severity},
    };

    use super::*;

    fn every_refusal() -> Vec<Refusal> {
        let skill = SkillKey::normalise("disk_usage").unwrap();
        let obstacles = vec![Obstacle {
            node: "n1".parse().unwrap(),
            name: "web-1".into(),
            kind: "requires.bins".into(),
            reason: "df is not in the skill PATH".into(),
        }];
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            path: "/skills/x/skill.json".into(),
            line: Some(3),
            rule: "class".into(),
            message: "class \"SAFE\" is not one of safe, mutating, dangerous".into(),
            key: Some(skill.clone()),
            scope: weft_core::advert::Scope::All,
        };
        vec![
            Refusal::SkillNotFound { skill: "no_such".into() },
            Refusal::SkillInvalid {
                skill: skill.clone(),
                diagnostics: vec![("n1".parse().unwrap(), diagnostic)],
            },
            Refusal::SkillNotExecutable { skill: skill.clone() },
            Refusal::ArgsInvalid {
                skill: skill.clone(),
                violations: vec![Violation {
                    pointer: "/path".into(),
                    message: "value is not a string".into(),
                }],
            },
            Refusal::RequestInvalid { field: "request_id".into(), message: "is required".into() },
            Refusal::NoEligibleNode { skill: skill.clone(), obstacles: obstacles.clone() },
            Refusal::DigestMismatch { skill: skill.clone(), pinned: Digest::of(b"x") },
            Refusal::SchemaConflict { skill: skill.clone() },
            Refusal::ProtocolSkew { theirs: "9 to 9".into(), ours: "1 to 1".into() },
            Refusal::PolicyDenied { skill: skill.clone(), class: Class::Dangerous, reason: "no".into() },
            Refusal::NodeOffline { skill: skill.clone(), obstacles },
            Refusal::QueueFull { skill: skill.clone(), retry_after: Duration::from_secs(2) },
            Refusal::Quota { what: "the event log is full".into(), retry_after: Duration::from_secs(5) },
            Refusal::RequestIdReused { request_id: "r-1".into() },
            Refusal::WatchExpired { after: 9, last: 4, why: "there are 4 events; watch from 0".into() },
            Refusal::Draining,
            Refusal::StreamMoved { invocation: "i-1".into() },
            Refusal::InvocationNotFound { invocation: "i-1".into() },
            Refusal::SessionNotFound { session: "s-1".into() },
            Refusal::FileNotFound {
                skill: skill.clone(),
                path: "references/x.md".into(),
                why: "there is none".into(),
            },
            Refusal::NodeAmbiguous { node: "web-1".into(), ids: vec!["n1".into(), "n2".into()] },
            Refusal::NodeNotFound { node: "web-9".into() },
            Refusal::Internal("a bug".into()),
        ]
    }

    /// Programs match code, reason and details: a change here is a change of the contract.
    #[test]
    fn every_refusal_has_its_golden_status() {
        let seen: String = every_refusal()
            .iter()
            .map(|refusal| {
                let read = read(&from_refusal(refusal));
                let mut metadata: Vec<_> = read.metadata.into_iter().collect();
                metadata.sort();
                format!(
                    "{} {:?}\n  {}\n  metadata {metadata:?} fields {:?}\n  preconditions {:?} retry {:?}\n",
                    read.reason, read.code, read.message, read.fields, read.preconditions, read.retry_after
                )
            })
            .collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/status.golden");
        if std::env::var_os("WEFT_BLESS").is_some() {
            std::fs::write(path, &seen).unwrap();
        }
        assert_eq!(seen, std::fs::read_to_string(path).unwrap(), "set WEFT_BLESS=1 to accept\n{seen}");
    }

    #[test]
    fn nodes_in_the_way_have_their_names_and_their_ids_where_they_have_none() {
        let obstacle = |node: &str, name: &str| Obstacle {
            node: node.parse().unwrap(),
            name: name.into(),
            kind: "os".into(),
            reason: "r".into(),
        };
        let skill = SkillKey::normalise("a").unwrap();
        let obstacles = vec![obstacle("n1", "web-1"), obstacle("n2", "")];
        let refused = read(&from_refusal(&Refusal::NoEligibleNode { skill, obstacles }));
        let named: Vec<_> = refused.preconditions.iter().map(|(_, node, _)| refused.name_of(node)).collect();
        assert_eq!(named, ["web-1", "n2"]);
    }

    #[test]
    fn an_expired_deadline_is_not_a_cancel() {
        assert_eq!(read(&Status::cancelled("Timeout expired")).code, Code::DeadlineExceeded);
        assert_eq!(read(&Status::cancelled("bye")).code, Code::Cancelled);
    }

    #[test]
    fn details_stay_small_however_many_nodes_there_are() {
        let obstacles = (0..10_000)
            .map(|n| Obstacle {
                node: format!("n{n}").parse().unwrap(),
                name: "x".repeat(100),
                kind: "os".into(),
                reason: "y".repeat(5000),
            })
            .collect();
        let skill = SkillKey::normalise("a").unwrap();
        let status = from_refusal(&Refusal::NoEligibleNode { skill, obstacles });
        assert!(
            status.message().len() <= 1503 && status.details().len() < 8 * 1024,
            "{}",
            status.details().len()
        );
    }
}
