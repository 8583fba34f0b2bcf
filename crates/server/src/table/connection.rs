use crate::command::{acl, flag, Command, Group};
use crate::commands::{client, connection};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("auth", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, connection::auth)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Authenticate to the server", "O(N) where N is the number of passwords defined for the user"),
    Command::container("client", -2, 0)
        .acl(0)
        .doc(Group::Connection, "2.4.0", "A container for client connection commands", "Depends on subcommand."),
    Command::new("client|caching", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::caching)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Instruct the server about tracking or not keys in the next request", "O(1)"),
    Command::new("client|getname", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::getname)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.6.9", "Get the current connection name", "O(1)"),
    Command::new("client|getredir", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::getredir)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Get tracking notifications redirection client ID if any", "O(1)"),
    Command::new("client|help", 2, flag::LOADING | flag::STALE, client::help)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("client|id", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::id)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Returns the client ID for the current connection", "O(1)"),
    Command::new("client|info", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::info)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Returns information about the current client connection.", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("client|kill", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::kill)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.4.0", "Kill the connection of a client", "O(N) where N is the number of client connections"),
    Command::new("client|list", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::list)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.4.0", "Get the list of client connections", "O(N) where N is the number of client connections")
        .tips(&["nondeterministic_output"]),
    Command::new("client|no-touch", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::no_touch)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.2.0", "Controls whether commands sent by the client affect the LRU/LFU of accessed keys", "O(1)"),
    Command::new("client|setinfo", 4, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::setinfo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.2.0", "Sets information specific to the client or connection", "O(1)"),
    Command::new("client|no-evict", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::no_evict)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.0.0", "Set client eviction mode for the current connection", "O(1)"),
    Command::new("client|pause", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::pause)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.9.50", "Stop processing commands from clients for some time", "O(1)"),
    Command::new("client|reply", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::reply)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "3.2.0", "Instruct the server whether to reply to commands", "O(1)"),
    Command::new("client|setname", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::setname)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.6.9", "Set the current connection name", "O(1)"),
    Command::new("client|tracking", -3, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::tracking)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Enable or disable server assisted client side caching support", "O(1). Some options may introduce additional complexity."),
    Command::new("client|trackinginfo", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, client::trackinginfo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Return information about server assisted client side caching for the current connection", "O(1)"),
    Command::new("client|unblock", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::unblock)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Unblock a client blocked in a blocking command from a different connection", "O(log N) where N is the number of client connections"),
    Command::new("client|unpause", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, client::unpause)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Resume processing of clients that were paused", "O(N) Where N is the number of paused clients"),
    Command::new("echo", 2, flag::LOADING | flag::STALE | flag::FAST, connection::echo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Echo the given string", "O(1)"),
    Command::new("hello", -1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, connection::hello)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Handshake with Redis", "O(1)"),
    Command::new("ping", -1, flag::FAST, connection::ping)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Ping the server", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("quit", -1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, connection::quit)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Close the connection", "O(1)"),
    Command::new("reset", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, connection::reset)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Reset the connection", "O(1)"),
    Command::new("select", 2, flag::LOADING | flag::STALE | flag::FAST, connection::select)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Change the selected database for the current connection", "O(1)"),
];
