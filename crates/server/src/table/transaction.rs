use crate::command::{acl, flag, key_flag, Command, Group, KeySpec};
use crate::commands::transaction;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("multi", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY, transaction::multi)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "1.2.0", "Mark the start of a transaction block", "O(1)"),
    Command::new("exec", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::SKIP_SLOWLOG, transaction::exec)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "1.2.0", "Execute all commands issued after MULTI", "Depends on commands in the transaction"),
    Command::new("discard", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY, transaction::discard)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.0.0", "Discard all commands issued after MULTI", "O(N), when N is the number of queued commands"),
    Command::new("watch", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY, transaction::watch)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.2.0", "Watch the given keys to determine execution of the MULTI/EXEC block", "O(1) for every key.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)]),
    Command::new("unwatch", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY, transaction::unwatch)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.2.0", "Forget about all watched keys", "O(1)"),
];
