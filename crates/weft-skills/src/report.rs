//! What the loader says: one log line a manifest when its outcome changes, and diagnostics each time.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use weft_core::{
    advert::Scope,
    ids::SkillKey,
    skill::{Diagnostic, Severity},
    text,
};

/// Most diagnostics that one load hands on.
pub(crate) const MAX_DIAGNOSTICS: usize = 1000;
/// Longest piece of untrusted text in a message, in characters.
const SHOWN: usize = 120;
/// Longest message, in characters.
const MESSAGE: usize = 600;
/// Longest path in a message, in characters.
const PATH: usize = 1024;

/// Untrusted text as it may stand in a message: escaped and cut.
pub(crate) fn shown(value: &str) -> String {
    cut(&text::escape(value.as_bytes()), SHOWN)
}

/// A path as it may stand in a message.
pub(crate) fn shown_path(path: &Path) -> String {
    cut(&text::escape(path.as_os_str().as_encoded_bytes()), PATH)
}

fn cut(value: &str, most: usize) -> String {
    match value.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// Something wrong with a file, before it is known which one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) rule: &'static str,
    pub(crate) line: Option<u32>,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn error(rule: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, rule, line: None, message: message.into() }
    }

    pub(crate) fn warning(rule: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, rule, line: None, message: message.into() }
    }

    pub(crate) fn at(mut self, line: impl TryInto<u32>) -> Self {
        self.line = line.try_into().ok().filter(|line| *line > 0);
        self
    }
}

/// The problems of one file in one line.
pub(crate) fn in_one_line(problems: &[Problem]) -> String {
    let mut out = String::new();
    for problem in problems {
        if !out.is_empty() {
            out.push_str("; ");
        }
        if let Some(line) = problem.line {
            let _ = write!(out, "line {line}: ");
        }
        out.push_str(&problem.message);
    }
    cut(&text::escape(out.as_bytes()), MESSAGE)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
}

/// Collects the diagnostics of one load and remembers what was logged in earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The last lines and their marks, for each path and topic. There is more than one line where a copy wins for one
    /// agent and not for another.
    said: HashMap<(PathBuf, String), Vec<(String, String)>>,
    saying: HashMap<(PathBuf, String), Vec<(String, String)>>,
    diagnostics: Vec<Diagnostic>,
    /// Whom concerns what is told now; everybody unless something is said.
    scope: Scope,
}

impl Report {
    /// What is told from now on is about files of this scope.
    pub(crate) fn turn_to(&mut self, scope: &Scope) {
        self.scope.clone_from(scope);
    }

    /// Logs a line about a path unless the last load said the same with the same mark.
    pub(crate) fn log(&mut self, level: Level, path: &Path, topic: &str, line: String, mark: String) {
        let key = (path.to_owned(), topic.to_owned());
        let value = (line, mark);
        let said = self.said.get(&key).is_some_and(|said| said.contains(&value));
        let saying = self.saying.entry(key).or_default();
        if saying.contains(&value) {
            return;
        }
        if !said {
            let line = &value.0;
            match level {
                Level::Info => tracing::info!("skill loader: {line}"),
                Level::Warn => tracing::warn!("skill loader: {line}"),
            }
        }
        saying.push(value);
    }

    /// Records a diagnostic and logs it when it is new.
    pub(crate) fn warn(&mut self, path: &Path, key: Option<&SkillKey>, problem: &Problem) {
        let diagnostic = self.diagnose(path, key, problem).to_string();
        let topic = format!("{} {}", problem.rule, problem.message);
        self.log(Level::Warn, path, &topic, diagnostic, String::new());
    }

    /// Records a diagnostic of which a line in the log tells already.
    pub(crate) fn diagnose(&mut self, path: &Path, key: Option<&SkillKey>, problem: &Problem) -> &Diagnostic {
        self.diagnostics.push(Diagnostic {
            severity: problem.severity,
            path: shown_path(path),
            line: problem.line,
            rule: problem.rule.to_owned(),
            message: cut(&text::escape(problem.message.as_bytes()), MESSAGE),
            key: key.cloned(),
            scope: self.scope.clone(),
        });
        &self.diagnostics[self.diagnostics.len() - 1]
    }

    /// Ends the load: the diagnostics in a fixed order, each once.
    pub(crate) fn finish(&mut self) -> Vec<Diagnostic> {
        for ((path, topic), lines) in &self.said {
            let gone = topic == OUTCOME && !self.saying.contains_key(&(path.clone(), topic.clone()));
            if gone && lines.iter().any(|(_, mark)| !mark.is_empty()) {
                tracing::info!("skill loader: {} is gone", shown_path(path));
            }
        }
        self.said = std::mem::take(&mut self.saying);
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        diagnostics.sort_by(|a, b| {
            (&a.path, a.line, &a.rule, &a.message, &a.scope)
                .cmp(&(&b.path, b.line, &b.rule, &b.message, &b.scope))
        });
        diagnostics.dedup();
        // What hides a skill matters more than what is odd: warnings are cut first.
        if diagnostics.len() > MAX_DIAGNOSTICS {
            let left_out = diagnostics.len() - MAX_DIAGNOSTICS;
            diagnostics.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
            diagnostics.truncate(MAX_DIAGNOSTICS);
            diagnostics.push(Diagnostic {
                severity: Severity::Warning,
                path: String::new(),
                line: None,
                rule: "limit".to_owned(),
                message: format!("{left_out} more diagnostics are left out"),
                key: None,
                scope: Scope::All,
            });
        }
        diagnostics
    }
}

/// The topic of the line that says what became of a manifest.
pub(crate) const OUTCOME: &str = "outcome";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped_and_cut() {
        assert_eq!(shown("a\x1b[2J\nb"), "a\\x1b[2J\\nb");
        assert!(shown(&"x".repeat(10_000)).chars().count() <= SHOWN + 1);
        assert!(in_one_line(&[Problem::error("x", "y".repeat(10_000))]).chars().count() <= MESSAGE + 1);
    }

    #[test]
    fn diagnostics_are_bounded_and_errors_stay() {
        let mut report = Report::default();
        for i in 0..MAX_DIAGNOSTICS + 10 {
            report.diagnose(Path::new(&format!("/a/{i:05}")), None, &Problem::warning("w", "odd"));
        }
        report.diagnose(Path::new("/z"), None, &Problem::error("e", "bad"));
        let diagnostics = report.finish();
        assert_eq!(diagnostics.len(), MAX_DIAGNOSTICS + 1);
        assert!(diagnostics.iter().any(|diagnostic| diagnostic.path == "/z"));
        assert!(diagnostics.last().unwrap().message.starts_with("11 more"));
    }
}
