//! Rows of the commands on keys and databases.

use crate::command::{acl, flag, key_flag, Begin, Command, Find, Group, KeySpec, Scope};
use crate::commands::{database, debug, dump, expire, keys, memory, object, scan, sort};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("copy", -3, flag::WRITE | flag::DENYOOM, keys::copy).acl(acl::KEYSPACE)
        .doc(Group::Generic, "6.2.0", "Copy a key", "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .other_keys(keys::copy_other_keys),
    Command::new("del", -2, flag::WRITE, keys::del).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Delete a key", "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RM | key_flag::DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .quick(),
    Command::new("dump", 2, flag::READONLY, dump::dump).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Return a serialized version of the value stored at the specified key.", "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("exists", -2, flag::READONLY | flag::FAST, keys::exists).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Determine if a key exists", "O(N) where N is the number of keys to check.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    Command::new("expire", -3, flag::WRITE | flag::FAST, expire::expire).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Set a key's time to live in seconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("expireat", -3, flag::WRITE | flag::FAST, expire::expireat).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.2.0", "Set the expiration for a key as a UNIX timestamp", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("expiretime", 2, flag::READONLY | flag::FAST, expire::expiretime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "7.0.0", "Get the expiration Unix timestamp for a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("flushall", -1, flag::WRITE, database::flushall).scope(Scope::Flush).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Remove all keys from all databases", "O(N) where N is the total number of keys in all databases")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("flushdb", -1, flag::WRITE, database::flushdb).scope(Scope::Flush).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Remove all keys from the current database", "O(N) where N is the number of keys in the selected database")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("dbsize", 1, flag::READONLY | flag::FAST, database::dbsize).scope(Scope::Counters).acl(acl::KEYSPACE)
        .doc(Group::Server, "1.0.0", "Return the number of keys in the selected database", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    Command::new("keys", 2, flag::READONLY, scan::keys).scope(Scope::Data).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Generic, "1.0.0", "Find all keys matching the given pattern", "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    Command::container("memory", -2, 0)
        .doc(Group::Server, "4.0.0", "A container for memory diagnostics commands", "Depends on subcommand."),
    Command::new("memory|usage", -3, flag::READONLY, memory::usage)
        .doc(Group::Server, "4.0.0", "Estimate the memory usage of a key", "O(N) where N is the number of samples.")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)]),
    Command::new("memory|stats", 2, 0, memory::stats)
        .doc(Group::Server, "4.0.0", "Show memory usage details", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|malloc-stats", 2, 0, memory::malloc_stats)
        .doc(Group::Server, "4.0.0", "Show allocator internal stats", "Depends on how much memory is allocated, could be slow")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|doctor", 2, 0, memory::doctor)
        .doc(Group::Server, "4.0.0", "Outputs memory problems report", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|purge", 2, 0, memory::purge)
        .doc(Group::Server, "4.0.0", "Ask the allocator to release memory", "Depends on how much memory is allocated, could be slow")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("memory|help", 2, flag::LOADING | flag::STALE, memory::help)
        .doc(Group::Server, "4.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("debug", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, debug::debug).scope(Scope::Of(debug::scope))
        .doc(Group::Server, "1.0.0", "A container for debugging commands", "Depends on subcommand."),
    Command::new("move", 3, flag::WRITE | flag::FAST, keys::move_key).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Move a key to another database", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)])
        .other_keys(keys::move_other_keys),
    Command::container("object", -2, 0)
        .doc(Group::Generic, "2.2.3", "A container for object introspection commands", "Depends on subcommand."),
    Command::new("object|freq", 3, flag::READONLY, object::freq).acl(acl::KEYSPACE)
        .doc(Group::Generic, "4.0.0", "Get the logarithmic access frequency counter of a Redis object", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|idletime", 3, flag::READONLY, object::idletime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Get the time since a Redis object was last accessed", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|help", 2, flag::LOADING | flag::STALE, object::help).acl(acl::KEYSPACE)
        .doc(Group::Generic, "6.2.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("object|refcount", 3, flag::READONLY, object::refcount).in_steps().acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Get the number of references to the value of the key", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("object|encoding", 3, flag::READONLY, object::encoding).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.3", "Inspect the internal encoding of a Redis object", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)])
        .tips(&["nondeterministic_output"]),
    Command::new("persist", 2, flag::WRITE | flag::FAST, expire::persist).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.2.0", "Remove the expiration from a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpire", -3, flag::WRITE | flag::FAST, expire::pexpire).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Set a key's time to live in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpireat", -3, flag::WRITE | flag::FAST, expire::pexpireat).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Set the expiration for a key as a UNIX timestamp specified in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("pexpiretime", 2, flag::READONLY | flag::FAST, expire::pexpiretime).acl(acl::KEYSPACE)
        .doc(Group::Generic, "7.0.0", "Get the expiration Unix timestamp for a key in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("pttl", 2, flag::READONLY | flag::FAST, expire::pttl).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.6.0", "Get the time to live for a key in milliseconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("randomkey", 1, flag::READONLY, scan::randomkey).scope(Scope::Walk).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Return a random key from the keyspace", "O(1)")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    Command::new("rename", 3, flag::WRITE, keys::rename).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Rename a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE)]),
    Command::new("renamenx", 3, flag::WRITE | flag::FAST, keys::renamenx).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Rename a key, only if the new key does not exist", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::INSERT)]),
    Command::new("restore", -4, flag::WRITE | flag::DENYOOM, dump::restore).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Generic, "2.6.0", "Create a key using the provided serialized value, previously obtained using DUMP.", "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)]),
    Command::new("scan", -2, flag::READONLY, scan::scan).scope(Scope::Walk).acl(acl::KEYSPACE)
        .doc(Group::Generic, "2.8.0", "Incrementally iterate the keys space", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.")
        .tips(&["nondeterministic_output", "request_policy:special"]),
    Command::new("sort", -2, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, sort::sort).acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "1.0.0", "Sort the elements in a list, set or sorted set", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }, KeySpec { notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array", flags: key_flag::OW | key_flag::UPDATE, begin: Begin::Unknown, find: Find::Unknown }])
        .keys_fn(sort::sort_keys),
    Command::new("sort_ro", -2, flag::READONLY | flag::MOVABLEKEYS, sort::sort_ro).acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "7.0.0", "Sort the elements in a list, set or sorted set. Read-only variant of SORT.", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }])
        .keys_fn(sort::sort_keys),
    Command::new("swapdb", 3, flag::WRITE | flag::FAST, database::swapdb).scope(Scope::Swap).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "4.0.0", "Swaps two Redis databases", "O(N) where N is the count of clients watching or blocking on keys from both databases."),
    Command::new("touch", -2, flag::READONLY | flag::FAST, keys::touch).acl(acl::KEYSPACE)
        .doc(Group::Generic, "3.2.1", "Alters the last access time of a key(s). Returns the number of existing keys specified.", "O(N) where N is the number of keys that will be touched.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    Command::new("ttl", 2, flag::READONLY | flag::FAST, expire::ttl).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Get the time to live for a key in seconds", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("type", 2, flag::READONLY | flag::FAST, keys::type_of).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Determine the type stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("unlink", -2, flag::WRITE | flag::FAST, keys::del).acl(acl::KEYSPACE)
        .doc(Group::Generic, "4.0.0", "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.", "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RM | key_flag::DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .quick(),
];
