//! From what was loaded to what is offered.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use weft_core::{
    advert::{Advert, Row},
    ids::Digest,
};
use weft_proto::convert::encode_definition;
use weft_skills::Inventory;

/// An advert, and the definitions that its rows name.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) advert: Advert,
    pub(crate) definitions: HashMap<Digest, Bytes>,
}

impl Offer {
    /// What an inventory offers.
    pub(crate) fn of(inventory: &Inventory) -> Self {
        let mut definitions = HashMap::new();
        let rows = inventory
            .copies
            .iter()
            .map(|copy| {
                let (bytes, definition) = encode_definition(&copy.definition);
                definitions.insert(definition, bytes);
                Arc::new(Row {
                    scope: copy.scope.clone(),
                    key: copy.definition.key.clone(),
                    layer: copy.layer,
                    path: copy.directory.display().to_string(),
                    digest: copy.digest,
                    partial: copy.partial,
                    definition,
                    verdicts: copy.verdicts.clone(),
                    shadowed_by: copy.shadowed_by.as_ref().map(|path| path.display().to_string()),
                })
            })
            .collect();
        let advert =
            Advert { revision: inventory.revision, rows, diagnostics: inventory.diagnostics.clone() };
        Self { advert, definitions }
    }
}
