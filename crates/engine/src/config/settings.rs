//! The configuration in the types that the server works with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use stillframe_store::log::{LogOptions, SyncMethod, SyncPolicy};
use stillframe_store::rdb::WriteVersion;
use stillframe_store::{
    CollectionLimits, EvictionPolicy, IoOptions, PoolBackend, Preference, SnapshotKind, Tracking, Unserved,
};

use crate::config::events::Events;

/// `save <seconds> <changes>`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    pub after: Duration,
    pub change_count: u64,
}

/// A class of `client-output-buffer-limit`; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SnapshotFormat {
    #[default]
    Pages,
    Rdb,
}

/// Who may use a protected command or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protection {
    #[default]
    Nobody,
    Everybody,
    /// Connections over the loopback interface or a unix socket.
    Local,
}

/// What to do on a signal to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnSignal {
    /// Save if there are save points.
    #[default]
    Default,
    Save,
    NoSave,
}

/// `shutdown-on-sigint`, `shutdown-on-sigterm`. There is nothing that `now` would not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ShutdownFlags {
    pub how: OnSignal,
    /// `force`: end even if the save fails.
    pub even_if_failed: bool,
}

/// `maxmemory-policy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemoryPolicy {
    /// What is beyond `maxmemory` is in the page file alone.
    #[default]
    Tiered,
    NoEviction,
    Keys(EvictionPolicy),
}

impl MemoryPolicy {
    /// Those that evict no keys.
    pub const TIERED: &'static str = "tiered";
    pub const NO_EVICTION: &'static str = "noeviction";

    fn by_name(name: &str) -> MemoryPolicy {
        match EvictionPolicy::by_name(name) {
            Some(policy) => MemoryPolicy::Keys(policy),
            None if name == MemoryPolicy::TIERED => MemoryPolicy::Tiered,
            None => MemoryPolicy::NoEviction,
        }
    }

    /// The name of the policy of Redis that holds as much: with `tiered` nothing is evicted.
    pub fn redis_name(self) -> &'static str {
        match self {
            MemoryPolicy::Tiered => MemoryPolicy::NO_EVICTION,
            policy => policy.name(),
        }
    }

    pub fn name(self) -> &'static str {
        let of_keys = |policy| EvictionPolicy::NAMED.iter().find(|(_, known)| *known == policy);
        match self {
            MemoryPolicy::Tiered => MemoryPolicy::TIERED,
            MemoryPolicy::NoEviction => MemoryPolicy::NO_EVICTION,
            MemoryPolicy::Keys(policy) => of_keys(policy).map_or(MemoryPolicy::NO_EVICTION, |(name, _)| name),
        }
    }
}

/// `maxmemory-clients`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientMemory {
    #[default]
    Unlimited,
    Bytes(u64),
    /// Of `maxmemory`; without that one there is no limit either.
    Percent(u64),
}

/// Of scripts and functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptSettings {
    /// `scripting no`
    pub are_off: bool,
    /// `lua-memory-limit`; 0: by the memory that there is.
    pub memory_bytes: usize,
    /// `busy-reply-threshold`
    pub busy_after: Option<Duration>,
    /// `script-kill-after`
    pub killed_after: Option<Duration>,
}

/// Typed values of those parameters that do something. `0` in `*_limit` and durations of zero mean "none"
/// where Redis has it so.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The one checkpoint that may be served although a later one was saved.
    pub accept_loss_after_checkpoint: Option<u64>,
    /// What cannot be read is left out of dumps and of answers about all keys, and given up when it is written.
    pub skips_damage: bool,
    pub bind: Vec<String>,
    /// No directive, but of the environment: the address space is small enough for valgrind, and what is drawn at random follows
    /// from this seed, the secret that keys are hashed with, too.
    pub counted_seed: Option<u64>,
    pub busy_poll: Duration,
    pub databases: u32,
    pub dbfilename: String,
    pub dir: Option<PathBuf>,
    pub daemonize: bool,
    pub debug_command: Protection,
    pub protected_configs: Protection,
    pub huge_pages: bool,
    /// How the page file is read and written.
    pub io: IoOptions,
    /// A HyperLogLog that would be longer becomes dense.
    pub hll_sparse_max_bytes: u64,
    pub hz: u32,
    pub workers: usize,
    /// Rest after a key that is loaded; `persistence::delay` says how.
    pub key_load_delay_us: i32,
    pub latency_threshold: Option<Duration>,
    pub log: LogSettings,
    pub scripts: ScriptSettings,
    /// What Redis calls the directory of its append-only files, and the file before 7.0.
    pub append_names: [String; 2],
    pub latency_tracking: bool,
    pub percentiles: Vec<f64>,
    pub logfile: Option<PathBuf>,
    pub loglevel: u8,
    pub maxclients: usize,
    pub maxmemory_bytes: u64,
    pub memory_policy: MemoryPolicy,
    /// Keys that are looked at for one that is evicted.
    pub eviction_sample_count: usize,
    /// 0 to 100: how long a command may wait for evictions.
    pub eviction_tenacity: u32,
    pub lfu_log_factor: u32,
    pub lfu_decay_minutes: u32,
    pub client_memory: ClientMemory,
    /// `hash-max-listpack-entries` and the like.
    pub collection_limits: CollectionLimits,
    /// Items of a list, or by a number below 0 their bytes, that dumps have together.
    pub list_max_listpack_size: i64,
    /// Of clients, and of those of them that listen to channels.
    pub output_limits: [OutputLimit; 2],
    /// Letters of `notify-keyspace-events`.
    pub notified: Events,
    pub pidfile: Option<PathBuf>,
    pub port: u16,
    pub protected_mode: bool,
    pub max_bulk_bytes: i64,
    pub query_buffer_limit_bytes: usize,
    pub rdb_skip_unsupported: bool,
    /// `None`: the older, unless only the newer has a form for what is there.
    pub rdb_version: Option<WriteVersion>,
    pub rdb_checksum: bool,
    pub rdb_compression: bool,
    /// Likewise, after one that is saved into a dump.
    pub rdb_key_save_delay_us: i32,
    pub requirepass: Vec<u8>,
    pub save_points: Vec<SavePoint>,
    /// How long verifying the whole page file takes; `None`: it is not verified.
    pub scrub_interval: Option<Duration>,
    pub on_sigint: ShutdownFlags,
    pub on_sigterm: ShutdownFlags,
    /// `None`: no slow log.
    pub slowlog_threshold: Option<Duration>,
    pub slowlog_max_len: usize,
    pub snapshot_format: SnapshotFormat,
    pub snapshot_memory_bytes: u64,
    pub snapshot_kind: SnapshotKind,
    /// `None`: the one that suits the rest ([`Settings::pool_backend`]).
    pub pool_backend: Option<PoolBackend>,
    pub stop_writes_on_save_error: bool,
    pub supervised: bool,
    pub tcp_backlog: i32,
    pub tcp_keepalive: Duration,
    pub timeout: Duration,
    pub unixsocket: Option<PathBuf>,
    pub unixsocketperm: Option<u32>,
}

/// How the log of changes is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    pub is_on: bool,
    pub sync: SyncPolicy,
    pub method: SyncMethod,
    /// `None`: what there is.
    pub max_bytes: Option<u64>,
    /// 0: a part of `maxmemory`.
    pub memory_bytes: u64,
    pub exits_on_error: bool,
    /// Whether a start cuts off a unit that was not written to its end.
    pub loads_torn: bool,
    pub replay_limit_bytes: u64,
    pub rewrite_min_bytes: u64,
    /// Of the data; 0 is never.
    pub rewrite_percent: u64,
}

impl LogSettings {
    /// Whether replies wait until what they tell of is durable.
    pub fn holds_replies(&self) -> bool {
        self.is_on && self.sync == SyncPolicy::Always
    }
}

/// Bounds of what of a log may wait in memory, unless it is given.
const LOG_MEMORY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;

/// Puts a value into the settings.
pub type Setter = fn(&mut Settings, Text<'_>);

impl Settings {
    /// The memory beyond which data is in the page file alone; 0 is no bound. Most snapshot algorithms need all in memory.
    pub fn tiered_bytes(&self) -> u64 {
        if self.is_tiered() && self.snapshot_kind.takes_evictions() {
            self.maxmemory_bytes
        } else {
            0
        }
    }

    /// How the store keeps its log; `None`: there is to be none.
    pub fn log_options(&self) -> Option<LogOptions> {
        let log = &self.log;
        let memory_bytes = match (log.memory_bytes, self.maxmemory_bytes) {
            (0, 0) => *LOG_MEMORY_BYTES.end(),
            (0, bound) => (bound / 16).clamp(*LOG_MEMORY_BYTES.start(), *LOG_MEMORY_BYTES.end()),
            (given, _) => given.max(*LOG_MEMORY_BYTES.start()),
        };
        log.is_on.then(|| LogOptions {
            sync: log.sync,
            memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
            size_limit_bytes: log.max_bytes,
            method: log.method,
            ..LogOptions::default()
        })
    }

    /// How pages are found in memory. If nobody has said: in frames where pages come and go, or have two places each, since to
    /// evict one is cheap then; else each at its address.
    pub fn pool_backend(&self) -> PoolBackend {
        self.pool_backend.unwrap_or(match self.is_tiered() || self.snapshot_kind.has_two_places() {
            true => PoolBackend::Array,
            false => PoolBackend::Vmcache,
        })
    }

    /// Whether data larger than `maxmemory` is asked for.
    fn is_tiered(&self) -> bool {
        self.maxmemory_bytes > 0 && self.memory_policy == MemoryPolicy::Tiered
    }

    /// Whether the settings of a start can be had together.
    ///
    /// # Errors
    /// Which cannot, and why: the directive, and the reason.
    pub fn check_together(&self) -> Result<(), (String, String)> {
        self.snapshot_kind.check(self.pool_backend(), self.is_tiered()).map_err(|unserved| {
            let how = match unserved {
                Unserved::TwoPlaces { .. } => "set 'pool-backend array'",
                Unserved::Child { .. } => "set another 'pool-backend'",
                Unserved::Bounded { .. } | Unserved::LargerThanMemory { .. } => {
                    "set another 'maxmemory-policy' than 'tiered', or no 'maxmemory'"
                }
            };
            (format!("snapshot-algorithm {}", self.snapshot_kind), format!("{unserved}; {how}"))
        })
    }

    /// Whether keys go when memory is over its bound.
    pub fn evicts_keys(&self) -> bool {
        self.maxmemory_bytes > 0 && matches!(self.memory_policy, MemoryPolicy::Keys(_))
    }

    /// What has to be known of accesses to keys, for their eviction.
    pub fn tracking(&self) -> Option<Tracking> {
        let MemoryPolicy::Keys(policy) = self.memory_policy else { return None };
        match policy.preference {
            Preference::LeastRecentlyUsed => Some(Tracking::Recency),
            Preference::LeastFrequentlyUsed => Some(Tracking::Frequency {
                log_factor: self.lfu_log_factor,
                decay_minutes: self.lfu_decay_minutes,
            }),
            Preference::Random | Preference::SoonestDeadline => None,
        }
    }

    /// The most that all clients together may hold; 0 is no limit.
    pub fn max_client_bytes(&self) -> u64 {
        match self.client_memory {
            ClientMemory::Unlimited => 0,
            ClientMemory::Bytes(bytes) => bytes,
            ClientMemory::Percent(percent) => {
                (u128::from(self.maxmemory_bytes) * u128::from(percent) / 100) as u64
            }
        }
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

/// The text of a value, which has been checked when it was set.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub bytes: &'a [u8],
    pub text: &'a str,
}

impl<'a> Text<'a> {
    pub fn is(self, word: &str) -> bool {
        self.text == word
    }

    pub fn words(self) -> impl Iterator<Item = &'a str> {
        self.text.split_whitespace()
    }

    pub fn yes(self) -> bool {
        self.text == "yes"
    }

    /// The texts have been checked when they were set; the bounds of their rows make them fit.
    pub fn number<T: std::str::FromStr + Default>(self) -> T {
        self.text.parse().unwrap_or_default()
    }

    pub fn seconds(self) -> Duration {
        Duration::from_secs(self.number())
    }

    pub fn path(self) -> Option<PathBuf> {
        (!self.bytes.is_empty()).then(|| OsStr::from_bytes(self.bytes).into())
    }

    pub fn numbers(self) -> Vec<u64> {
        self.words().filter_map(|w| w.parse().ok()).collect()
    }

    pub fn rdb_version(self) -> Option<WriteVersion> {
        [WriteVersion::Redis7_0, WriteVersion::Redis7_4]
            .into_iter()
            .find(|version| self.text == version.number().to_string())
    }

    pub fn sync_policy(self) -> SyncPolicy {
        match self.text {
            "always" => SyncPolicy::Always,
            "no" => SyncPolicy::Never,
            _ => SyncPolicy::EverySecond,
        }
    }

    pub fn sync_method(self) -> SyncMethod {
        SyncMethod::by_name(self.text).unwrap_or_default()
    }

    pub fn protection(self) -> Protection {
        match self.text {
            "yes" => Protection::Everybody,
            "local" => Protection::Local,
            _ => Protection::Nobody,
        }
    }

    pub fn shutdown_flags(self) -> ShutdownFlags {
        let has = |flag: &str| self.text.split(' ').any(|word| word == flag);
        let how = match (has("save"), has("nosave")) {
            (true, _) => OnSignal::Save,
            (_, true) => OnSignal::NoSave,
            _ => OnSignal::Default,
        };
        ShutdownFlags { how, even_if_failed: has("force") }
    }

    pub fn memory_policy(self) -> MemoryPolicy {
        MemoryPolicy::by_name(self.text)
    }

    pub fn client_memory(self) -> ClientMemory {
        let text = self.text;
        let number = |digits: &str| digits.parse().unwrap_or(0);
        match text.strip_suffix('%') {
            Some(percent) => ClientMemory::Percent(number(percent)),
            None if text == "0" => ClientMemory::Unlimited,
            None => ClientMemory::Bytes(number(text)),
        }
    }

    /// Of the classes `normal` and `pubsub`.
    pub fn output_limits(self) -> [OutputLimit; 2] {
        ["normal", "pubsub"].map(|class| {
            let mut numbers =
                self.words().skip_while(|word| *word != class).skip(1).map(|w| w.parse().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            OutputLimit { hard_bytes: next(), soft_bytes: next(), soft_time: Duration::from_secs(next()) }
        })
    }

    pub fn events(self) -> Events {
        Events::of(self.bytes)
    }

    pub fn save_points(self) -> Vec<SavePoint> {
        let point = |pair: &[u64]| SavePoint { after: Duration::from_secs(pair[0]), change_count: pair[1] };
        self.numbers().chunks_exact(2).map(point).collect()
    }
}
