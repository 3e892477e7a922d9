//! Identifiers. Each is parsed once, at the edge, and is valid ever after.

use std::{fmt, str::FromStr, sync::Arc};

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Why a string is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidId {
    /// Which kind of identifier was expected.
    pub what: &'static str,
    /// The text as it came, cut to 80 characters.
    pub text: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl InvalidId {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self { what, text: text.chars().take(80).collect(), rule }
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.into())) } else { Err(InvalidId::new($what, text, $rule)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

fn token(text: &str, most: usize) -> bool {
    !text.is_empty()
        && text.len() <= most
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@' | b':'))
}

text_id!(
    /// The identity of a node: random, kept in its state directory. Its name is only a label.
    NodeId, "node id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);
text_id!(
    /// The id of an LLM agent, as its kernel knows it.
    AgentId, "agent id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);
text_id!(
    /// Who calls weft: the authenticated identity that a kernel or a person connects with.
    CallerId, "caller id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);
text_id!(
    /// The caller's own id of a request, which makes a retry attach to the first try instead of running again.
    RequestId, "request id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);
text_id!(
    /// The id of a session: a kernel's hold on what its agent saw at one moment.
    SessionId, "session id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);
text_id!(
    /// The id of a node's journal: as long as it stays the same, the node remembers what it accepted.
    JournalId, "journal id", "1 to 128 of A-Z a-z 0-9 _ - . @ :", |t| token(t, 128)
);

impl SessionId {
    /// A new id that nobody can guess.
    pub fn generate() -> Self {
        Self(format!("s-{}", Uuid::new_v4().simple()).into())
    }
}

/// Longest name that a manifest may give a skill, in bytes: interfaces of models take no longer one.
pub const MAX_SKILL_NAME: usize = 64;
/// Longest key, in bytes. Manifests from before weft know no limit, and a node may be told to take them; what a
/// skill is mostly named after, its directory, cannot have a longer name either.
pub const MAX_SKILL_KEY: usize = 255;

/// The key of a skill: its name lower-cased, with `-`, space and `.` as `_`.
///
/// Allow-lists, calls and catalogs all compare keys, so `docs-search` and `docs_search` are one skill.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkillKey(Arc<str>);

impl SkillKey {
    /// Normalises a name as a person or a manifest writes it.
    ///
    /// # Errors
    /// When the normalised name is not `[a-z0-9_]{1,255}`. Whether a manifest may have more than
    /// [`MAX_SKILL_NAME`] of them is for its node to say.
    pub fn normalise(name: &str) -> Result<Self, InvalidId> {
        let invalid = || {
            InvalidId::new(
                "skill name",
                name,
                "1 to 255 of a-z 0-9 _ after lower-casing and taking '-', ' ' and '.' as '_'",
            )
        };
        // Before anything is copied: the name may come from anybody.
        if name.is_empty() || name.len() > MAX_SKILL_KEY {
            return Err(invalid());
        }
        let key: String = name
            .chars()
            .map(|c| if matches!(c, '-' | ' ' | '.') { '_' } else { c.to_ascii_lowercase() })
            .collect();
        let plain = key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if plain { Ok(Self(key.into())) } else { Err(invalid()) }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SkillKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SkillKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<str> for SkillKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The id of one invocation: a UUIDv7, so ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InvocationId(Uuid);

impl InvocationId {
    /// A new id, later than every id made before it in this process.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id that holds these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl FromStr for InvocationId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| InvalidId::new("invocation id", text, "a UUID as printed by weft"))
    }
}

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A SHA-256: of a skill's files, of a definition, of a result. Printed as `sha256:<hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve hexadecimal digits: enough for a person to compare.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl FromStr for Digest {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let wrong = || InvalidId::new("digest", text, "sha256: and 64 hexadecimal digits");
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.strip_prefix("sha256:").unwrap_or(text), &mut bytes)
            .map_err(|_| wrong())?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}…", self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_however_the_name_is_written() {
        for name in ["docs-search", "Docs Search", "docs.search", "docs_search"] {
            assert_eq!(SkillKey::normalise(name).unwrap().as_str(), "docs_search");
        }
    }

    #[test]
    fn names_that_could_reach_a_path_are_refused() {
        for name in ["", "../x", "a/b", "é"] {
            assert!(SkillKey::normalise(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_key_is_as_long_as_the_name_of_a_directory_and_no_longer() {
        assert_eq!(SkillKey::normalise(&"A".repeat(255)).unwrap().as_str(), "a".repeat(255));
        assert!(SkillKey::normalise(&"a".repeat(256)).is_err());
    }

    #[test]
    fn digests_and_invocation_ids_survive_printing() {
        let digest = Digest::of(b"weft");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        let id = InvocationId::generate();
        assert_eq!(id.to_string().parse::<InvocationId>().unwrap(), id);
    }
}
