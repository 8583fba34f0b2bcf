//! Rows of the bit commands.

use crate::command::{acl, flag, key_flag, Command, Group, KeySpec};
use crate::commands::{bitfield, bitmap};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("bitcount", -2, flag::READONLY, bitmap::bitcount).in_steps().acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.6.0", "Count set bits in a string", "O(N)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("bitfield", -2, flag::WRITE | flag::DENYOOM, bitfield::bitfield).in_steps().acl(acl::BITMAP)
        .doc(Group::Bitmap, "3.2.0", "Perform arbitrary bitfield integer operations on strings", "O(1) for each subcommand specified")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE | key_flag::VARIABLE_FLAGS).notes("This command allows both access and modification of the key")])
        .flags_fn(bitfield::key_flags),
    Command::new("bitfield_ro", -2, flag::READONLY | flag::FAST, bitfield::bitfield_ro).in_steps().acl(acl::BITMAP)
        .doc(Group::Bitmap, "6.0.0", "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD", "O(1) for each subcommand specified")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("bitop", -4, flag::WRITE | flag::DENYOOM, bitmap::bitop).acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.6.0", "Perform bitwise operations between strings", "O(N)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(3, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("bitpos", -3, flag::READONLY, bitmap::bitpos).in_steps().acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.8.7", "Find first bit set or clear in a string", "O(N)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("getbit", 3, flag::READONLY | flag::FAST, bitmap::getbit).acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.2.0", "Returns the bit value at offset in the string value stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("setbit", 4, flag::WRITE | flag::DENYOOM, bitmap::setbit).acl(acl::BITMAP)
        .doc(Group::Bitmap, "2.2.0", "Sets or clears the bit at offset in the string value stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)])
        .quick(),
];
