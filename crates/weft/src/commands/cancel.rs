//! `weft cancel`.

use clap::Args;
use weft_core::{ids::InvocationId, outcome::Outcome};
use weft_proto::v1;

use crate::{
    exit::{self, Failure},
    output,
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    connection: Connection,
    /// The id of the invocation
    id: InvocationId,
}

impl Cancel {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let invocation = self.connection.client().cancel(self.id).await?;
        output::note(&match invocation.state() {
            v1::InvocationState::Finished => {
                format!("{} has ended: {}", self.id, Outcome::from(invocation.outcome()))
            }
            _ => format!("{} is being ended; see it with `weft watch {0}`", self.id),
        });
        Ok(exit::OK)
    }
}
