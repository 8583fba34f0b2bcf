//! The configuration: `redis.conf` syntax, command-line flags, `CONFIG GET`, `SET` and `REWRITE`.

mod events;
mod file;
mod params;
mod rewrite;
mod settings;
mod value;
mod values;

pub use events::Events;
pub use file::{from_args, ConfigError, Start};
pub use params::{Kind, Param, ParamId, SettingEffect, PARAMS};
pub use rewrite::Unnamed;
pub use settings::{
    ClientMemory, MemoryPolicy, OnSignal, OutputLimit, Protection, SavePoint, Settings, ShutdownFlags,
    SnapshotFormat,
};
pub use value::parse_memory;
pub use values::{settings_help, Config};

#[cfg(test)]
pub use params::REFUSED;
#[cfg(test)]
mod tests;
