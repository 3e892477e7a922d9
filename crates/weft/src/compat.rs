//! The option that has manifests of older systems read more leniently.

use clap::{Args, ValueEnum};
use weft_skills::Compat;

/// How manifests are read.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompatOptions {
    /// Take manifests that were valid before weft; may be given several times
    #[arg(long, env = "WEFT_COMPAT", value_enum, value_delimiter = ',')]
    compat: Vec<Leniency>,
}

/// A rule for manifests that is stricter than it was before weft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Leniency {
    /// A time-out out of range is brought into it
    ClampTimeouts,
    /// A description of white space is a description
    BlankDescriptions,
    /// A name may have up to 255 characters
    LongNames,
    /// Of a member that comes twice the last counts, of a class the highest; the case of its name does not
    LooseMembers,
}

impl CompatOptions {
    /// The switches as the loader takes them.
    pub(crate) fn switches(&self) -> Compat {
        let on = |leniency| self.compat.contains(&leniency);
        Compat {
            clamp_timeouts: on(Leniency::ClampTimeouts),
            blank_descriptions: on(Leniency::BlankDescriptions),
            long_names: on(Leniency::LongNames),
            loose_members: on(Leniency::LooseMembers),
        }
    }
}
