//! `weft invocations`.

use clap::Args;
use serde_json::Value;
use weft_core::{invocation::State, outcome::Outcome};
use weft_proto::{convert::timestamp_from_wire, json, v1};

use crate::{
    exit::{self, Failure},
    output::{self, Format},
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Invocations {
    #[command(flatten)]
    connection: Connection,
    /// Only of this skill
    skill: Option<String>,
    /// Only those that have not ended
    #[arg(long)]
    active: bool,
    /// At most this many, the newest first
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Invocations {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let skill = self.skill.unwrap_or_default();
        let list = self.connection.client().list(&skill, self.active, self.limit as usize).await?;
        match self.output {
            Format::Json => {
                let list = list.iter().map(|one| json::to_value("weft.v1.Invocation", one)).collect();
                output::print_json(&Value::Array(list))?;
            }
            Format::Table => output::print_table(
                &["id", "skill", "state", "node", "created", "took", "attempts"],
                list.iter().map(row),
            )?,
        }
        Ok(exit::OK)
    }
}

fn row(invocation: &v1::Invocation) -> Vec<String> {
    let time =
        |time: Option<prost_types::Timestamp>| time.and_then(|time| timestamp_from_wire("time", time).ok());
    let (created, finished) = (time(invocation.create_time), time(invocation.finish_time));
    let state = match invocation.state() {
        v1::InvocationState::Finished => Outcome::from(invocation.outcome()).as_str(),
        v1::InvocationState::Routing => State::Routing.as_str(),
        v1::InvocationState::PendingApproval => State::PendingApproval.as_str(),
        v1::InvocationState::Queued => State::Queued.as_str(),
        v1::InvocationState::Dispatched => State::Dispatched { attempt: 0 }.as_str(),
        v1::InvocationState::Accepted => State::Accepted { attempt: 0 }.as_str(),
        v1::InvocationState::Running => State::Running { attempt: 0 }.as_str(),
        v1::InvocationState::Terminating => State::Terminating { attempt: 0 }.as_str(),
        v1::InvocationState::Unspecified => "?",
    };
    let took = match (created, finished) {
        (Some(created), Some(finished)) => {
            format!("{:.3} s", finished.duration_since(created).as_secs_f64())
        }
        _ => String::new(),
    };
    vec![
        invocation.id.clone(),
        invocation.skill.clone(),
        state.to_owned(),
        invocation.node_id.clone(),
        created.map(|time| format!("{time:.0}")).unwrap_or_default(),
        took,
        invocation.attempts.to_string(),
    ]
}
