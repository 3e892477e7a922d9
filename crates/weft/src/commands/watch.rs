//! `weft watch`.

use clap::Args;
use weft_core::ids::InvocationId;

use super::follow::{self, Manner};
use crate::{exit::Failure, target::Connection};

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    connection: Connection,
    /// The id of the invocation
    id: InvocationId,
    /// Go on after this event
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    after: u64,
    /// Say each step on stderr
    #[arg(short, long)]
    verbose: bool,
}

impl Watch {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let client = self.connection.client();
        let manner = Manner { verbose: self.verbose, owns: false };
        follow::follow(&client, client.watch(self.id, self.after), manner).await
    }
}
