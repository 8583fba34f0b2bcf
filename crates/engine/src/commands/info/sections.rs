//! The sections of `INFO`, with Redis's field names.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stillframe_store::{sched, DbId, SnapshotKind, Summary};
use stillframe_units::redis_bytes;

use crate::clock::unix_ms;
use crate::command::CommandId;
use crate::commands::connection::REDIS_VERSION;
use crate::commands::info::system::{cpu_seconds, kernel, total_memory_bytes};
use crate::commands::latency::{all_times, command_times};
use crate::dispatch::ctx::Ctx;
use crate::persistence::{Status, Target};
use crate::server::Server;
use crate::state::clients::client_flag;
use crate::state::heap::resident_bytes;
use crate::state::stats::{CommandStats, WorkerStats};
use crate::state::subscription::Kind;

/// Appends `name:value` lines.
macro_rules! fields {
    ($out:expr, $($name:literal: $value:expr),* $(,)?) => {
        // Writing to a string does not fail.
        $( let _ = write!($out, concat!($name, ":{}\r\n"), $value); )*
    };
}

fn seconds(value: f64) -> String {
    format!("{value:.6}")
}

fn yes(flag: bool) -> u8 {
    u8::from(flag)
}

pub fn server(ctx: &Ctx<'_>, out: &mut String) {
    let (server, settings) = (ctx.server, &ctx.config.settings);
    let uptime = server.started_at.elapsed().as_secs();
    let now_us = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros());
    let executable = std::env::current_exe().unwrap_or_default();
    let file = ctx.config.file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    fields!(out,
        "redis_version": REDIS_VERSION,
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_build_id": "stillframe",
        "redis_mode": "standalone",
        "stillframe_version": env!("CARGO_PKG_VERSION"),
        "os": kernel(),
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "process_supervised": if settings.supervised { "systemd" } else { "no" },
        "run_id": server.run_id,
        "tcp_port": server.sockets.tcp_port(),
        "server_time_usec": now_us,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "hz": settings.hz,
        "configured_hz": settings.hz,
        "lru_clock": (unix_ms() / 1000) & 0xff_ffff,
        "executable": executable.display(),
        "config_file": file,
        "io_threads_active": yes(server.worker_count > 1),
    );
}

pub fn clients(ctx: &Ctx<'_>, out: &mut String) {
    let (mut blocked, mut max_input, mut max_output) = (0, 0, 0);
    for client in ctx.server.clients.all() {
        let published = &client.published;
        blocked += usize::from(published.flags.load(Relaxed) & client_flag::BLOCKED != 0);
        max_input = max_input.max(published.input_bytes.load(Relaxed));
        max_output = max_output.max(published.output_bytes.load(Relaxed));
    }
    fields!(out,
        "connected_clients": ctx.server.clients.count(),
        "cluster_connections": 0,
        "maxclients": ctx.config.settings.maxclients,
        "client_recent_max_input_buffer": max_input,
        "client_recent_max_output_buffer": max_output,
        "blocked_clients": blocked,
        "tracking_clients": 0,
        "clients_in_timeout_table": ctx.server.waiters.with_deadline_count(),
    );
}

pub fn memory(ctx: &Ctx<'_>, out: &mut String) {
    let (used, of_clients) = (ctx.server.used_memory_bytes(), ctx.server.clients.memory_bytes());
    let peak = ctx.server.stats.used_memory_peak_bytes.fetch_max(used, Relaxed).max(used);
    let resident = resident_bytes();
    let total = total_memory_bytes();
    let max = ctx.config.settings.maxmemory_bytes;
    let ratio = resident as f64 / used.max(1) as f64;
    let policy = ctx.config.settings.memory_policy;
    let of_lua = ctx.server.sum(|stats| stats.lua_bytes.get());
    let (script_count, script_bytes, _) = ctx.server.scripts.counts();
    let (library_count, function_count) = ctx.server.scripts.library_counts();
    if let Some(shares) = ctx.server.store.memory_shares() {
        fields!(out,
            "maxmemory_for_data_pages": shares.page_bytes,
            "maxmemory_for_snapshots": shares.snapshot_bytes,
            "maxmemory_for_staging": shares.staging_bytes,
            "maxmemory_for_page_tables": shares.side_bytes,
        );
    }
    fields!(out,
        "used_memory": used,
        "used_memory_human": redis_bytes(used),
        "used_memory_rss": resident,
        "used_memory_rss_human": redis_bytes(resident),
        "used_memory_peak": peak,
        "used_memory_peak_human": redis_bytes(peak),
        "used_memory_peak_perc": format!("{:.2}%", used as f64 * 100.0 / peak.max(1) as f64),
        "total_system_memory": total,
        "total_system_memory_human": redis_bytes(total),
        "used_memory_lua": of_lua,
        "used_memory_vm_eval": of_lua,
        "used_memory_lua_human": redis_bytes(of_lua),
        "used_memory_scripts_eval": script_bytes,
        "number_of_cached_scripts": script_count,
        "number_of_functions": function_count,
        "number_of_libraries": library_count,
        "used_memory_vm_functions": 0,
        "used_memory_vm_total": of_lua,
        "used_memory_vm_total_human": redis_bytes(of_lua),
        "used_memory_functions": 0,
        "used_memory_scripts": script_bytes,
        "used_memory_scripts_human": redis_bytes(script_bytes as u64),
        "maxmemory": max,
        "maxmemory_human": redis_bytes(max),
        // Queues warn of every other policy, since theirs would be evicted. Here nothing is.
        "maxmemory_policy": policy.redis_name(),
        "maxmemory_policy_in_force": policy.name(),
        "mem_fragmentation_ratio": format!("{ratio:.2}"),
        "mem_fragmentation_bytes": resident as i64 - used as i64,
        "mem_not_counted_for_evict": ctx.server.store.unused_memory_bytes() + of_clients,
        "mem_replication_backlog": 0,
        "mem_total_replication_buffers": 0,
        "mem_clients_slaves": 0,
        "mem_clients_normal": of_clients,
        "mem_cluster_links": 0,
        "mem_aof_buffer": ctx.server.store.log().buffered_bytes(),
        "mem_allocator": "pages",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": 0,
        "lazyfreed_objects": 0,
    );
}

/// Bytes of a page and of a slot of the page file.
const PAGE_BYTES: u64 = 4096;

fn running_seconds(status: &Status) -> i64 {
    status.running.as_ref().map_or(-1, |(_, start)| start.elapsed().as_secs() as i64)
}

/// How far a save is.
struct SaveProgress {
    part: f64,
    done_keys: u64,
    total_keys: u64,
}

/// Nothing of a save is left to tell once it has ended. A dump counts keys; in a checkpoint they are done in proportion
/// to pages.
fn save_progress(server: &Server) -> SaveProgress {
    let of = |done: u64, total: u64| (done as f64 / total.max(1) as f64).min(1.0);
    let (dumping, pages) = (&server.saver.dumping, server.store.save_progress());
    if !pages.running {
        let (done_keys, total_keys) = (dumping.done_keys.load(Relaxed), dumping.total_keys.load(Relaxed));
        return SaveProgress { part: of(done_keys, total_keys), done_keys, total_keys };
    }
    let part = of(pages.pages_done, pages.pages_total);
    let total_keys = (0..server.database_count).map(|db| server.store.db_stats(DbId(db)).key_count).sum();
    SaveProgress { part, done_keys: (part * total_keys as f64) as u64, total_keys }
}

pub fn persistence(ctx: &Ctx<'_>, out: &mut String) {
    let server = ctx.server;
    let status = server.saver.status();
    let sizes = server.store.pool().stats();
    let while_saving = |bytes: u64| if status.running.is_some() { bytes } else { 0 };
    let progress = save_progress(server);
    // Once: the load may end in between, and who reads that it is on looks for the fields.
    let is_loading = server.loading.is_on();
    let load = server.loading.status();
    let damaged_page_count = server.store.damage().pages().page_count;
    let skips = server.store.damage().skip_stats();
    let scrubbed = server.store.damage().scrub_stats();
    fields!(out,
        "loading": yes(is_loading),
        "async_loading": 0,
        "current_cow_peak": while_saving(sizes.snapshot_peak_held_bytes),
        "current_cow_size": while_saving(sizes.snapshot_held_bytes),
        "current_cow_size_age": 0,
        "current_fork_perc": format!("{:.2}", 100.0 * progress.part),
        "current_save_keys_processed": progress.done_keys,
        "current_save_keys_total": progress.total_keys,
        "rdb_changes_since_last_save": server.saver.unsaved_changes(server.change_count()),
        "rdb_bgsave_in_progress": yes(status.running.is_some()),
        "rdb_last_save_time": status.last_save_unix_seconds,
        "rdb_last_bgsave_status": if status.last_error.is_none() { "ok" } else { "err" },
        "page_file_status": match (server.store.page_file_failure(), damaged_page_count) {
            (Some(_), _) => "failed",
            (None, 0) => "ok",
            (None, _) => "damaged",
        },
        "page_file_damaged_pages": damaged_page_count,
        "damage_places_skipped": skips.passed_count,
        "damage_places_given_up": skips.given_up_count,
        "scrub_pages": scrubbed.page_count,
        "scrub_bad_pages": scrubbed.bad_page_count,
        "scrub_healed_pages": scrubbed.healed_page_count,
        "rdb_last_bgsave_time_sec": status.last_duration.map_or(-1, |d| d.as_secs() as i64),
        "rdb_current_bgsave_time_sec": running_seconds(&status),
        "rdb_saves": status.save_count,
        "rdb_last_cow_size": status.last_held_peak_bytes,
        "rdb_last_load_keys_expired": load.expired_count,
        "rdb_last_load_keys_loaded": load.key_count,
    );
    append_only(ctx, &status, out);
    fields!(out,
        "module_fork_in_progress": 0,
        "module_fork_last_cow_size": 0,
    );
    if is_loading {
        fields!(out,
            "loading_start_time": load.started_unix_seconds,
            "loading_total_bytes": load.total_bytes,
            "loading_rdb_used_mem": load.writer_memory_bytes,
            "loading_loaded_bytes": load.loaded_bytes,
            "loading_loaded_perc": format!("{:.2}", load.percent()),
            "loading_eta_seconds": load.eta_seconds(unix_ms() / 1000),
        );
    }
}

/// A rewrite of Redis is a checkpoint here, once there is a log.
fn append_only(ctx: &Ctx<'_>, status: &Status, out: &mut String) {
    let server = ctx.server;
    let (log, is_on) = (server.store.log().report(), ctx.config.settings.log.is_on);
    let is_rewriting = is_on && matches!(status.running, Some((Target::Pages, _)));
    let base_bytes = server.store.pool().stats().allocated_pages * PAGE_BYTES;
    fields!(out,
        "aof_enabled": yes(is_on),
        "aof_rewrite_in_progress": yes(is_rewriting),
        "aof_rewrite_scheduled": yes(is_on && server.saver.is_scheduled(&Target::Pages)),
        "aof_last_rewrite_time_sec": status.last_duration.filter(|_| is_on).map_or(-1, |d| d.as_secs() as i64),
        "aof_current_rewrite_time_sec": if is_rewriting { running_seconds(status) } else { -1 },
        "aof_last_bgrewrite_status": if is_on && status.last_error.is_some() { "err" } else { "ok" },
        "aof_rewrites": if is_on { status.checkpoint_count } else { 0 },
        "aof_rewrites_consecutive_failures": if is_on { status.failed_in_a_row } else { 0 },
        "aof_last_write_status": if log.failure.is_some() { "err" } else { "ok" },
        "aof_last_cow_size": if is_on { status.last_held_peak_bytes } else { 0 },
    );
    if let Some(journal) = log.journal.filter(|_| is_on) {
        fields!(out,
            "aof_current_size": base_bytes + log.replay_bytes,
            "aof_base_size": base_bytes,
            "aof_pending_rewrite": 0,
            "aof_buffer_length": journal.buffered_bytes,
            "aof_pending_bio_fsync": journal.pending_sync_count,
            "aof_delayed_fsync": journal.delayed_sync_count,
        );
    }
}

pub fn stats(ctx: &Ctx<'_>, out: &mut String) {
    let server = ctx.server;
    let sum = |counter: fn(&WorkerStats) -> u64| server.sum(counter);
    let load = |counter: &AtomicU64| counter.load(Relaxed);
    let kbps = |counter: &AtomicU64| format!("{:.2}", load(counter) as f64 / 1024.0);
    let (forks, status) = (ctx.config.settings.snapshot_kind == SnapshotKind::Fork, server.saver.status());
    // A single worker is what the main thread is in Redis.
    let by_threads = |count: u64| if server.worker_count > 1 { count } else { 0 };
    let totals = &server.stats;
    let exceeded = server.eviction.exceeded();
    fields!(out,
        "total_connections_received": load(&totals.connections_received),
        "total_commands_processed": sum(|s| s.commands.get()),
        "instantaneous_ops_per_sec": load(&totals.ops_per_second),
        "total_net_input_bytes": sum(|s| s.input_bytes.get()),
        "total_net_output_bytes": sum(|s| s.output_bytes.get()),
        "total_net_repl_input_bytes": 0,
        "total_net_repl_output_bytes": 0,
        "instantaneous_input_kbps": kbps(&totals.input_bytes_per_second),
        "instantaneous_output_kbps": kbps(&totals.output_bytes_per_second),
        "instantaneous_input_repl_kbps": "0.00",
        "instantaneous_output_repl_kbps": "0.00",
        "rejected_connections": load(&totals.connections_rejected),
        "sync_full": 0,
        "sync_partial_ok": 0,
        "sync_partial_err": 0,
        "expired_subkeys": sum(|s| s.expired_fields.get()),
        "expired_keys": sum(|s| s.expired.get()),
        "expire_cycle_cpu_milliseconds": sum(|s| s.expire_nanos.get()) / 1_000_000,
        "evicted_keys": server.eviction.key_count(),
        "evicted_scripts": server.scripts.counts().2,
        "evicted_clients": load(&totals.clients_evicted),
        "total_eviction_exceeded_time": exceeded.total.as_millis(),
        "current_eviction_exceeded_time": exceeded.current.as_millis(),
        "keyspace_hits": sum(|s| s.keyspace_hits.get()),
        "keyspace_misses": sum(|s| s.keyspace_misses.get()),
        "pubsub_channels": server.pubsub.name_count(Kind::Channel),
        "pubsub_patterns": server.pubsub.name_count(Kind::Pattern),
        "pubsubshard_channels": server.pubsub.name_count(Kind::Shard),
        "latest_fork_usec": if forks { status.last_checkpoint.cut.as_micros() } else { 0 },
        "total_forks": if forks { status.checkpoint_count } else { 0 },
        "migrate_cached_sockets": 0,
        "slave_expires_tracked_keys": 0,
        "active_defrag_hits": 0,
        "active_defrag_misses": 0,
        "active_defrag_key_hits": 0,
        "active_defrag_key_misses": 0,
        "total_active_defrag_time": 0,
        "current_active_defrag_time": 0,
        "tracking_total_keys": 0,
        "tracking_total_items": 0,
        "tracking_total_prefixes": 0,
        "unexpected_error_replies": 0,
        "total_error_replies": server.errors.lock().values().sum::<u64>(),
        "dump_payload_sanitizations": 0,
        "total_reads_processed": sum(|s| s.reads.get()),
        "total_writes_processed": sum(|s| s.writes.get()),
        "io_threaded_reads_processed": by_threads(sum(|s| s.reads.get())),
        "io_threaded_writes_processed": by_threads(sum(|s| s.writes.get())),
        "client_query_buffer_limit_disconnections": load(&totals.query_limit_closed),
        "client_output_buffer_limit_disconnections": load(&totals.output_limit_closed),
    );
}

pub fn replication(ctx: &Ctx<'_>, out: &mut String) {
    fields!(out,
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": ctx.server.run_id,
        "master_replid2": "0".repeat(40),
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 1_048_576,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    );
}

pub fn cpu(_ctx: &Ctx<'_>, out: &mut String) {
    let process = cpu_seconds("/proc/self/stat");
    let thread = cpu_seconds("/proc/thread-self/stat");
    fields!(out,
        "used_cpu_sys": seconds(process.system),
        "used_cpu_user": seconds(process.user),
        "used_cpu_sys_children": seconds(process.children_system),
        "used_cpu_user_children": seconds(process.children_user),
        "used_cpu_sys_main_thread": seconds(thread.system),
        "used_cpu_user_main_thread": seconds(thread.user),
    );
}

pub fn modules(_ctx: &Ctx<'_>, _out: &mut String) {}

/// Calls `give` for each command that has been called or refused.
fn for_each_used(
    ctx: &Ctx<'_>,
    mut give: impl FnMut(CommandId, &str, &dyn Fn(fn(&CommandStats) -> u64) -> u64),
) {
    for (number, row) in ctx.registry.rows().iter().enumerate() {
        let id = CommandId(number as u16);
        let sum = |counter: fn(&CommandStats) -> u64| ctx.server.sum(|s| counter(s.command(id)));
        if sum(|c| c.calls.get() + c.rejected.get() + c.failed.get()) > 0 {
            give(id, row.name, &sum);
        }
    }
}

pub fn commandstats(ctx: &Ctx<'_>, out: &mut String) {
    for_each_used(ctx, |_, name, sum| {
        let (calls, usec) = (sum(|c| c.calls.get()), sum(|c| c.nanos.get()) / 1000);
        let each = sum(|c| c.nanos.get()) as f64 / 1000.0 / calls.max(1) as f64;
        let (rejected, failed) = (sum(|c| c.rejected.get()), sum(|c| c.failed.get()));
        let _ = write!(
            out,
            "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls={rejected},\
             failed_calls={failed}\r\n"
        );
    });
}

pub fn errorstats(ctx: &Ctx<'_>, out: &mut String) {
    for (code, count) in ctx.server.errors.lock().iter() {
        let _ = write!(out, "errorstat_{code}:count={count}\r\n");
    }
}

pub fn latencystats(ctx: &Ctx<'_>, out: &mut String) {
    for_each_used(ctx, |id, name, _| {
        let Some(times) = command_times(ctx.server, id) else { return };
        let percentile = |p: &f64| format!("p{p}={:.3}", times.value_at_percentile(*p) as f64 / 1000.0);
        let all: Vec<String> = ctx.config.settings.percentiles.iter().map(percentile).collect();
        let _ = write!(out, "latency_percentiles_usec_{name}:{}\r\n", all.join(","));
    });
}

pub fn cluster(_ctx: &Ctx<'_>, out: &mut String) {
    fields!(out, "cluster_enabled": 0);
}

pub fn keyspace(ctx: &Ctx<'_>, out: &mut String) {
    for db in 0..ctx.server.database_count {
        let stats = ctx.server.store.db_stats(DbId(db));
        if stats.key_count > 0 {
            let average = ctx.server.average_ttl_ms[db as usize].load(Relaxed);
            let _ = write!(
                out,
                "db{db}:keys={},expires={},avg_ttl={average}\r\n",
                stats.key_count, stats.deadline_count
            );
        }
    }
}

/// What Redis has no fields for: snapshots, page file, waits.
pub fn stillframe(ctx: &Ctx<'_>, out: &mut String) {
    let server = ctx.server;
    let status = server.saver.status();
    let progress = server.store.save_progress();
    let checkpoint = &status.last_checkpoint;
    let target = match &status.running {
        None => "none",
        Some((Target::Pages, _)) => "pages",
        Some((Target::Rdb, _)) => "rdb",
        Some((Target::Backup(_), _)) => "backup",
    };
    fields!(out,
        "workers": server.worker_count,
        "save_in_progress": target,
        "save_pages_done": progress.pages_done,
        "save_pages_total": progress.pages_total,
        "last_save_error": status.last_error.as_deref().unwrap_or("none"),
        "last_save_duration_us": status.last_duration.map_or(0, |d| d.as_micros()),
        "last_checkpoint_pages_changed": checkpoint.pages_changed,
        "last_checkpoint_bytes_written": checkpoint.bytes_written,
        "last_checkpoint_duration_us": checkpoint.duration.as_micros(),
        "last_checkpoint_barrier_wait_us": checkpoint.barrier_wait.as_micros(),
        "warmup_in_progress": yes(server.store.is_warming_up()),
        "protocol_errors": server.stats.protocol_errors.load(Relaxed),
        "batches": server.sum(|s| s.batches.get()),
        "busy_poll_hits": server.sum(|s| s.busy_poll_hits.get()),
    );
    snapshots(ctx, out);
    io(ctx, out);
    changes_log(ctx, out);
    background(out);
    if let Some(times) = all_times(server).filter(|times| !times.is_empty()) {
        let at = |p: f64| times.value_at_percentile(p) as f64 / 1000.0;
        let _ = write!(
            out,
            "command_time_us:p50={:.3},p99={:.3},p99.9={:.3},p99.99={:.3},max={:.3}\r\n",
            at(50.0),
            at(99.0),
            at(99.9),
            at(99.99),
            times.max() as f64 / 1000.0
        );
    }
}

/// The log of changes.
fn changes_log(ctx: &Ctx<'_>, out: &mut String) {
    let log = ctx.server.store.log().report();
    fields!(out, "log_status": log.status);
    let Some(journal) = log.journal else { return };
    let measured = |ns: Option<u64>| ns.map_or(-1.0, |ns| ns as f64 / 1e3);
    fields!(out,
        "log_end_offset": journal.end,
        "log_durable_offset": journal.durable,
        "log_replay_bytes": log.replay_bytes,
        "log_segments": journal.segment_count,
        "log_spare_segments": journal.spare_count,
        "log_disk_bytes": journal.disk_bytes,
        "log_units": journal.unit_count,
        "log_syncs": journal.sync_count,
        "log_units_per_sync": format!("{:.2}", journal.units_per_sync),
        "log_sync_us": format!("{:.1}", journal.mean_sync_ns as f64 / 1e3),
        "log_last_sync_us": format!("{:.1}", journal.last_sync_ns as f64 / 1e3),
        "log_sync_method": journal.method,
        "log_measured_dsync_us": format!("{:.1}", measured(journal.dsync_ns)),
        "log_measured_fdatasync_us": format!("{:.1}", measured(journal.fdatasync_ns)),
        "log_no_space": yes(journal.no_space),
    );
}

/// Sizes of page file and snapshot memory, and histograms of what snapshots cost, in microseconds.
fn snapshots(ctx: &Ctx<'_>, out: &mut String) {
    let pool = ctx.server.store.pool();
    let (sizes, metrics, barrier) = (pool.stats(), pool.metrics(), pool.barrier());
    let file = pool.file().map(|file| file.stats()).unwrap_or_default();
    let (warm_pages, all_pages) = pool.residency().progress();
    let allowed_bytes = ctx.config.settings.snapshot_memory_bytes;
    let snapshot_bytes =
        ctx.server.store.memory_shares().map_or(allowed_bytes, |shares| shares.snapshot_bytes);
    fields!(out,
        "pool_backend": pool.backend(),
        "pool_frame_bytes": sizes.frame_bytes,
        "pool_free_frame_bytes": sizes.free_frame_bytes,
        "pool_pages_relocated": metrics.relocated_page_count.load(Relaxed),
        "data_pages": sizes.allocated_pages,
        "data_pages_in_memory": sizes.resident_pages,
        "data_pages_in_memory_max": pool.room().limit_pages().unwrap_or(0),
        "access_tracking_bytes": ctx.server.store.accesses().memory_bytes(),
        "data_pages_loaded": metrics.loaded_page_count.load(Relaxed),
        "data_pages_read_in_place": metrics.in_place_page_count.load(Relaxed),
        "data_waits_in_place": metrics.in_place_wait_count.load(Relaxed),
        "data_pages_evicted": metrics.evicted_page_count.load(Relaxed),
        "data_pages_written_back": metrics.written_back_page_count.load(Relaxed),
        "data_page_write_back_errors": metrics.write_back_error_count.load(Relaxed),
        "snapshot_algorithm": ctx.config.settings.snapshot_kind,
        "snapshot_memory_bytes": snapshot_bytes,
        "snapshot_held_bytes": sizes.snapshot_held_bytes,
        "snapshot_resident_bytes": sizes.snapshot_resident_bytes,
        "pagefile_bytes": file.file_bytes,
        "pagefile_live_bytes": file.live_slots * PAGE_BYTES,
        "pagefile_free_bytes": file.free_slots * PAGE_BYTES,
        "pagefile_generation": file.generation,
        "warmup_pages_done": warm_pages,
        "warmup_pages_total": all_pages,
    );
    let histograms = [
        ("barrier_wait", barrier.wait.summary()),
        ("worker_wait", barrier.worker_wait.summary()),
        ("capture", metrics.capture.summary()),
        ("help", metrics.help.summary()),
        ("sweep", metrics.sweep.summary()),
        ("fsync", metrics.fsync.summary()),
        ("checkpoint", metrics.checkpoint.summary()),
        ("fault", metrics.fault.summary()),
    ];
    for (name, summary) in histograms {
        histogram(out, name, &summary);
    }
}

/// What reads and writes the page file, how much is under way, and how it went.
fn io(ctx: &Ctx<'_>, out: &mut String) {
    let Some(io) = ctx.server.store.io_report() else { return };
    fields!(out,
        "io_engine": io.engine,
        "io_engine_note": io.engine_note.as_deref().unwrap_or("none"),
        "io_direct": yes(io.is_direct),
        "io_direct_note": io.direct_note.unwrap_or("none"),
        "io_registered_buffers": yes(io.has_registered_buffers),
        "io_registered_buffers_note": io.buffers_note.as_deref().unwrap_or("none"),
        "io_queue_depth": io.depth,
        "io_queue_depth_peak": io.depth_peak,
        "io_sync_errors": io.sync_error_count,
    );
    for (name, ops) in [("read", io.reads), ("write", io.writes)] {
        let _ = write!(
            out,
            "io_{name}s:{}\r\nio_{name}_bytes:{}\r\nio_{name}_errors:{}\r\n",
            ops.latency.count, ops.byte_count, ops.error_count
        );
        histogram(out, &format!("io_{name}"), &ops.latency);
    }
}

/// How threads that work in the background are scheduled.
fn background(out: &mut String) {
    let report = sched::report();
    let threads = report.threads.iter().map(|(name, class)| format!("{name}={}", class.name()));
    fields!(out,
        "background_on_one_processor": yes(report.is_single),
        "background_idle_class": report.support.name(),
        "background_idle_steps": report.idle_step_count,
        "background_threads": threads.collect::<Vec<_>>().join(","),
    );
}

fn histogram(out: &mut String, name: &str, summary: &Summary) {
    let us = |ns: u64| ns as f64 / 1000.0;
    let _ = write!(
        out,
        "{name}_us:count={},p50={:.3},p99={:.3},p99.9={:.3},max={:.3}\r\n",
        summary.count,
        us(summary.p50_ns),
        us(summary.p99_ns),
        us(summary.p999_ns),
        us(summary.max_ns)
    );
}
