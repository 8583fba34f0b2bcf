//! The values that are in force, as text and in types, and how they change.

use std::path::PathBuf;

use crate::config::params::{Kind, ParamId, SettingEffect, PARAMS};
use crate::config::settings::{Settings, Text};
use crate::config::value;

/// Values of all parameters, as text and in types. Changed by making another one.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) values: Vec<Vec<u8>>,
    /// The same in the types that the server works with.
    pub settings: Settings,
    /// The file it was read from, for `CONFIG REWRITE`.
    pub file: Option<PathBuf>,
    /// Where relative paths of included files begin when the file is read anew; empty: where the process is.
    pub(super) base: PathBuf,
    /// Lines of the file and the standard input.
    pub(super) text_line_count: usize,
    /// Whether `save` has been given: the first one replaces the default, further ones add to it.
    has_save: bool,
}

impl Default for Config {
    fn default() -> Self {
        let values: Vec<Vec<u8>> = PARAMS.iter().map(|p| p.default.as_bytes().to_vec()).collect();
        let settings = typed(&values);
        Config { values, settings, file: None, base: PathBuf::new(), text_line_count: 0, has_save: false }
    }
}

fn typed(values: &[Vec<u8>]) -> Settings {
    let mut settings = Settings::default();
    for (param, bytes) in PARAMS.iter().zip(values) {
        (param.set)(&mut settings, Text { bytes, text: &String::from_utf8_lossy(bytes) });
    }
    settings
}

impl Config {
    pub fn value(&self, id: ParamId) -> &[u8] {
        &self.values[id.0]
    }

    fn store(&mut self, id: ParamId, value: Vec<u8>) {
        self.values[id.0] = value;
        self.settings = typed(&self.values);
    }

    /// Says where the data is once relative paths have been resolved.
    pub fn set_dir(&mut self, dir: &std::path::Path) {
        if let Some(id) = ParamId::find(b"dir") {
            use std::os::unix::ffi::OsStrExt;
            self.store(id, dir.as_os_str().as_bytes().to_vec());
        }
    }

    /// As `enable-debug-command yes`.
    pub fn allow_debug(&mut self) {
        if let Some(id) = ParamId::find(b"enable-debug-command") {
            self.store(id, b"yes".to_vec());
        }
    }

    /// Lowers `maxclients` to what the system allows.
    pub fn reduce_maxclients(&mut self, count: u64) {
        if let Some(id) = ParamId::find(b"maxclients") {
            self.store(id, count.to_string().into_bytes());
        }
    }

    /// Sets a parameter from the words of a directive at start.
    ///
    /// # Errors
    /// Why the value is refused.
    pub fn set_at_start(&mut self, id: ParamId, words: &[&[u8]]) -> Result<(), String> {
        let param = id.param();
        let mut value = self.read(id, words)?;
        if matches!(param.kind, Kind::SavePoints) && !value.is_empty() && self.has_save {
            let mut all = self.values[id.0].clone();
            if !all.is_empty() {
                all.push(b' ');
            }
            all.extend_from_slice(&value);
            value = all;
        }
        self.has_save |= matches!(param.kind, Kind::SavePoints);
        self.store(id, value);
        Ok(())
    }

    /// Sets a parameter by `CONFIG SET`, where a value of several words is one argument.
    ///
    /// # Errors
    /// Redis's texts.
    pub fn set_live(&mut self, id: ParamId, value: &[u8], is_local: bool) -> Result<(), String> {
        let param = id.param();
        match param.effect {
            SettingEffect::AtStart | SettingEffect::IgnoredAtStart | SettingEffect::OnlyAtStart(_) => {
                return Err("can't set immutable config".into())
            }
            SettingEffect::Protected if !self.settings.protected_configs.allows(is_local) => {
                return Err("can't set protected config".into())
            }
            _ if matches!(param.kind, Kind::Dir) && !is_same_dir(value, self.value(id)) => {
                return Err(
                    "the directory of the data cannot change while the server runs: restart with another \
                            --dir, or write a dump elsewhere with BACKUP TO"
                        .into(),
                );
            }
            _ if matches!(param.kind, Kind::Dir) => return Ok(()),
            _ => {}
        }
        let words: Vec<&[u8]> = if param.has_several_words() && !value.is_empty() {
            value.split(|&b| b == b' ').collect()
        } else {
            vec![value]
        };
        let value = self.read(id, &words)?;
        self.store(id, value);
        Ok(())
    }

    /// Takes a directive without a value. Redis lets `save` pass, which then is the end of the default, and what may have no
    /// words at all, as `bind`.
    ///
    /// # Errors
    /// Any other needs a value.
    pub fn set_empty_at_start(&mut self, id: ParamId) -> Result<(), String> {
        if !matches!(id.param().kind, Kind::SavePoints) {
            let value = match id.param().has_several_words() {
                true => self.read(id, &[])?,
                false => return Err("wrong number of arguments".into()),
            };
            self.store(id, value);
            return Ok(());
        }
        if !self.has_save {
            self.has_save = true;
            self.store(id, Vec::new());
        }
        Ok(())
    }

    pub(super) fn read(&self, id: ParamId, words: &[&[u8]]) -> Result<Vec<u8>, String> {
        let param = id.param();
        let value = match param.kind {
            Kind::OutputLimits => value::merge_output_limits(self.value(id), words)?,
            _ => value::read(param, words)?,
        };
        match param.effect {
            SettingEffect::Only(reason) | SettingEffect::OnlyAtStart(reason) if !param.is_default(&value) => {
                Err(reason.into())
            }
            _ => Ok(value),
        }
    }

    /// What is to be said of directives given a value other than the default that have no effect here.
    pub fn ignored(&self) -> impl Iterator<Item = String> + '_ {
        (0..PARAMS.len()).map(ParamId).filter_map(|id| self.ignored_note(id))
    }

    /// What is to be said of a directive if it has a value other than the default and no effect.
    pub fn ignored_note(&self, id: ParamId) -> Option<String> {
        let param = id.param();
        let is_ignored = matches!(param.effect, SettingEffect::Ignored | SettingEffect::IgnoredAtStart)
            && !param.is_default(self.value(id));
        is_ignored.then(|| format!("The directive '{}' has no effect in this server.", param.name))
    }
}

fn is_same_dir(given: &[u8], present: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let whole = |path: &[u8]| std::fs::canonicalize(std::ffi::OsStr::from_bytes(path)).ok();
    whole(given).is_some_and(|given| Some(given) == whole(present))
}

/// The settings that have an effect, with their defaults, for `--help`.
pub fn settings_help() -> String {
    let mut text =
        "\nSettings and their defaults, here as --NAME VALUE, in a file as NAME VALUE:\n".to_owned();
    for param in PARAMS.iter().filter(|param| param.has_effect() && !param.is_hidden) {
        for name in [Some(param.name), param.alias].into_iter().flatten() {
            text += &format!("  {name:<36} {}\n", param.shown_default());
        }
        for line in param.meaning.iter().flat_map(|meaning| wrapped(&meaning.replace('`', ""))) {
            text += &format!("      {line}\n");
        }
    }
    text + "All others of Redis 7.0 are taken where they make no difference here, and refused with the reason where they do.\n"
}

/// Lines of words, each of at most so many characters that a terminal of 100 columns holds it with its indentation.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 92;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= WIDTH);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
