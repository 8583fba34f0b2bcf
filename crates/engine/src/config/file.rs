//! Reading the configuration at start: command line, files, included files.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stillframe_units::{quote, words};

use crate::config::params::{ParamId, REFUSED};
use crate::config::values::Config;
use crate::text::glob::Glob;

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
    Checked(Box<Config>),
    /// `--check FILE`
    CheckFile(PathBuf),
    /// `--salvage FILE --to DUMP`, with further directives.
    Salvage(PathBuf, PathBuf, Box<Config>),
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
        Some("--check" | "--salvage") => return on_file(args),
        _ => {}
    }
    let mut config = Config::default();
    let mut rest = args;
    let mut is_check = false;
    // As in Redis flags are lines behind those of the file.
    let mut flag_count = 0;
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
        let Some(text) = flag.strip_prefix("--") else {
            return Err(on_command_line(flag, "Bad directive or wrong number of arguments"));
        };
        if text == "check-config" {
            is_check = true;
            continue;
        }
        let value_count = value_count(text, rest);
        let (values, others) = rest.split_at(value_count);
        rest = others;
        config.load_flag(text, values, flag_count)?;
        flag_count += 1;
    }
    config.settings.check_together().map_err(|(line, reason)| ConfigError {
        origin: "all settings together".into(),
        line,
        reason,
    })?;
    config.base = std::env::current_dir().unwrap_or_default();
    let config = Box::new(config);
    Ok(if is_check { Start::Checked(config) } else { Start::Serve(config) })
}

/// What is done to a page file instead of serving it.
fn on_file(args: &[String]) -> Result<Start, ConfigError> {
    match args {
        [check, file] if check == "--check" => Ok(Start::CheckFile(file.into())),
        [salvage, file, to, dump, rest @ ..] if salvage == "--salvage" && to == "--to" => {
            match from_args(rest)? {
                Start::Serve(config) => Ok(Start::Salvage(file.into(), dump.into(), config)),
                other => Ok(other),
            }
        }
        _ => Err(on_command_line(&args.join(" "), "It is '--check FILE' or '--salvage FILE --to DUMP'")),
    }
}

/// How many of the words that follow a flag are its values. As in Redis the first one is, whatever it looks like, unless
/// it came with the name (`"--port 7777"`); only `--save` may be without.
fn value_count(text: &str, rest: &[String]) -> usize {
    let is_flag = |word: &String| word.starts_with("--") || word == "-";
    let has_value = text.trim_ascii().contains(' ');
    let must_have_one = !has_value && !text.eq_ignore_ascii_case("save");
    let first = usize::from(must_have_one && rest.first().is_some_and(|word| word != "-"));
    first + rest[first..].iter().take_while(|word| !is_flag(word)).count()
}

/// A flag as the line of a file that it stands for.
fn flag_line(text: &str, values: &[String]) -> String {
    let mut line = text.as_bytes().to_vec();
    for value in values {
        line.push(b' ');
        quote(value.as_bytes(), &mut line);
    }
    String::from_utf8_lossy(&line).into_owned()
}

fn on_command_line(line: &str, reason: &str) -> ConfigError {
    ConfigError { origin: "the command line".into(), line: line.into(), reason: reason.into() }
}

impl Config {
    /// Takes a flag without its dashes, which is a line of a file, with further words; so many flags came before it.
    fn load_flag(&mut self, text: &str, values: &[String], flag_count: usize) -> Result<(), ConfigError> {
        let line = self.text_line_count + 2 + flag_count;
        let refuse = |reason: &str| ConfigError {
            origin: format!("the configuration file, at line {line}"),
            line: flag_line(text, values),
            reason: reason.into(),
        };
        let first = words(text.as_bytes()).map_err(|_| refuse("Unbalanced quotes in configuration line"))?;
        let mut words: Vec<&[u8]> = first.iter().map(Vec::as_slice).collect();
        words.extend(values.iter().map(String::as_bytes));
        if text.eq_ignore_ascii_case("save") && values.is_empty() {
            words.push(b"");
        }
        self.directive(&words, 0).map_err(|error| match error {
            Failure::Reason(reason) => refuse(&reason),
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

    /// What a start with such a text has.
    ///
    /// # Errors
    /// The first directive that cannot be taken.
    pub(super) fn read_anew(&self, text: &[u8]) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.base.clone_from(&self.base);
        config.load_text(text, "the configuration file", 0)?;
        Ok(config)
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
        if depth == 0 {
            self.text_line_count += text.iter().filter(|byte| **byte == b'\n').count();
        }
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
            return self.include(path, depth + 1).map_err(Failure::InFile);
        }
        if let Some((_, reason)) = REFUSED.iter().find(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name)) {
            return Err(Failure::Reason((*reason).into()));
        }
        let Some(id) = ParamId::find(name) else { return Err(bad_directive()) };
        let set = match values {
            [] => self.set_empty_at_start(id),
            // Several words in one: `save "60 1000"`.
            [value] if id.param().has_several_words() && !value.is_empty() => {
                let split: Vec<&[u8]> = value.split(|&b| b == b' ').filter(|w| !w.is_empty()).collect();
                self.set_at_start(id, &split)
            }
            _ => self.set_at_start(id, values),
        };
        set.map_err(Failure::Reason)
    }

    /// Reads the file of an `include`, or those that its pattern names, in their order; there may be none.
    fn include(&mut self, path: &[u8], depth: u32) -> Result<(), ConfigError> {
        let path = &self.base.join(std::ffi::OsStr::from_bytes(path));
        if !is_pattern(path.as_os_str().as_bytes()) {
            return self.load_file(path, depth);
        }
        expand(path).iter().try_for_each(|path| self.load_file(path, depth))
    }
}

fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// The paths that a pattern names, sorted. Names that begin with a dot are found only by such patterns.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().as_bytes();
        if !is_pattern(name) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        // A set is negated by either of the two.
        let name = String::from_utf8_lossy(name).replace("[!", "[^");
        found = found.iter().flat_map(|dir| names_in(dir, name.as_bytes())).collect();
    }
    found.retain(|path| path.exists());
    found.sort();
    found
}

fn names_in(dir: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let here = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let glob = Glob::new(pattern, false);
    let is_named =
        |name: &[u8]| glob.matches(name) && (name.first() != Some(&b'.') || pattern.first() == Some(&b'.'));
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten();
    entries.map(|e| e.file_name()).filter(|n| is_named(n.as_bytes())).map(|n| dir.join(n)).collect()
}

enum Failure {
    Reason(String),
    InFile(ConfigError),
}

fn bad_directive() -> Failure {
    Failure::Reason("Bad directive or wrong number of arguments".into())
}
