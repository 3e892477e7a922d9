//! `weft completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    cli::Cli,
    exit::{self, Failure},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell; put what is printed where it looks for completions
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        // Into memory first: a pipe that closes early is no error.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "weft", &mut script);
        output::print(String::from_utf8_lossy(&script).trim_end())?;
        Ok(exit::OK)
    }
}
