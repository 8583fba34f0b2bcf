use crate::command::{acl, flag, Command, Group};
use crate::commands::{configuration, info, introspection, latency, persistence, server, slowlog, users};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("acl", -2, 0)
        .acl(0)
        .doc(Group::Server, "6.0.0", "A container for Access List Control commands ", "Depends on subcommand."),
    Command::new("acl|cat", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE, users::cat)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the ACL categories or the commands inside a category", "O(1) since the categories and commands are a fixed set."),
    Command::new("acl|genpass", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE, users::genpass)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Generate a pseudorandom secure password to use for ACL users", "O(1)"),
    Command::new("acl|getuser", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::getuser)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Get the rules for a specific ACL user", "O(N). Where N is the number of password, command and pattern rules that the user has."),
    Command::new("acl|help", 2, flag::LOADING | flag::STALE, users::help)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("acl|list", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::list)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the current ACL rules in ACL config file format", "O(N). Where N is the number of configured users."),
    Command::new("acl|load", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::no_file)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Reload the ACLs from the configured ACL file", "O(N). Where N is the number of configured users."),
    Command::new("acl|log", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::log)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List latest events denied because of ACLs in place", "O(N) with N being the number of entries shown."),
    Command::new("acl|save", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::no_file)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Save the current ACL rules in the configured ACL file", "O(N). Where N is the number of configured users."),
    Command::new("acl|users", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, users::users)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the username of all the configured ACL rules", "O(N). Where N is the number of configured users."),
    Command::new("acl|whoami", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, users::whoami)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Return the name of the user associated to the current connection", "O(1)"),
    Command::new("bgrewriteaof", 1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING, persistence::bgrewriteaof)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Asynchronously rewrite the append-only file", "O(1)"),
    Command::new("bgsave", -1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING, persistence::bgsave)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Asynchronously save the dataset to disk", "O(1)"),
    Command::new("backup", 3, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI, persistence::backup)
        .acl(0)
        .doc(Group::Server, "7.0.0", "Writes an RDB file of all databases as of now to a path (BACKUP TO path)", "O(1) for the clients; the file is written in the background"),
    Command::container("command", -1, flag::LOADING | flag::STALE)
        .alone(introspection::command)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get array of Redis command details", "O(N) where N is the total number of Redis commands")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|count", 2, flag::LOADING | flag::STALE, introspection::count)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get total number of Redis commands", "O(1)"),
    Command::new("command|docs", -2, flag::LOADING | flag::STALE, introspection::command_docs)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Get array of specific Redis command documentation", "O(N) where N is the number of commands to look up")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|getkeys", -4, flag::LOADING | flag::STALE, introspection::getkeys)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Extract keys given a full Redis command", "O(N) where N is the number of arguments to the command"),
    Command::new("command|getkeysandflags", -4, flag::LOADING | flag::STALE, introspection::getkeysandflags)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Extract keys and access flags given a full Redis command", "O(N) where N is the number of arguments to the command"),
    Command::new("command|help", 2, flag::LOADING | flag::STALE, introspection::help)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("command|info", -2, flag::LOADING | flag::STALE, introspection::info)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "2.8.13", "Get array of specific Redis command details, or all when no argument is given.", "O(N) where N is the number of commands to look up")
        .tips(&["nondeterministic_output_order"]),
    Command::new("command|list", -2, flag::LOADING | flag::STALE, introspection::list)
        .acl(acl::CONNECTION)
        .doc(Group::Server, "7.0.0", "Get an array of Redis command names", "O(N) where N is the total number of Redis commands")
        .tips(&["nondeterministic_output_order"]),
    Command::container("config", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.0.0", "A container for server configuration commands", "Depends on subcommand."),
    Command::new("config|get", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, configuration::get)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Get the values of configuration parameters", "O(N) when N is the number of configuration parameters provided"),
    Command::new("config|help", 2, flag::LOADING | flag::STALE, configuration::help)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("config|resetstat", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, configuration::resetstat)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Reset the stats returned by INFO", "O(1)"),
    Command::new("config|rewrite", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, configuration::rewrite)
        .acl(0)
        .doc(Group::Server, "2.8.0", "Rewrite the configuration file with the in memory configuration", "O(1)"),
    Command::new("config|set", -4, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, configuration::set)
        .acl(0)
        .doc(Group::Server, "2.0.0", "Set configuration parameters to the given values", "O(N) when N is the number of configuration parameters provided")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Command::new("failover", -1, flag::ADMIN | flag::NOSCRIPT | flag::STALE, server::failover)
        .acl(0)
        .doc(Group::Server, "6.2.0", "Start a coordinated failover between this server and one of its replicas.", "O(1)"),
    Command::new("info", -1, flag::LOADING | flag::STALE, info::info)
        .acl(acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Get information and statistics about the server", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("lastsave", 1, flag::LOADING | flag::STALE | flag::FAST, persistence::lastsave)
        .acl(acl::ADMIN | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Get the UNIX time stamp of the last successful save to disk", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::container("latency", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.8.13", "A container for latency diagnostics commands", "Depends on subcommand."),
    Command::new("latency|doctor", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::doctor)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return a human readable latency analysis report.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|graph", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::graph)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return a latency graph for the event.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|help", 2, flag::LOADING | flag::STALE, latency::help)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Show helpful text about the different subcommands.", "O(1)"),
    Command::new("latency|histogram", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::histogram)
        .acl(0)
        .doc(Group::Server, "7.0.0", "Return the cumulative distribution of latencies of a subset of commands or all.", "O(N) where N is the number of commands with latency information being retrieved.")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|history", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::history)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return timestamp-latency samples for the event.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|latest", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::latest)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Return the latest latency samples for all events.", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    Command::new("latency|reset", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, latency::reset)
        .acl(0)
        .doc(Group::Server, "2.8.13", "Reset latency data for one or more events.", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Command::new("lolwut", -1, flag::READONLY | flag::FAST, server::lolwut)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Display some computer art and the Redis version", ""),
    Command::new("monitor", 1, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, server::monitor)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Listen for all requests received by the server in real time", ""),
    Command::new("replicaof", 3, flag::ADMIN | flag::NOSCRIPT | flag::STALE | flag::NO_ASYNC_LOADING, server::replicaof)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Make the server a replica of another instance, or promote it as master.", "O(1)"),
    Command::new("role", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST, server::role)
        .acl(acl::ADMIN | acl::DANGEROUS)
        .doc(Group::Server, "2.8.12", "Return the role of the instance in the context of replication", "O(1)"),
    Command::new("save", 1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI, persistence::save)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Synchronously save the dataset to disk", "O(N) where N is the total number of keys in all databases"),
    Command::new("shutdown", -1, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::NO_MULTI | flag::ALLOW_BUSY, persistence::shutdown)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Synchronously save the dataset to disk and then shut down the server", "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)"),
    Command::new("slaveof", 3, flag::ADMIN | flag::NOSCRIPT | flag::STALE | flag::NO_ASYNC_LOADING, server::slaveof)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Make the server a replica of another instance, or promote it as master.", "O(1)"),
    Command::container("slowlog", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.2.12", "A container for slow log commands", "Depends on subcommand."),
    Command::new("slowlog|get", -2, flag::ADMIN | flag::LOADING | flag::STALE, slowlog::get)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Get the slow log's entries", "O(N) where N is the number of entries returned")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    Command::new("slowlog|help", 2, flag::LOADING | flag::STALE, slowlog::help)
        .acl(0)
        .doc(Group::Server, "6.2.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("slowlog|len", 2, flag::ADMIN | flag::LOADING | flag::STALE, slowlog::len)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Get the slow log's length", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    Command::new("slowlog|reset", 2, flag::ADMIN | flag::LOADING | flag::STALE, slowlog::reset)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Clear all entries from the slow log", "O(N) where N is the number of entries in the slowlog")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    Command::new("time", 1, flag::LOADING | flag::STALE | flag::FAST, server::time)
        .acl(0)
        .doc(Group::Server, "2.6.0", "Return the current server time", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("wait", 3, flag::NOSCRIPT, server::wait)
        .acl(acl::CONNECTION)
        .doc(Group::Generic, "3.0.0", "Wait for the synchronous replication of all the write commands sent in the context of the current connection", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    Command::container("module", -2, 0)
        .acl(0)
        .doc(Group::Server, "4.0.0", "A container for module commands", "Depends on subcommand."),
    Command::new("module|help", 2, flag::LOADING | flag::STALE, server::module_help)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("module|list", 2, flag::ADMIN | flag::NOSCRIPT, server::module_list)
        .acl(0)
        .doc(Group::Server, "4.0.0", "List all modules loaded by the server", "O(N) where N is the number of loaded modules.")
        .tips(&["nondeterministic_output_order"]),
];
