//! The option that has manifests of older systems read more leniently.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum, builder::PossibleValue};
use weft_config::Leniency;
use weft_skills::Compat;

/// How manifests are read.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompatOptions {
    /// Take manifests that were valid before weft; may be given several times
    #[arg(long, env = "WEFT_COMPAT", value_enum, value_delimiter = ',')]
    compat: Vec<Word>,
}

/// A rule for manifests that is stricter than it was before weft, as a word of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(Leniency);

impl ValueEnum for Word {
    fn value_variants<'a>() -> &'a [Self] {
        const WORDS: [Word; Leniency::ALL.len()] = {
            let mut words = [Word(Leniency::ALL[0]); Leniency::ALL.len()];
            let mut at = 0;
            while at < words.len() {
                words[at] = Word(Leniency::ALL[at]);
                at += 1;
            }
            words
        };
        &WORDS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Leniency::ClampTimeouts => "A time-out out of range is brought into it",
            Leniency::BlankDescriptions => "A description of white space is a description",
            Leniency::LongNames => "A name may have up to 255 characters",
            Leniency::LooseMembers => {
                "Of a member that comes twice the last counts, of a class the highest; the case of its name does not"
            }
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

impl CompatOptions {
    /// The switches as the loader takes them.
    pub(crate) fn switches(&self) -> Compat {
        union(Compat::default(), &self.compat.iter().map(|word| word.0).collect())
    }
}

/// The switches with those that are named switched on.
pub(crate) fn union(switches: Compat, named: &BTreeSet<Leniency>) -> Compat {
    let on = |leniency| named.contains(&leniency);
    Compat {
        clamp_timeouts: switches.clamp_timeouts || on(Leniency::ClampTimeouts),
        blank_descriptions: switches.blank_descriptions || on(Leniency::BlankDescriptions),
        long_names: switches.long_names || on(Leniency::LongNames),
        loose_members: switches.loose_members || on(Leniency::LooseMembers),
    }
}
