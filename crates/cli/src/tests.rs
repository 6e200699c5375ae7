use clap::CommandFactory;

use super::*;

/// The examples in a help text, without what is said of them.
fn examples(help: &str) -> impl Iterator<Item = Vec<String>> {
    help.lines().filter(|line| line.starts_with("  stalloc ")).map(|line| {
        let command = line.trim().split("  ").next().unwrap_or_default();
        command.split_whitespace().map(str::to_owned).collect()
    })
}

#[test]
fn every_command_shows_examples_that_it_accepts() {
    let mut cli = Cli::command();
    cli.build();
    let commands: Vec<_> = cli.get_subcommands().filter(|command| command.get_name() != "help").collect();
    assert!(commands.len() >= 8);
    for command in commands.into_iter().chain([&cli]) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = command.get_name();
        assert!(examples(&help).next().is_some(), "the help of {name} shows no example:\n{help}");
        for example in examples(&help) {
            assert!(name == "stalloc" || example[1] == name, "{example:?} in the help of {name}");
            if let Err(error) = Cli::try_parse_from(&example) {
                panic!("an example in the help of {name} is not accepted: {error}");
            }
        }
    }
}

#[test]
fn every_command_and_option_says_what_it_does() {
    let mut cli = Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            let (name, argument_name) = (command.get_name(), argument.get_id());
            assert!(argument.get_help().is_some(), "{name} has nothing to say of {argument_name}");
        }
    }
}
