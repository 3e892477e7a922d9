//! What was found while a file is checked.

use crate::{
    finding::{Error, Finding, Parsed},
    table::Place,
};

/// Most problems that are listed of one file; nobody reads more.
const LISTED: usize = 100;

/// Collects what is wrong and what is odd in one file.
#[derive(Debug, Default)]
pub(crate) struct Check {
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    unlisted: usize,
    strangers: usize,
    /// The path of every key that was looked for, and whether it was there.
    #[cfg(test)]
    pub(crate) asked: Vec<(String, bool)>,
}

impl Check {
    /// Notes that the file cannot be taken.
    pub(crate) fn problem(&mut self, place: &Place<'_>, message: impl Into<String>) {
        if self.problems.len() < LISTED {
            self.problems.push(place.finding(message));
        } else {
            self.unlisted += 1;
        }
    }

    /// Notes that nothing known is like a key.
    pub(crate) fn stranger(&mut self, place: &Place<'_>, message: String) {
        self.strangers += 1;
        self.problem(place, message);
    }

    /// Notes that something works, but hardly as meant.
    pub(crate) fn warn(&mut self, place: &Place<'_>, message: impl Into<String>) {
        if self.warnings.len() < LISTED {
            self.warnings.push(place.finding(message));
        }
    }

    /// What the file says, unless something is wrong with it.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<Parsed<T>, Error> {
        if self.problems.is_empty() {
            return Ok(Parsed { value, warnings: self.warnings });
        }
        if self.unlisted > 0 {
            self.problems.push(Finding::whole(format!("and {} more problems", self.unlisted)));
        }
        Err(Error { file: None, problems: self.problems, missing: false, strangers: self.strangers })
    }
}
