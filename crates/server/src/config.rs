//! The configuration: `redis.conf` syntax, command-line flags, `CONFIG GET`, `SET` and `REWRITE`.

mod file;
mod params;
mod rewrite;
mod settings;
mod value;

use std::path::PathBuf;

pub use file::{from_args, ConfigError, Start};
pub use params::{Effect, Kind, Param, ParamId, PARAMS};
pub use settings::{
    ClientMemory, OnSignal, OutputLimit, Protection, SavePoint, Settings, ShutdownFlags, SnapshotFormat,
};

/// Values of all parameters, as text and in types. Changed by making another one.
#[derive(Clone, Debug)]
pub struct Config {
    values: Vec<Vec<u8>>,
    /// The same in the types that the server works with.
    pub settings: Settings,
    /// The file it was read from, for `CONFIG REWRITE`.
    pub file: Option<PathBuf>,
    /// Whether `save` has been given: the first one replaces the default, further ones add to it.
    has_save: bool,
}

impl Default for Config {
    fn default() -> Self {
        let values: Vec<Vec<u8>> = PARAMS.iter().map(|p| p.default.as_bytes().to_vec()).collect();
        let settings = typed(&values);
        Config { values, settings, file: None, has_save: false }
    }
}

fn typed(values: &[Vec<u8>]) -> Settings {
    let raw = |name: &str| ParamId::find(name.as_bytes()).map_or(&[][..], |id| &values[id.0]);
    let text = |name: &str| String::from_utf8_lossy(raw(name)).into_owned();
    let mut settings = settings::Texts(&text).settings();
    settings.requirepass = raw("requirepass").to_vec();
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
            Effect::AtStart | Effect::IgnoredAtStart | Effect::OnlyAtStart(_) => {
                return Err("can't set immutable config".into())
            }
            Effect::Protected if !self.settings.protected_configs.allows(is_local) => {
                return Err("can't set protected config".into())
            }
            _ if matches!(param.kind, Kind::Dir) && !is_same_dir(value, self.value(id)) => {
                return Err("the directory of the data cannot change while the server runs".into())
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

    /// Takes a directive without a value. Redis lets `save` pass, which then is the end of the default.
    ///
    /// # Errors
    /// Any other needs a value.
    pub fn set_empty_at_start(&mut self, id: ParamId) -> Result<(), String> {
        if !matches!(id.param().kind, Kind::SavePoints) {
            return Err("wrong number of arguments".into());
        }
        if !self.has_save {
            self.has_save = true;
            self.store(id, Vec::new());
        }
        Ok(())
    }

    fn read(&self, id: ParamId, words: &[&[u8]]) -> Result<Vec<u8>, String> {
        let param = id.param();
        let value = match param.kind {
            Kind::OutputLimits => value::merge_output_limits(self.value(id), words)?,
            _ => value::read(param, words)?,
        };
        match param.effect {
            Effect::Only(reason) | Effect::OnlyAtStart(reason) if !param.is_default(&value) => {
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
        let is_ignored = matches!(param.effect, Effect::Ignored | Effect::IgnoredAtStart)
            && !param.is_default(self.value(id));
        is_ignored.then(|| format!("The directive '{}' has no effect in this server.", param.name))
    }
}

fn is_same_dir(given: &[u8], present: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let whole = |path: &[u8]| std::fs::canonicalize(std::ffi::OsStr::from_bytes(path)).ok();
    whole(given).is_some_and(|given| Some(given) == whole(present))
}

impl Param {
    /// A password or a part of one: logs do not show it.
    pub fn is_secret(&self) -> bool {
        matches!(
            self.name,
            "masterauth" | "masteruser" | "requirepass" | "tls-client-key-file-pass" | "tls-key-file-pass"
        )
    }

    fn has_several_words(&self) -> bool {
        matches!(
            self.kind,
            Kind::SavePoints | Kind::OutputLimits | Kind::Percentiles | Kind::Words { .. } | Kind::Flags(_)
        )
    }

    fn is_default(&self, value: &[u8]) -> bool {
        // `replicaof no one` is the default in words.
        value == self.default.as_bytes()
            || (self.name == "replicaof" && value.eq_ignore_ascii_case(b"no one"))
    }
}

impl Protection {
    pub fn allows(self, is_local: bool) -> bool {
        match self {
            Protection::Nobody => false,
            Protection::Everybody => true,
            Protection::Local => is_local,
        }
    }
}

/// The settings that have an effect, with their defaults, for `--help`.
pub fn settings_help() -> String {
    let has_effect = |p: &&Param| matches!(p.effect, Effect::Live | Effect::AtStart | Effect::Protected);
    let mut text =
        "\nSettings and their defaults, here as --NAME VALUE, in a file as NAME VALUE:\n".to_owned();
    for param in PARAMS.iter().filter(has_effect) {
        let default = match (param.kind, param.default.parse::<u64>()) {
            (_, Err(_)) if param.default.is_empty() => "\"\"".to_owned(),
            (Kind::Memory { .. }, Ok(bytes)) if bytes > 0 && bytes % (1 << 20) == 0 => {
                format!("{}mb", bytes >> 20)
            }
            _ => param.default.to_owned(),
        };
        for name in [Some(param.name), param.alias].into_iter().flatten() {
            text += &format!("  {name:<36} {default}\n");
        }
    }
    text + "All others of Redis 7.0 are taken where they make no difference here, and refused with the reason where they do.\n"
}

#[cfg(test)]
mod tests;
