//! `weft skill test`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use weft_core::{
    event::{Event, EventKind},
    outcome::Final,
    skill::{Class, Definition, Kind, Severity},
};
use weft_daemon::signal::Signals;
use weft_node::{Config, Invocation, Local};
use weft_proto::{json, v1};
use weft_skills::{Copy, Inventory};

use super::directory;
use crate::{
    args::{ArgsOptions, Given, example, typed},
    commands::{
        call::seconds,
        follow::{Manner, Printer},
    },
    compat::CompatOptions,
    exit::{self, Failure},
    output::{self, Format},
};

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The directory of the skill
    path: PathBuf,
    #[command(flatten)]
    given: ArgsOptions,
    #[command(flatten)]
    compat: CompatOptions,
    /// Seconds that it may take; the manifest may say less
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// json: the events, one a line, the last of them the final record
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Test {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let signals = Signals::catch().context("catch signals")?;
        let directory = directory(&self.path)?;
        let scratch =
            tempfile::Builder::new().prefix("weft-test-").tempdir().context("make a scratch directory")?;
        let mut config = Config::new(scratch.path().join("node"), vec![directory.clone()]);
        config.slots = Some(1);
        config.compat = self.compat.switches();
        let local = tokio::task::spawn_blocking(move || Local::build(config))
            .await
            .context("build the node")?
            .context("cannot run skills here")?;
        let tested = self.invoke(&local, &directory, signals).await;
        local.close().await;
        tested
    }

    async fn invoke(&self, local: &Local, directory: &Path, signals: Signals) -> Result<u8, Failure> {
        let inventory = local.inventory();
        for diagnostic in &inventory.diagnostics {
            output::note(&diagnostic.to_string());
        }
        let Some(copy) = choose(&inventory, directory)? else { return Ok(exit::NOT_FOUND) };
        let args = self.args(&copy.definition)?;
        let invocation = local.invoke(&copy, args, self.timeout).map_err(Failure::refused)?;
        match self.output {
            Format::Json => as_json(invocation, signals).await,
            Format::Table => show(invocation, signals).await,
        }
    }

    fn args(&self, definition: &Definition) -> Result<Bytes, Failure> {
        match self.given.given()? {
            Given::Text(text) => Ok(text),
            Given::Words(words) => {
                let schema = serde_json::from_str(&definition.schema).unwrap_or_default();
                Ok(typed::parse(words, &schema).map_err(Failure::usage)?.into())
            }
            Given::Nothing if definition.kind == Kind::Instructions => Ok(Bytes::new()),
            Given::Nothing if definition.class > Class::Safe => Err(Failure::usage(format!(
                "{} is {} and runs for real: give its args yourself, --args '{{}}' when it takes none",
                definition.key, definition.class
            ))),
            Given::Nothing => {
                let example = example::of_schema(&definition.schema).ok_or_else(|| {
                    Failure::usage(format!(
                        "the schema of {} gives no example of its args: give some, or add \"examples\" to it",
                        definition.key
                    ))
                })?;
                let args = Value::Object(example).to_string();
                output::note(&format!("no args given; trying {args}"));
                Ok(args.into())
            }
        }
    }
}

/// The skill that is meant; `None` when it does not load, which its diagnostics told.
fn choose(inventory: &Inventory, directory: &Path) -> Result<Option<Arc<Copy>>, Failure> {
    // Skills may lie below one another.
    if let Some(copy) = inventory.copies.iter().find(|copy| copy.directory == directory) {
        return Ok(Some(copy.clone()));
    }
    let shown = directory.display();
    match &inventory.copies[..] {
        [one] => Ok(Some(one.clone())),
        [] if inventory.diagnostics.iter().any(|one| one.severity == Severity::Error) => Ok(None),
        [] => Err(Failure::usage(format!("no skill.json and no SKILL.md in {shown}"))),
        several => {
            let names: Vec<_> = several.iter().map(|copy| copy.directory.display().to_string()).collect();
            Err(Failure::usage(format!("{shown} holds several skills; name one: {}", names.join(", "))))
        }
    }
}

/// An invocation that Ctrl-C ends: with its grace at first, at once when it is pressed again.
struct Interruptible {
    invocation: Invocation,
    signals: Signals,
    interrupted: bool,
}

impl Interruptible {
    fn new(invocation: Invocation, signals: Signals) -> Self {
        Self { invocation, signals, interrupted: false }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            let signal = tokio::select! {
                event = self.invocation.next() => return event,
                signal = self.signals.next() => signal,
            };
            if self.interrupted {
                output::note(&format!("{signal} again: ending it at once"));
                self.invocation.kill();
            } else {
                output::note(&format!("{signal}: ending it; once more to end it at once"));
                self.invocation.cancel();
            }
            self.interrupted = true;
        }
    }
}

async fn as_json(invocation: Invocation, signals: Signals) -> Result<u8, Failure> {
    let mut events = Interruptible::new(invocation, signals);
    let mut code = exit::UNKNOWN;
    while let Some(event) = events.next().await {
        if let EventKind::Finished(last) = &event.kind {
            code = exit::of_own(last.outcome, events.interrupted);
        }
        output::print_json_line(&json::to_value(
            "weft.v1.InvocationEvent",
            &v1::InvocationEvent::from(&event),
        ))?;
    }
    Ok(code)
}

async fn show(invocation: Invocation, signals: Signals) -> Result<u8, Failure> {
    let mut events = Interruptible::new(invocation, signals);
    let mut printer = Printer::new(Manner { verbose: false, owns: true });
    while let Some(event) = events.next().await {
        printer.own_cancel = events.interrupted;
        let summary = match &event.kind {
            EventKind::Finished(last) => Some(summary(last)),
            _ => None,
        };
        printer.event(event)?;
        if let Some(summary) = summary {
            output::note(&summary);
        }
    }
    Ok(printer.code)
}

fn summary(last: &Final) -> String {
    let exit = last.exit.map_or_else(|| "no exit status".to_owned(), |exit| exit.to_string());
    format!(
        "{}: {exit} after {:.3} s; {} bytes on stdout, {} on stderr; leftovers killed: {}",
        last.outcome,
        last.duration.as_secs_f64(),
        last.stdout_bytes,
        last.stderr_bytes,
        last.leftovers_killed
    )
}
