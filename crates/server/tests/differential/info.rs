//! The fields of `INFO`: those of the oracle, but for what is listed here.

use std::collections::{BTreeMap, BTreeSet};

use stillframe_testkit::log_flags;

use crate::server::{Kind, Server, STILLFRAME};

/// Fields of Redis that would say something untrue here. `docs/guide/compatibility.md` says why.
const LEFT_OUT: &[&str] = &[
    "atomicvar_api",
    "gcc_version",
    "used_memory_overhead",
    "used_memory_startup",
    "used_memory_dataset",
    "used_memory_dataset_perc",
    "allocator_allocated",
    "allocator_active",
    "allocator_resident",
    "allocator_frag_ratio",
    "allocator_frag_bytes",
    "allocator_rss_ratio",
    "allocator_rss_bytes",
    "rss_overhead_ratio",
    "rss_overhead_bytes",
    "expired_stale_perc",
    "expired_time_cap_reached_count",
    "reply_buffer_shrinks",
    "reply_buffer_expands",
];

/// Fields of this server, or of Redis 7.2, in sections of Redis.
const ADDED: &[&str] = &[
    "stillframe_version",
    "page_file_status",
    "page_file_damaged_pages",
    "client_query_buffer_limit_disconnections",
    "damage_places_given_up",
    "damage_places_skipped",
    "evicted_scripts",
    "expired_subkeys",
    "maxmemory_policy_in_force",
    "scrub_pages",
    "scrub_bad_pages",
    "scrub_healed_pages",
    "client_output_buffer_limit_disconnections",
];

/// Sections whose fields depend on what has happened, and that of this server.
const NOT_COMPARED: &[&str] = &["Commandstats", "Errorstats", "Latencystats", "Keyspace", "Stillframe"];

/// Names of fields by section.
fn fields_of(server: &Server) -> BTreeMap<String, BTreeSet<String>> {
    let reply = server.connect().expect("a connection").try_run("INFO everything").expect("a reply");
    let text = String::from_utf8_lossy(reply.bytes().expect("INFO gives a string")).into_owned();
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            section = title.to_owned();
            sections.entry(section.clone()).or_default();
        } else if let Some((name, _)) = line.split_once(':') {
            let is_new = sections.entry(section.clone()).or_default().insert(name.to_owned());
            assert!(is_new, "{name} is there twice");
        }
    }
    sections
}

/// Fields that Redis has with an append-only file, too.
const OF_LOG: [&str; 6] = [
    "aof_base_size",
    "aof_buffer_length",
    "aof_current_size",
    "aof_delayed_fsync",
    "aof_pending_bio_fsync",
    "aof_pending_rewrite",
];

#[test]
fn info_has_the_fields_of_the_oracle() {
    let (oracle, subject) = (Server::start(Kind::Oracle), Server::start(STILLFRAME));
    let (theirs, ours) = (fields_of(&oracle), fields_of(&subject));
    let (mut left_out, mut added) = (BTreeSet::new(), BTreeSet::new());
    for (title, fields) in theirs.iter().filter(|(title, _)| !NOT_COMPARED.contains(&title.as_str())) {
        let own = ours.get(title).unwrap_or_else(|| panic!("there is no section {title}"));
        left_out.extend(fields.difference(own).map(String::as_str));
        added.extend(own.difference(fields).map(String::as_str));
    }
    assert_eq!(left_out, LEFT_OUT.iter().copied().collect());
    let of_log = if log_flags().is_empty() { &[][..] } else { &OF_LOG };
    assert_eq!(added, ADDED.iter().chain(of_log).copied().collect());
    let more: Vec<_> = ours.keys().filter(|title| !theirs.contains_key(*title)).collect();
    assert_eq!(more, ["Stillframe"]);
}
