//! The configuration parameters: one row each, with what reads a value, what it sets, and its default.

use std::time::Duration;

use stillframe_store::log::SyncMethod;
use stillframe_store::{DirectIo, IoEngine, PoolBackend, SnapshotKind};

use crate::config::settings::{MemoryPolicy, Setter, SnapshotFormat};

/// What a value may be. Values are kept as text in the form in which `CONFIG GET` shows them.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    /// Bytes, with units in the input (`64mb`).
    Memory {
        min: u64,
        max: u64,
    },
    /// As `Memory`, or a percentage of `maxmemory`.
    MemoryOrPercent,
    /// Rounds a second; what is out of bounds is moved to them.
    Hertz,
    Octal,
    Choice(&'static [&'static str]),
    /// Any of these names together; the first one stands for none of the others.
    Flags(&'static [&'static str]),
    /// Letters that stand for classes of events.
    Events,
    /// The title of the process, with variables in braces.
    Title,
    Text,
    /// A file name without a path.
    FileName,
    /// Several words, kept as they are.
    Words {
        min: usize,
        max: usize,
    },
    Dir,
    SavePoints,
    OutputLimits,
    Percentiles,
}

/// What setting a parameter does.
#[derive(Clone, Copy, Debug)]
pub enum SettingEffect {
    /// Takes effect at once, also by `CONFIG SET`.
    Live,
    /// Taken from the file and the command line only.
    AtStart,
    /// As `Live`, but `CONFIG SET` refuses it unless `enable-protected-configs` allows it.
    Protected,
    /// Redis has it and this server needs no such thing: any valid value is accepted, with a warning at start.
    Ignored,
    /// As `Ignored`, and not taken by `CONFIG SET`.
    IgnoredAtStart,
    /// Only the default is supported; the text says why.
    Only(&'static str),
    /// As `Only`, and not taken by `CONFIG SET`.
    OnlyAtStart(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub default: &'static str,
    pub effect: SettingEffect,
    /// Puts a value, which its kind has accepted, into the settings.
    pub set: Setter,
    /// `CONFIG GET` shows it under its whole name only, as Redis does what its tests alone need.
    pub is_hidden: bool,
    /// What it is for, if Redis has no such setting or means something else by it: for `--help` and the page of settings.
    pub meaning: Option<&'static str>,
}

const fn p(name: &'static str, kind: Kind, default: &'static str, effect: SettingEffect) -> Param {
    Param { name, alias: None, kind, default, effect, set: |_, _| (), is_hidden: false, meaning: None }
}

const fn a(
    name: &'static str,
    alias: &'static str,
    kind: Kind,
    default: &'static str,
    effect: SettingEffect,
) -> Param {
    Param { alias: Some(alias), ..p(name, kind, default, effect) }
}

use Kind::{
    Bool, Choice, Dir, Events, FileName, Flags, Hertz, Int, Memory, MemoryOrPercent, Octal, OutputLimits,
    Percentiles, SavePoints, Text, Title, Words,
};
use SettingEffect::{AtStart, Ignored, IgnoredAtStart, Live, Only, OnlyAtStart, Protected};

impl Param {
    const fn to(mut self, set: Setter) -> Param {
        self.set = set;
        self
    }

    const fn hidden(mut self) -> Param {
        self.is_hidden = true;
        self
    }

    const fn own(mut self, meaning: &'static str) -> Param {
        self.meaning = Some(meaning);
        self
    }
}

const I32: i64 = i32::MAX as i64;
const SIZE: Kind = Kind::Memory { min: 0, max: i64::MAX as u64 };
const LARGE: Kind = Kind::Memory { min: 0, max: u64::MAX };
const NATURAL: Kind = Kind::Int { min: 0, max: I32 };
const ANY_INT: Kind = Kind::Int { min: i32::MIN as i64, max: I32 };
const LONG: Kind = Kind::Int { min: 0, max: i64::MAX };
const PROTECTION: Kind = Choice(&["no", "yes", "local"]);
const SHUTDOWN: Kind = Flags(&["default", "save", "nosave", "now", "force"]);
/// Of the log, by number.
const LEVELS: [&str; 4] = ["debug", "verbose", "notice", "warning"];
const BACKENDS: Kind = Choice(&["auto", PoolBackend::NAMES[0], PoolBackend::NAMES[1], PoolBackend::NAMES[2]]);
const POLICIES: Kind = Choice(&[
    "tiered",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
]);
const NO_REPLICATION: &str = "replication is not available";
const NO_TLS: &str = "TLS is not available";
const NO_CLUSTER: &str = "cluster mode is not available";
const NO_ACL: &str = "there is only the default user; use 'requirepass'";
const NO_TIMES: &str = "the log has no times: there is no point in time to go back to";
const NO_DEFRAGMENTATION: &str =
    "Active defragmentation cannot be enabled: it requires a Redis server compiled with a \
    modified Jemalloc like the one shipped by default with the Redis source distribution";

#[rustfmt::skip]
pub static PARAMS: &[Param] = &[
    // What this server acts on.
    p("accept-loss-after-checkpoint", LONG, "0", AtStart)
        .to(|s, v| s.accept_loss_after_checkpoint = Some(v.number()).filter(|n| *n != 0))
        .own("Serve the checkpoint of this number although a later one was saved and is damaged. A start that refuses names the \
              number."),
    p("acllog-max-len", LONG, "128", Ignored),
    p("aof-load-truncated", Bool, "yes", Live)
        .to(|s, v| s.log.loads_torn = v.yes()),
    p("appenddirname", FileName, "appendonlydir", AtStart)
        .to(|s, v| s.append_names[0] = v.text.into())
        .own("The directory of append-only files that Redis would have here: it is named at the start, and not read."),
    p("appendfilename", FileName, "appendonly.aof", AtStart)
        .to(|s, v| s.append_names[1] = v.text.into())
        .own("The same of the file before Redis 7.0."),
    p("appendfsync", Choice(&["everysec", "always", "no"]), "everysec", Live)
        .to(|s, v| s.log.sync = v.sync_policy())
        .own("When the log is durable. `always`: what was answered survives any crash; only replies wait, and those of reads only if their own \
              key has changes that are not durable. `everysec`: at most two seconds are lost; writes wait while the disk stands still for longer. \
              `no`: when the system likes, and with each checkpoint."),
    p("appendonly", Bool, "no", Live)
        .to(|s, v| s.log.is_on = v.yes())
        .own("Keep a log of all changes, in `log/` beside the page file: what came after the last checkpoint survives a crash. Each \
              checkpoint frees the log before it; nothing is ever rewritten."),
    p("auto-aof-rewrite-min-size", SIZE, "67108864", Live)
        .to(|s, v| s.log.rewrite_min_bytes = v.number())
        .own("Log since the last checkpoint below which its growth asks for none."),
    p("auto-aof-rewrite-percentage", NATURAL, "100", Live)
        .to(|s, v| s.log.rewrite_percent = v.number())
        .own("A checkpoint is taken once the log since the last one is as many percent of the data in pages. 0: not for that."),
    p("bind", Words { min: 0, max: 16 }, "* -::*", Live)
        .to(|s, v| s.bind = v.words().map(Into::into).collect()),
    p("busy-poll", Int { min: 0, max: 10_000 }, "0", Live)
        .to(|s, v| s.busy_poll = Duration::from_micros(v.number()))
        .own("Microseconds to spin before a worker sleeps. It switches itself off where it does not pay."),
    a("busy-reply-threshold", "lua-time-limit", LONG, "5000", Live)
        .to(|s, v| s.scripts.busy_after = Some(v.number()).filter(|ms| *ms > 0).map(Duration::from_millis)),
    p("client-output-buffer-limit", OutputLimits,
      "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live)
        .to(|s, v| s.output_limits = v.output_limits()),
    p("client-query-buffer-limit", Memory { min: 1 << 20, max: i64::MAX as u64 }, "1073741824", Live)
        .to(|s, v| s.query_buffer_limit_bytes = v.number::<usize>().min(u32::MAX as usize)),
    p("daemonize", Bool, "no", AtStart)
        .to(|s, v| s.daemonize = v.yes()),
    p("damage-policy", Choice(&["refuse", "skip"]), "refuse", Live)
        .to(|s, v| s.skips_damage = v.is("skip"))
        .own("What to do about data that cannot be read. `skip`: dumps, backups, `SCAN`, `KEYS` and `RANDOMKEY` leave it out, and \
              `SET` or `DEL` of a key in a lost leaf give the leaf up. The log says what is lost."),
    p("databases", Int { min: 1, max: I32 }, "16", AtStart)
        .to(|s, v| s.databases = v.number()),
    p("dbfilename", FileName, "dump.rdb", Protected)
        .to(|s, v| s.dbfilename = v.text.into()),
    p("dir", Dir, "", Protected)
        .to(|s, v| s.dir = v.path()),
    p("direct-io", Choice(&DirectIo::NAMES), DirectIo::NAMES[0], AtStart)
        .to(|s, v| s.io.direct = DirectIo::by_name(v.text).unwrap_or_default())
        .own("Whether the page file is read and written around the page cache. `auto`: where its file system lets it. `yes`: \
              the server does not start where it does not."),
    p("enable-debug-command", PROTECTION, "no", AtStart)
        .to(|s, v| s.debug_command = v.protection()),
    p("enable-module-command", PROTECTION, "no", AtStart),
    p("enable-protected-configs", PROTECTION, "no", AtStart)
        .to(|s, v| s.protected_configs = v.protection()),
    a("hash-max-listpack-entries", "hash-max-ziplist-entries", LONG, "512", Live)
        .to(|s, v| s.collection_limits.hash_entries = v.number()),
    a("hash-max-listpack-value", "hash-max-ziplist-value", SIZE, "64", Live)
        .to(|s, v| s.collection_limits.hash_value_bytes = v.number()),
    p("huge-pages", Bool, "yes", AtStart)
        .to(|s, v| s.huge_pages = v.yes())
        .own("Back tree nodes and slabs with huge pages."),
    p("hll-sparse-max-bytes", SIZE, "3000", Live)
        .to(|s, v| s.hll_sparse_max_bytes = v.number()),
    p("hz", Hertz, "10", Live)
        .to(|s, v| s.hz = v.number()),
    p("io-engine", Choice(&IoEngine::NAMES), IoEngine::NAMES[0], AtStart)
        .to(|s, v| s.io.engine = IoEngine::by_name(v.text).unwrap_or_default())
        .own("What has many operations of the page file under way at a time. `auto`: `io_uring` where the system lets it, else \
              threads. `io_uring`: the server does not start without."),
    a("io-threads", "workers", Int { min: 1, max: 128 }, "1", AtStart)
        .to(|s, v| s.workers = v.number())
        .own("Threads that serve, all on one store. In Redis the same setting only moves reading and writing to other threads."),
    p("key-load-delay", ANY_INT, "0", Live)
        .to(|s, v| s.key_load_delay_us = v.number())
        .hidden(),
    p("latency-monitor-threshold", LONG, "0", Live)
        .to(|s, v| s.latency_threshold = Some(Duration::from_millis(v.number())).filter(|t| !t.is_zero())),
    p("latency-tracking", Bool, "yes", Live)
        .to(|s, v| s.latency_tracking = v.yes()),
    p("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live)
        .to(|s, v| s.percentiles = v.words().filter_map(|w| w.parse().ok()).collect()),
    p("lfu-decay-time", NATURAL, "1", Live)
        .to(|s, v| s.lfu_decay_minutes = v.number()),
    p("lfu-log-factor", NATURAL, "10", Live)
        .to(|s, v| s.lfu_log_factor = v.number()),
    a("list-max-listpack-size", "list-max-ziplist-size", ANY_INT, "-2", Live)
        .to(|s, v| s.list_max_listpack_size = v.number()),
    p("log-error", Choice(&["exit", "read-only"]), "exit", Live)
        .to(|s, v| s.log.exits_on_error = v.is("exit"))
        .own("What to do with `appendfsync always` when the log cannot be written. Clients whose replies wait are disconnected unanswered in any \
              case. `read-only`: what is there is served, and changes are refused, until a checkpoint succeeds."),
    p("log-max-size", SIZE, "0", AtStart)
        .to(|s, v| s.log.max_bytes = Some(v.number()).filter(|bytes| *bytes > 0))
        .own("Bytes that the log may take on disk; beyond them a checkpoint has to free some first. 0: what there is."),
    p("log-memory", SIZE, "0", AtStart)
        .to(|s, v| s.log.memory_bytes = v.number())
        .own("Bytes of the log that may wait to be written before writers wait. 0: a sixteenth of `maxmemory`, 1 to 64 MB."),
    p("log-replay-limit", Memory { min: 1 << 20, max: i64::MAX as u64 }, "268435456", Live)
        .to(|s, v| s.log.replay_limit_bytes = v.number())
        .own("A checkpoint is taken once a start would have to replay so much of the log."),
    p("log-sync", Choice(&SyncMethod::NAMES), SyncMethod::NAMES[0], AtStart)
        .to(|s, v| s.log.method = v.sync_method())
        .own("How the log is made durable: by writes that are (`RWF_DSYNC`), or by `fdatasync` after them. `auto`: what is faster on this \
              disk, measured."),
    p("lua-memory-limit", SIZE, "0", Live)
        .to(|s, v| s.scripts.memory_bytes = v.number())
        .own("Memory that a script may take, garbage not counted; a run that takes more ends with an error. 0: a sixteenth of `maxmemory`, \
              or of the machine's memory, and at least 64 MB. Each worker has a state of its own."),
    p("logfile", Text, "", AtStart)
        .to(|s, v| s.logfile = v.path()),
    p("loglevel", Choice(&LEVELS), "notice", Live)
        .to(|s, v| s.loglevel = LEVELS.iter().position(|l| v.is(l)).unwrap_or(2) as u8),
    p("maxclients", Int { min: 1, max: u32::MAX as i64 }, "10000", Live)
        .to(|s, v| s.maxclients = v.number()),
    p("maxmemory", LARGE, "0", Live)
        .to(|s, v| s.maxmemory_bytes = v.number()),
    p("maxmemory-clients", MemoryOrPercent, "0", Live)
        .to(|s, v| s.client_memory = v.client_memory()),
    p("maxmemory-eviction-tenacity", Int { min: 0, max: 100 }, "10", Live)
        .to(|s, v| s.eviction_tenacity = v.number()),
    p("maxmemory-policy", POLICIES, MemoryPolicy::TIERED, Live)
        .to(|s, v| s.memory_policy = v.memory_policy())
        .own("`tiered`: what does not fit into `maxmemory` is in the page file alone, and is read when it is asked for."),
    p("maxmemory-samples", Int { min: 1, max: I32 }, "5", Live)
        .to(|s, v| s.eviction_sample_count = v.number()),
    p("notify-keyspace-events", Events, "", Live)
        .to(|s, v| s.notified = v.events()),
    p("pidfile", Text, "", AtStart)
        .to(|s, v| s.pidfile = v.path()),
    p("pool-backend", BACKENDS, "auto", AtStart)
        .to(|s, v| s.pool_backend = v.text.parse().ok())
        .own("How pages are found in memory. `vmcache`: each has an address, and evicting it gives memory back to the system. `array`: each lies in a frame, frames in huge pages, and evicting it makes the frame free. `exmap`: as `vmcache`, with memory of the kernel module exmap (`docs/guide/kernel-module.md`), which must be loaded. `auto`: `array` where data may be larger than `maxmemory`, or the snapshot algorithm keeps two places a page, else `vmcache`."),
    p("port", Int { min: 0, max: 65535 }, "6379", Live)
        .to(|s, v| s.port = v.number()),
    p("protected-mode", Bool, "yes", Live)
        .to(|s, v| s.protected_mode = v.yes()),
    p("proto-max-bulk-len", Memory { min: 1 << 20, max: i64::MAX as u64 }, "536870912", Live)
        .to(|s, v| s.max_bulk_bytes = v.number::<i64>().min(i64::from(u32::MAX))),
    p("rdb-key-save-delay", ANY_INT, "0", Live)
        .to(|s, v| s.rdb_key_save_delay_us = v.number())
        .hidden(),
    p("rdb-skip-unsupported", Bool, "no", AtStart)
        .to(|s, v| s.rdb_skip_unsupported = v.yes())
        .own("Leave keys of types that are not stored out of a `dump.rdb`, instead of refusing it."),
    p("rdb-version", Choice(&["auto", "10", "12"]), "auto", Live)
        .to(|s, v| s.rdb_version = v.rdb_version())
        .own("Version of the dumps that are written. `10` is read by Redis from 7.0 on and by Valkey, and has no form for deadlines of a \
              hash's fields: with one, the save fails and says so. `12` has, and is read by Redis from 7.4 on. `auto`: `12` if there is one, else `10`."),
    p("rdbchecksum", Bool, "yes", AtStart)
        .to(|s, v| s.rdb_checksum = v.yes()),
    p("rdbcompression", Bool, "yes", Live)
        .to(|s, v| s.rdb_compression = v.yes()),
    p("requirepass", Text, "", Live)
        .to(|s, v| s.requirepass = v.bytes.to_vec()),
    p("save", SavePoints, "3600 1 300 100 60 10000", Live)
        .to(|s, v| s.save_points = v.save_points()),
    p("script-kill-after", LONG, "0", Live)
        .to(|s, v| s.scripts.killed_after = Some(v.number()).filter(|ms| *ms > 0).map(Duration::from_millis))
        .own("Milliseconds after which a script that has changed nothing is ended, as `SCRIPT KILL` does. 0: never."),
    p("scripting", Bool, "yes", AtStart)
        .to(|s, v| s.scripts.are_off = !v.yes())
        .own("Whether there are scripts and functions. `no`: `EVAL` and its kin are refused."),
    p("scrub-interval", NATURAL, "86400", Live)
        .to(|s, v| s.scrub_interval = Some(v.seconds()).filter(|interval| !interval.is_zero()))
        .own("Seconds in which the whole page file is read and verified, at 32 MB/s at most. 0: not at all."),
    p("set-max-intset-entries", LONG, "512", Live)
        .to(|s, v| s.collection_limits.intset_entries = v.number()),
    p("shutdown-on-sigint", SHUTDOWN, "default", Live)
        .to(|s, v| s.on_sigint = v.shutdown_flags()),
    p("shutdown-on-sigterm", SHUTDOWN, "default", Live)
        .to(|s, v| s.on_sigterm = v.shutdown_flags()),
    p("shutdown-timeout", NATURAL, "10", Ignored),
    p("slowlog-log-slower-than", Int { min: -1, max: i64::MAX }, "10000", Live)
        .to(|s, v| s.slowlog_threshold = u64::try_from(v.number::<i64>()).ok().map(Duration::from_micros)),
    p("slowlog-max-len", LONG, "128", Live)
        .to(|s, v| s.slowlog_max_len = v.number()),
    a("snapshot-algorithm", "snapshotter", Choice(&SnapshotKind::NAMES), SnapshotKind::NAMES[0], AtStart)
        .to(|s, v| s.snapshot_kind = v.text.parse().unwrap_or_default())
        .own("How a cut is kept. All but `epoch` are for comparisons: `fork` lets the kernel copy pages, as Redis does, and the \
            others are those of the comparative study (`docs/internals/decisions.md` says what each wants)."),
    p("snapshot-format", Choice(&["pages", "rdb"]), "pages", Live)
        .to(|s, v| s.snapshot_format = if v.is("rdb") { SnapshotFormat::Rdb } else { SnapshotFormat::Pages })
        .own("What `SAVE`, `BGSAVE` and save points write. `BGSAVE RDB` and `BGSAVE PAGES` choose once."),
    p("snapshot-memory", Memory { min: 1 << 20, max: u64::MAX }, "67108864", AtStart)
        .to(|s, v| s.snapshot_memory_bytes = v.number())
        .own("Bound of what snapshots hold in memory: before-images, spare frames, and freed pages that a cut still needs. Where data may be larger than `maxmemory`, not more than an eighth of that."),
    p("stop-writes-on-bgsave-error", Bool, "yes", Live)
        .to(|s, v| s.stop_writes_on_save_error = v.yes()),
    p("stream-node-max-bytes", SIZE, "4096", Live)
        .to(|s, v| s.collection_limits.stream_node_bytes = v.number()),
    p("stream-node-max-entries", LONG, "100", Live)
        .to(|s, v| s.collection_limits.stream_node_entries = v.number()),
    p("supervised", Choice(&["upstart", "systemd", "auto", "no"]), "no", AtStart)
        .to(|s, v| s.supervised = v.is("systemd") || v.is("auto")),
    p("tcp-backlog", NATURAL, "511", AtStart)
        .to(|s, v| s.tcp_backlog = v.number()),
    p("tcp-keepalive", NATURAL, "300", Live)
        .to(|s, v| s.tcp_keepalive = v.seconds()),
    p("timeout", NATURAL, "0", Live)
        .to(|s, v| s.timeout = v.seconds()),
    p("unixsocket", Text, "", AtStart)
        .to(|s, v| s.unixsocket = v.path()),
    p("unixsocketperm", Octal, "0", AtStart)
        .to(|s, v| s.unixsocketperm = u32::from_str_radix(v.text, 8).ok().filter(|mode| *mode != 0)),
    a("zset-max-listpack-entries", "zset-max-ziplist-entries", LONG, "128", Live)
        .to(|s, v| s.collection_limits.sorted_set_entries = v.number()),
    a("zset-max-listpack-value", "zset-max-ziplist-value", SIZE, "64", Live)
        .to(|s, v| s.collection_limits.sorted_set_value_bytes = v.number()),
    // What would promise something that is not there.
    p("aclfile", Text, "", OnlyAtStart(NO_ACL)),
    p("activedefrag", Bool, "no", Only(NO_DEFRAGMENTATION)),
    p("cluster-enabled", Bool, "no", OnlyAtStart(NO_CLUSTER)),
    a("min-replicas-to-write", "min-slaves-to-write", NATURAL, "0", Only(NO_REPLICATION)),
    a("replicaof", "slaveof", Words { min: 0, max: 2 }, "", OnlyAtStart(NO_REPLICATION)),
    p("tls-cluster", Bool, "no", Only(NO_TLS)),
    p("tls-port", Int { min: 0, max: 65535 }, "0", Only(NO_TLS)),
    p("tls-replication", Bool, "no", Only(NO_TLS)),
    // What is answered as Redis answers it and changes nothing.
    p("acl-pubsub-default", Choice(&["allchannels", "resetchannels"]), "resetchannels", Ignored),
    p("activerehashing", Bool, "yes", Ignored),
    p("active-defrag-cycle-max", Int { min: 1, max: 99 }, "25", Ignored),
    p("active-defrag-cycle-min", Int { min: 1, max: 99 }, "1", Ignored),
    p("active-defrag-ignore-bytes", Memory { min: 1, max: i64::MAX as u64 }, "104857600", Ignored),
    p("active-defrag-max-scan-fields", Int { min: 1, max: i64::MAX }, "1000", Ignored),
    p("active-defrag-threshold-lower", Int { min: 0, max: 1000 }, "10", Ignored),
    p("active-defrag-threshold-upper", Int { min: 0, max: 1000 }, "100", Ignored),
    p("active-expire-effort", Int { min: 1, max: 10 }, "1", Ignored),
    p("always-show-logo", Bool, "no", IgnoredAtStart),
    p("aof-disable-auto-gc", Bool, "no", Ignored),
    p("aof-rewrite-incremental-fsync", Bool, "yes", Ignored),
    p("aof-timestamp-enabled", Bool, "no", Only(NO_TIMES)),
    p("aof-use-rdb-preamble", Bool, "yes", Ignored),
    p("aof_rewrite_cpulist", Text, "", IgnoredAtStart),
    p("bgsave_cpulist", Text, "", IgnoredAtStart),
    p("bind-source-addr", Text, "", Ignored),
    p("bio_cpulist", Text, "", IgnoredAtStart),
    p("cluster-allow-pubsubshard-when-down", Bool, "yes", Ignored),
    p("cluster-allow-reads-when-down", Bool, "no", Ignored),
    p("cluster-allow-replica-migration", Bool, "yes", Ignored),
    p("cluster-announce-bus-port", Int { min: 0, max: 65535 }, "0", Ignored),
    p("cluster-announce-hostname", Text, "", Ignored),
    p("cluster-announce-ip", Text, "", Ignored),
    p("cluster-announce-port", Int { min: 0, max: 65535 }, "0", Ignored),
    p("cluster-announce-tls-port", Int { min: 0, max: 65535 }, "0", Ignored),
    p("cluster-config-file", Text, "nodes.conf", IgnoredAtStart),
    p("cluster-link-sendbuf-limit", LARGE, "0", Ignored),
    p("cluster-migration-barrier", NATURAL, "1", Ignored),
    p("cluster-node-timeout", LONG, "15000", Ignored),
    p("cluster-port", Int { min: 0, max: 65535 }, "0", IgnoredAtStart),
    p("cluster-preferred-endpoint-type", Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", Ignored),
    a("cluster-replica-no-failover", "cluster-slave-no-failover", Bool, "no", Ignored),
    a("cluster-replica-validity-factor", "cluster-slave-validity-factor", NATURAL, "10", Ignored),
    p("cluster-require-full-coverage", Bool, "yes", Ignored),
    p("crash-log-enabled", Bool, "yes", Ignored),
    p("crash-memcheck-enabled", Bool, "yes", Ignored),
    p("disable-thp", Bool, "yes", IgnoredAtStart),
    p("dynamic-hz", Bool, "yes", Ignored),
    p("ignore-warnings", Text, "", Ignored),
    p("io-threads-do-reads", Bool, "no", IgnoredAtStart),
    p("jemalloc-bg-thread", Bool, "yes", Ignored),
    p("lazyfree-lazy-eviction", Bool, "no", Ignored),
    p("lazyfree-lazy-expire", Bool, "no", Ignored),
    p("lazyfree-lazy-server-del", Bool, "no", Ignored),
    p("lazyfree-lazy-user-del", Bool, "no", Ignored),
    p("lazyfree-lazy-user-flush", Bool, "no", Ignored),
    p("list-compress-depth", NATURAL, "0", Ignored),
    p("loading-process-events-interval-bytes", Memory { min: 1024, max: i32::MAX as u64 }, "2097152", Ignored).hidden(),
    p("locale-collate", Text, "", Ignored),
    p("masterauth", Text, "", Ignored),
    p("masteruser", Text, "", Ignored),
    a("min-replicas-max-lag", "min-slaves-max-lag", NATURAL, "10", Ignored),
    p("no-appendfsync-on-rewrite", Bool, "no", Ignored),
    p("oom-score-adj", Choice(&["no", "yes", "relative", "absolute"]), "no", Ignored),
    p("oom-score-adj-values", Words { min: 3, max: 3 }, "0 200 800", Ignored),
    p("proc-title-template", Title, "{title} {listen-addr} {server-mode}", Ignored),
    p("propagation-error-behavior", Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", Ignored),
    p("rdb-del-sync-files", Bool, "no", Ignored),
    p("rdb-save-incremental-fsync", Bool, "yes", Ignored),
    a("replica-announce-ip", "slave-announce-ip", Text, "", Ignored),
    a("replica-announce-port", "slave-announce-port", Int { min: 0, max: 65535 }, "0", Ignored),
    p("replica-announced", Bool, "yes", Ignored),
    p("replica-ignore-disk-write-errors", Bool, "no", Ignored),
    a("replica-ignore-maxmemory", "slave-ignore-maxmemory", Bool, "yes", Ignored),
    a("replica-lazy-flush", "slave-lazy-flush", Bool, "no", Ignored),
    a("replica-priority", "slave-priority", NATURAL, "100", Ignored),
    a("replica-read-only", "slave-read-only", Bool, "yes", Ignored),
    a("replica-serve-stale-data", "slave-serve-stale-data", Bool, "yes", Ignored),
    p("repl-backlog-size", Memory { min: 1, max: i64::MAX as u64 }, "1048576", Ignored),
    p("repl-backlog-ttl", LONG, "3600", Ignored),
    p("repl-disable-tcp-nodelay", Bool, "no", Ignored),
    p("repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", Ignored),
    p("repl-diskless-sync", Bool, "yes", Ignored),
    p("repl-diskless-sync-delay", NATURAL, "5", Ignored),
    p("repl-diskless-sync-max-replicas", NATURAL, "0", Ignored),
    a("repl-ping-replica-period", "repl-ping-slave-period", Int { min: 1, max: I32 }, "10", Ignored),
    p("repl-timeout", Int { min: 1, max: I32 }, "60", Ignored),
    p("sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no", Ignored),
    p("server_cpulist", Text, "", IgnoredAtStart),
    p("set-max-listpack-entries", LONG, "128", Ignored),
    p("set-max-listpack-value", LONG, "64", Ignored),
    p("set-proc-title", Bool, "yes", IgnoredAtStart),
    p("socket-mark-id", LONG, "0", IgnoredAtStart),
    p("syslog-enabled", Bool, "no", IgnoredAtStart),
    p("syslog-facility", Text, "local0", IgnoredAtStart),
    p("syslog-ident", Text, "redis", IgnoredAtStart),
    p("tls-auth-clients", Choice(&["no", "yes", "optional"]), "yes", Ignored),
    p("tls-ca-cert-dir", Text, "", Ignored),
    p("tls-ca-cert-file", Text, "", Ignored),
    p("tls-cert-file", Text, "", Ignored),
    p("tls-ciphers", Text, "", Ignored),
    p("tls-ciphersuites", Text, "", Ignored),
    p("tls-client-cert-file", Text, "", Ignored),
    p("tls-client-key-file", Text, "", Ignored),
    p("tls-client-key-file-pass", Text, "", Ignored),
    p("tls-dh-params-file", Text, "", Ignored),
    p("tls-key-file", Text, "", Ignored),
    p("tls-key-file-pass", Text, "", Ignored),
    p("tls-prefer-server-ciphers", Bool, "no", Ignored),
    p("tls-protocols", Text, "", Ignored),
    p("tls-session-cache-size", NATURAL, "20480", Ignored),
    p("tls-session-cache-timeout", NATURAL, "300", Ignored),
    p("tls-session-caching", Bool, "yes", Ignored),
    p("tracking-table-max-keys", LONG, "1000000", Ignored),
    p("use-exit-on-panic", Bool, "no", Ignored).hidden(),
    p("watchdog-period", NATURAL, "0", Ignored).hidden(),
];

/// Directives of Redis that cannot be ignored, with the reason.
pub static REFUSED: &[(&str, &str)] = &[
    ("loadmodule", "modules are not available"),
    ("rename-command", "commands cannot be renamed"),
    ("user", NO_ACL),
];

/// Number of a row in [`PARAMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParamId(pub usize);

impl ParamId {
    pub fn param(self) -> &'static Param {
        &PARAMS[self.0]
    }

    /// Finds a parameter by name or alias, in any case.
    pub fn find(name: &[u8]) -> Option<ParamId> {
        let is = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        PARAMS.iter().position(|p| is(p.name) || p.alias.is_some_and(is)).map(ParamId)
    }
}

impl Param {
    /// A password or a part of one: logs do not show it.
    pub fn is_secret(&self) -> bool {
        matches!(
            self.name,
            "masterauth" | "masteruser" | "requirepass" | "tls-client-key-file-pass" | "tls-key-file-pass"
        )
    }

    /// It is not only taken.
    pub fn has_effect(&self) -> bool {
        matches!(self.effect, Live | AtStart | Protected)
    }

    /// The default as one would write it.
    pub fn shown_default(&self) -> String {
        match (self.kind, self.default.parse::<u64>()) {
            (_, Err(_)) if self.default.is_empty() => "\"\"".to_owned(),
            (Memory { .. }, Ok(bytes)) if bytes > 0 && bytes % (1 << 20) == 0 => {
                format!("{}mb", bytes >> 20)
            }
            _ => self.default.to_owned(),
        }
    }

    pub fn has_several_words(&self) -> bool {
        matches!(
            self.kind,
            Kind::SavePoints | Kind::OutputLimits | Kind::Percentiles | Kind::Words { .. } | Kind::Flags(_)
        )
    }

    pub fn is_default(&self, value: &[u8]) -> bool {
        // `replicaof no one` is the default in words.
        value == self.default.as_bytes()
            || (self.name == "replicaof" && value.eq_ignore_ascii_case(b"no one"))
    }
}
