//! Names of skills as values of a label: not more than a scraper can stand.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use opentelemetry::StringValue;
use weft_core::ids::SkillKey;

/// Most skills that are told apart. A fleet that has more in one process's lifetime is rare, or under attack.
const MOST: usize = 2000;

/// The skills that have a value of their own.
#[derive(Debug, Default)]
pub(super) struct Skills {
    known: RwLock<HashSet<Arc<str>>>,
}

impl Skills {
    /// The value for a skill: its key, or `other`.
    pub(super) fn label(&self, skill: &SkillKey) -> StringValue {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(skill.as_str()) {
            return known.clone().into();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            return "other".into();
        }
        let label: Arc<str> = skill.as_str().into();
        known.insert(label.clone());
        label.into()
    }
}
