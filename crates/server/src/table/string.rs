use crate::command::{acl, flag, key_flag, Command, Group, KeySpec};
use crate::commands::string;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("get", 2, flag::READONLY | flag::FAST, string::get)
        .acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Get the value of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];
