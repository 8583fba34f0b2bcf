//! The commands by group: each function beside its row of the table.

mod bitfield;
mod bitmap;
mod bitop;
mod blocking;
mod counter;
mod database;
mod debug;
mod dump;
mod expire;
mod geo;
mod geo_search;
mod hash;
mod hash_deadlines;
mod hyperloglog;
mod keys;
mod lcs;
mod list;
mod memory;
mod object;
mod random;
mod scan;
mod set;
mod set_combine;
mod sets;
mod sort;
mod sorted_set;
mod sorted_set_combine;
mod sorted_set_pop;
mod sorted_set_range;
mod stream;
mod stream_group;
mod stream_info;
mod stream_pending;
mod stream_range;
mod stream_read;
mod string;

mod client;
mod cluster;
mod configuration;
mod connection;
mod function;
mod info;
mod introspection;
mod latency;
mod persistence;
mod pubsub;
mod script;
mod server;
mod slowlog;
mod transaction;
mod users;
mod walk;
pub mod while_busy;

use std::sync::LazyLock;

use crate::dispatch::ctx::{Command, Registry};

/// The rows, group by group. A container is followed by its subcommands.
static GROUPS: &[&[Command]] = &[
    string::COMMANDS,
    counter::COMMANDS,
    set::COMMANDS,
    lcs::COMMANDS,
    bitmap::COMMANDS,
    bitop::COMMANDS,
    bitfield::COMMANDS,
    hash::COMMANDS,
    hyperloglog::COMMANDS,
    hash_deadlines::COMMANDS,
    sorted_set::COMMANDS,
    sorted_set_range::COMMANDS,
    sorted_set_pop::COMMANDS,
    sorted_set_combine::COMMANDS,
    geo::COMMANDS,
    geo_search::COMMANDS,
    list::COMMANDS,
    stream::COMMANDS,
    stream_range::COMMANDS,
    stream_read::COMMANDS,
    stream_info::COMMANDS,
    stream_group::COMMANDS,
    stream_pending::COMMANDS,
    sets::COMMANDS,
    set_combine::COMMANDS,
    blocking::COMMANDS,
    keys::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    database::COMMANDS,
    scan::COMMANDS,
    memory::COMMANDS,
    debug::COMMANDS,
    object::COMMANDS,
    sort::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    transaction::COMMANDS,
    users::COMMANDS,
    pubsub::COMMANDS,
    script::COMMANDS,
    function::COMMANDS,
    persistence::COMMANDS,
    introspection::COMMANDS,
    configuration::COMMANDS,
    server::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    slowlog::COMMANDS,
];

/// All commands that there are; handed down to whoever looks one up.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(GROUPS));

/// With further commands, which are those of a test.
#[cfg(test)]
pub fn registry_with(more: &'static [Command]) -> Registry {
    Registry::new(&[GROUPS, &[more]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Touch;

    #[test]
    fn a_row_touches_keys_if_it_has_some() {
        for row in REGISTRY.rows() {
            let depends = matches!(row.touch, Touch::Of(_));
            let depends = depends || matches!(row.touch, Touch::Script);
            assert!(depends || row.touch.is_of_keys() == row.has_keys(), "{}: {:?}", row.name, row.touch);
        }
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        for row in REGISTRY.rows() {
            let found = REGISTRY.find(row.name.as_bytes()).expect(row.name);
            assert_eq!(found.command.name, row.name);
            assert!(std::ptr::eq(REGISTRY.rows()[found.id.0 as usize], found.command));
            assert_eq!(REGISTRY.find(row.name.to_ascii_uppercase().as_bytes()).map(|f| f.id), Some(found.id));
        }
    }

    #[test]
    fn other_names_are_not() {
        for name in [
            "",
            "ge",
            "gett",
            "g\x05t",
            "restore\rasking",
            "sort\x7fro",
            "get\0",
            "a long name of no command",
        ] {
            assert!(REGISTRY.lookup(name.as_bytes()).is_none(), "{name:?}");
        }
        // Every byte in the place of every letter.
        for at in 0..6 {
            for byte in 0..=255 {
                let mut name = *b"append";
                name[at] = byte;
                assert_eq!(
                    REGISTRY.lookup(&name).is_some(),
                    name.eq_ignore_ascii_case(b"append"),
                    "{name:?}"
                );
            }
        }
    }
}
