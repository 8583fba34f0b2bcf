//! Reading the configuration at start: command line, files, included files.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::params::REFUSED;
use crate::config::{Config, ParamId};
use crate::words::words;

/// How deep `include` may nest.
const MAX_INCLUDE_DEPTH: u32 = 16;

/// A directive that cannot be taken; shown as Redis shows it, with the file.
#[derive(thiserror::Error, Debug)]
#[error(
    "\n*** FATAL CONFIG FILE ERROR (Stillframe {version}) ***\nReading {origin}\n>>> '{line}'\n{reason}",
    version = env!("CARGO_PKG_VERSION")
)]
pub struct ConfigError {
    /// `the configuration file <path>, at line <n>`, or `the command line`.
    pub origin: String,
    pub line: String,
    pub reason: String,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Start {
    Serve(Box<Config>),
    /// `--check-config`: the configuration is fine.
    Checked,
    Version,
    Help,
}

/// Reads the command line as redis-server does: `[file] [-] [--directive value ...]...`.
///
/// # Errors
/// The first directive that cannot be taken.
pub fn from_args(args: &[String]) -> Result<Start, ConfigError> {
    match args.first().map(String::as_str) {
        Some("-v" | "--version") => return Ok(Start::Version),
        Some("-h" | "--help") => return Ok(Start::Help),
        _ => {}
    }
    let mut config = Config::default();
    let mut rest = args;
    let mut is_check = false;
    if let Some((file, others)) = args.split_first().filter(|(first, _)| !first.starts_with('-')) {
        config.load_file(Path::new(file), 0)?;
        config.file = Some(std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file)));
        rest = others;
    }
    while let Some((flag, others)) = rest.split_first() {
        rest = others;
        if flag == "-" {
            config.load_stdin()?;
            continue;
        }
        let Some(name) = flag.strip_prefix("--") else {
            return Err(on_command_line(flag, "Bad directive or wrong number of arguments"));
        };
        if name == "check-config" {
            is_check = true;
            continue;
        }
        let value_count = rest.iter().take_while(|word| !word.starts_with("--") && *word != "-").count();
        let (values, others) = rest.split_at(value_count);
        rest = others;
        config.load_flag(name, values)?;
    }
    Ok(if is_check { Start::Checked } else { Start::Serve(Box::new(config)) })
}

fn on_command_line(line: &str, reason: &str) -> ConfigError {
    ConfigError { origin: "the command line".into(), line: line.into(), reason: reason.into() }
}

impl Config {
    fn load_flag(&mut self, name: &str, values: &[String]) -> Result<(), ConfigError> {
        let mut words: Vec<&[u8]> = vec![name.as_bytes()];
        words.extend(values.iter().map(String::as_bytes));
        if name == "save" && values.is_empty() {
            words.push(b"");
        }
        let line = || format!("{name} {}", values.join(" "));
        // `--save "60 1000"` in one argument.
        let split: Vec<&[u8]> = match words[..] {
            [name, value] if value.contains(&b' ') && is_of_several_words(name) => {
                std::iter::once(name).chain(value.split(|&b| b == b' ').filter(|w| !w.is_empty())).collect()
            }
            _ => words,
        };
        self.directive(&split, 0).map_err(|error| match error {
            Failure::Reason(reason) => on_command_line(line().trim_end(), &reason),
            Failure::InFile(error) => error,
        })
    }

    fn load_stdin(&mut self) -> Result<(), ConfigError> {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|e| on_command_line("-", &format!("Can't read the standard input: {e}")))?;
        self.load_text(&text, "the standard input", 0)
    }

    fn load_file(&mut self, path: &Path, depth: u32) -> Result<(), ConfigError> {
        let shown = path.display().to_string();
        let failed = |reason: String| on_command_line(&shown, &reason);
        if depth > MAX_INCLUDE_DEPTH {
            return Err(failed(format!("'include' nests more than {MAX_INCLUDE_DEPTH} deep")));
        }
        let text = std::fs::read(path)
            .map_err(|error| failed(format!("Fatal error, can't open config file '{shown}': {error}")))?;
        self.load_text(&text, &format!("the configuration file {shown}"), depth)
    }

    fn load_text(&mut self, text: &[u8], origin: &str, depth: u32) -> Result<(), ConfigError> {
        for (index, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let refuse = |reason: String| ConfigError {
                origin: format!("{origin}, at line {}", index + 1),
                line: String::from_utf8_lossy(line).into_owned(),
                reason,
            };
            let owned = words(line).map_err(|_| refuse("Unbalanced quotes in configuration line".into()))?;
            let words: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
            match self.directive(&words, depth) {
                Ok(()) => {}
                Err(Failure::Reason(reason)) => return Err(refuse(reason)),
                Err(Failure::InFile(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes one directive, its name first.
    fn directive(&mut self, words: &[&[u8]], depth: u32) -> Result<(), Failure> {
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if name.eq_ignore_ascii_case(b"include") {
            let [path] = values else { return Err(bad_directive()) };
            let path = String::from_utf8_lossy(path).into_owned();
            return self.load_file(Path::new(&path), depth + 1).map_err(Failure::InFile);
        }
        if let Some((_, reason)) = REFUSED.iter().find(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name)) {
            return Err(Failure::Reason((*reason).into()));
        }
        let Some(id) = ParamId::find(name) else { return Err(bad_directive()) };
        if values.is_empty() || (values.len() > 1 && !id.param().has_several_words()) {
            return Err(bad_directive());
        }
        self.set_at_start(id, values).map_err(Failure::Reason)
    }
}

fn is_of_several_words(name: &[u8]) -> bool {
    ParamId::find(name).is_some_and(|id| id.param().has_several_words())
}

enum Failure {
    Reason(String),
    InFile(ConfigError),
}

fn bad_directive() -> Failure {
    Failure::Reason("Bad directive or wrong number of arguments".into())
}
