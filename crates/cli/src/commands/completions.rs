//! `stalloc completions`: what a shell reads to complete commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::error::{Ending, Error};
use crate::{Cli, output};

/// Arguments of `stalloc completions`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  stalloc completions bash     in ~/.bashrc: source <(stalloc completions bash)\n  \
                        stalloc completions zsh      into a file _stalloc of $fpath\n  \
                        stalloc completions fish     into ~/.config/fish/completions/stalloc.fish"
)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs `stalloc completions`.
pub fn run(args: &Args) -> Result<Ending, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stalloc", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Ending::Done)
}
