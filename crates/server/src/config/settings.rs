//! The configuration in the types that the server works with.

use std::path::PathBuf;
use std::time::Duration;

/// `save <seconds> <changes>`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    pub after: Duration,
    pub change_count: u64,
}

/// `client-output-buffer-limit normal`; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFormat {
    Pages,
    Rdb,
}

/// Who may use a protected command or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Nobody,
    Everybody,
    /// Connections over the loopback interface or a unix socket.
    Local,
}

/// What to do on a signal to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSignal {
    /// Save if there are save points.
    Default,
    Save,
    NoSave,
}

/// `shutdown-on-sigint`, `shutdown-on-sigterm`. There is nothing that `now` would not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownFlags {
    pub how: OnSignal,
    /// `force`: end even if the save fails.
    pub even_if_failed: bool,
}

/// `maxmemory-clients`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMemory {
    Unlimited,
    Bytes(u64),
    /// Of `maxmemory`; without that one there is no limit either.
    Percent(u64),
}

/// Typed values of those parameters that do something. `0` in `*_limit` and durations of zero mean "none"
/// where Redis has it so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The one checkpoint that may be served although a later one was saved.
    pub accept_loss_after_checkpoint: Option<u64>,
    /// Dumps leave out what cannot be read instead of failing.
    pub skips_damage: bool,
    pub bind: Vec<String>,
    pub busy_poll: Duration,
    pub databases: u32,
    pub dbfilename: String,
    pub dir: Option<PathBuf>,
    pub daemonize: bool,
    pub debug_command: Protection,
    pub protected_configs: Protection,
    pub huge_pages: bool,
    pub hz: u32,
    pub workers: usize,
    pub latency_threshold: Option<Duration>,
    pub latency_tracking: bool,
    pub percentiles: Vec<f64>,
    pub logfile: Option<PathBuf>,
    pub loglevel: u8,
    pub maxclients: usize,
    pub maxmemory_bytes: u64,
    pub client_memory: ClientMemory,
    pub output_limit: OutputLimit,
    pub pidfile: Option<PathBuf>,
    pub port: u16,
    pub protected_mode: bool,
    pub max_bulk_bytes: i64,
    pub query_buffer_limit_bytes: usize,
    pub rdb_skip_unsupported: bool,
    pub rdb_checksum: bool,
    pub rdb_compression: bool,
    pub requirepass: Vec<u8>,
    pub save_points: Vec<SavePoint>,
    pub on_sigint: ShutdownFlags,
    pub on_sigterm: ShutdownFlags,
    /// `None`: no slow log.
    pub slowlog_threshold: Option<Duration>,
    pub slowlog_max_len: usize,
    pub snapshot_format: SnapshotFormat,
    pub snapshot_memory_bytes: u64,
    pub is_fork_snapshotter: bool,
    pub stop_writes_on_save_error: bool,
    pub supervised: bool,
    pub tcp_backlog: i32,
    pub tcp_keepalive: Duration,
    pub timeout: Duration,
    pub unixsocket: Option<PathBuf>,
    pub unixsocketperm: Option<u32>,
}

/// Gives the text of a parameter by name.
pub(super) struct Texts<'a>(pub &'a dyn Fn(&str) -> String);

impl Settings {
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

impl Texts<'_> {
    fn text(&self, name: &str) -> String {
        (self.0)(name)
    }

    fn yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// The texts have been checked when they were set; the bounds of their rows make them fit.
    fn number<T: std::str::FromStr + Default>(&self, name: &str) -> T {
        self.text(name).parse().unwrap_or_default()
    }

    fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(self.number(name))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        (!text.is_empty()).then(|| text.into())
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        self.text(name).split_whitespace().filter_map(|w| w.parse().ok()).collect()
    }

    fn protection(&self, name: &str) -> Protection {
        match self.text(name).as_str() {
            "yes" => Protection::Everybody,
            "local" => Protection::Local,
            _ => Protection::Nobody,
        }
    }

    fn shutdown_flags(&self, name: &str) -> ShutdownFlags {
        let text = self.text(name);
        let has = |flag: &str| text.split(' ').any(|word| word == flag);
        let how = match (has("save"), has("nosave")) {
            (true, _) => OnSignal::Save,
            (_, true) => OnSignal::NoSave,
            _ => OnSignal::Default,
        };
        ShutdownFlags { how, even_if_failed: has("force") }
    }

    fn client_memory(&self) -> ClientMemory {
        let text = self.text("maxmemory-clients");
        let number = |digits: &str| digits.parse().unwrap_or(0);
        match text.strip_suffix('%') {
            Some(percent) => ClientMemory::Percent(number(percent)),
            None if text == "0" => ClientMemory::Unlimited,
            None => ClientMemory::Bytes(number(&text)),
        }
    }

    fn output_limit(&self) -> OutputLimit {
        let text = self.text("client-output-buffer-limit");
        let mut numbers = text.split(' ').skip(1).map(|w| w.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        OutputLimit { hard_bytes: next(), soft_bytes: next(), soft_time: Duration::from_secs(next()) }
    }

    fn save_points(&self) -> Vec<SavePoint> {
        let point = |pair: &[u64]| SavePoint { after: Duration::from_secs(pair[0]), change_count: pair[1] };
        self.numbers("save").chunks_exact(2).map(point).collect()
    }

    pub(super) fn settings(&self) -> Settings {
        let threshold: i64 = self.number("slowlog-log-slower-than");
        let latency_ms: u64 = self.number("latency-monitor-threshold");
        let levels = ["debug", "verbose", "notice", "warning"];
        let loglevel = self.text("loglevel");
        Settings {
            accept_loss_after_checkpoint: Some(self.number("accept-loss-after-checkpoint"))
                .filter(|number| *number != 0),
            bind: self.text("bind").split_whitespace().map(Into::into).collect(),
            busy_poll: Duration::from_micros(self.number("busy-poll")),
            skips_damage: self.text("damage-policy") == "skip",
            databases: self.number("databases"),
            dbfilename: self.text("dbfilename"),
            dir: self.path("dir"),
            daemonize: self.yes("daemonize"),
            debug_command: self.protection("enable-debug-command"),
            protected_configs: self.protection("enable-protected-configs"),
            huge_pages: self.yes("huge-pages"),
            hz: self.number::<u32>("hz").max(1),
            workers: self.number("io-threads"),
            latency_threshold: (latency_ms > 0).then(|| Duration::from_millis(latency_ms)),
            latency_tracking: self.yes("latency-tracking"),
            percentiles: self
                .text("latency-tracking-info-percentiles")
                .split_whitespace()
                .filter_map(|w| w.parse().ok())
                .collect(),
            logfile: self.path("logfile"),
            loglevel: levels.iter().position(|l| *l == loglevel).unwrap_or(2) as u8,
            maxclients: self.number("maxclients"),
            maxmemory_bytes: self.number("maxmemory"),
            client_memory: self.client_memory(),
            output_limit: self.output_limit(),
            pidfile: self.path("pidfile"),
            port: self.number("port"),
            protected_mode: self.yes("protected-mode"),
            max_bulk_bytes: self.number::<i64>("proto-max-bulk-len").min(i64::from(u32::MAX)),
            query_buffer_limit_bytes: self
                .number::<usize>("client-query-buffer-limit")
                .min(u32::MAX as usize),
            rdb_skip_unsupported: self.yes("rdb-skip-unsupported"),
            rdb_checksum: self.yes("rdbchecksum"),
            rdb_compression: self.yes("rdbcompression"),
            requirepass: self.text("requirepass").into_bytes(),
            save_points: self.save_points(),
            on_sigint: self.shutdown_flags("shutdown-on-sigint"),
            on_sigterm: self.shutdown_flags("shutdown-on-sigterm"),
            slowlog_threshold: u64::try_from(threshold).ok().map(Duration::from_micros),
            slowlog_max_len: self.number("slowlog-max-len"),
            snapshot_format: match self.text("snapshot-format").as_str() {
                "rdb" => SnapshotFormat::Rdb,
                _ => SnapshotFormat::Pages,
            },
            snapshot_memory_bytes: self.number("snapshot-memory"),
            is_fork_snapshotter: self.text("snapshotter") == "fork",
            stop_writes_on_save_error: self.yes("stop-writes-on-bgsave-error"),
            supervised: matches!(self.text("supervised").as_str(), "systemd" | "auto"),
            tcp_backlog: self.number("tcp-backlog"),
            tcp_keepalive: self.seconds("tcp-keepalive"),
            timeout: self.seconds("timeout"),
            unixsocket: self.path("unixsocket"),
            unixsocketperm: Some(u32::from_str_radix(&self.text("unixsocketperm"), 8).unwrap_or(0))
                .filter(|mode| *mode != 0),
        }
    }
}
