//! Test programs without a harness, which run for as long as their flags say.

use std::process::ExitCode;
use std::str::FromStr;

/// Flags with values, as they are given.
pub struct Flags(Vec<(String, String)>);

impl Flags {
    /// The value of a flag, or another one if it is not given.
    pub fn text<'f>(&'f self, flag: &str, default: &'f str) -> &'f str {
        self.0.iter().rev().find(|(name, _)| name == flag).map_or(default, |(_, value)| value)
    }

    /// # Errors
    /// What is wrong with the value.
    pub fn number<T: FromStr>(&self, flag: &str, default: T) -> Result<T, String> {
        let text = self.text(flag, "");
        match text.is_empty() {
            true => Ok(default),
            false => text.parse().map_err(|_| format!("{flag}: {text} is no number")),
        }
    }
}

/// Reads the command line and runs `run`, unless a filter names other tests or a list is asked for. Flags with a value are those
/// that `usage` names with two dashes.
pub fn long_run(program: &str, usage: &str, run: impl FnOnce(&Flags) -> Result<(), String>) -> ExitCode {
    match parse(program, usage, std::env::args().skip(1))
        .and_then(|flags| flags.map_or(Ok(()), |flags| run(&flags)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn parse(program: &str, usage: &str, words: impl Iterator<Item = String>) -> Result<Option<Flags>, String> {
    let (mut flags, mut filters) = (Flags(Vec::new()), Vec::new());
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match &word[..] {
            "--list" | "--ignored" => return Ok(None),
            "--help" | "-h" => return Err(usage.to_owned()),
            // What the other suites take.
            "--skip" | "--test-threads" | "--format" | "--color" => drop(value()?),
            flag if usage.split_whitespace().any(|named| named == flag) => {
                let value = value()?;
                flags.0.push((word, value));
            }
            flag if flag.starts_with("--") => {}
            filter => filters.push(filter.to_owned()),
        }
    }
    let is_asked_for = filters.is_empty() || filters.iter().any(|filter| program.contains(&filter[..]));
    Ok(is_asked_for.then_some(flags))
}
