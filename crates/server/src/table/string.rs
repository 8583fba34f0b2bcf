//! Rows of the string commands.

use crate::command::{acl, flag, key_flag, Command, Group, KeySpec};
use crate::commands::{counter, lcs, set, string};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("append", 3, flag::WRITE | flag::DENYOOM | flag::FAST, string::append).acl(acl::STRING)
        .doc(Group::String, "2.0.0", "Append a value to a key", "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("decr", 2, flag::WRITE | flag::DENYOOM | flag::FAST, counter::decr).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Decrement the integer value of a key by one", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("decrby", 3, flag::WRITE | flag::DENYOOM | flag::FAST, counter::decrby).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Decrement the integer value of a key by the given number", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("get", 2, flag::READONLY | flag::FAST, string::get).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Get the value of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("getdel", 2, flag::WRITE | flag::FAST, set::getdel).acl(acl::STRING)
        .doc(Group::String, "6.2.0", "Get the value of a key and delete the key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("getex", -2, flag::WRITE | flag::FAST, set::getex).acl(acl::STRING)
        .doc(Group::String, "6.2.0", "Get the value of a key and optionally set its expiration", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE).notes("RW and UPDATE because it changes the TTL")])
        .quick(),
    Command::new("getrange", 4, flag::READONLY, string::getrange).acl(acl::STRING)
        .doc(Group::String, "2.4.0", "Get a substring of the string stored at a key", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .quick(),
    Command::new("getset", 3, flag::WRITE | flag::DENYOOM | flag::FAST, set::getset).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Set the string value of a key and return its old value", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incr", 2, flag::WRITE | flag::DENYOOM | flag::FAST, counter::incr).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Increment the integer value of a key by one", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incrby", 3, flag::WRITE | flag::DENYOOM | flag::FAST, counter::incrby).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Increment the integer value of a key by the given amount", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incrbyfloat", 3, flag::WRITE | flag::DENYOOM | flag::FAST, counter::incrbyfloat).acl(acl::STRING)
        .doc(Group::String, "2.6.0", "Increment the float value of a key by the given amount", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("lcs", -3, flag::READONLY, lcs::lcs).acl(acl::STRING)
        .doc(Group::String, "7.0.0", "Find longest common substring", "O(N*M) where N and M are the lengths of s1 and s2, respectively")
        .keys(&[KeySpec::range(1, 1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("mget", -2, flag::READONLY | flag::FAST, string::mget).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Get the values of all the given keys", "O(N) where N is the number of keys to retrieve.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["request_policy:multi_shard"]),
    Command::new("mset", -3, flag::WRITE | flag::DENYOOM, set::mset).acl(acl::STRING)
        .doc(Group::String, "1.0.1", "Set multiple keys to multiple values", "O(N) where N is the number of keys to set.")
        .keys(&[KeySpec::range(1, -1, 2, key_flag::OW | key_flag::UPDATE)])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    Command::new("msetnx", -3, flag::WRITE | flag::DENYOOM, set::msetnx).acl(acl::STRING)
        .doc(Group::String, "1.0.1", "Set multiple keys to multiple values, only if none of the keys exist", "O(N) where N is the number of keys to set.")
        .keys(&[KeySpec::range(1, -1, 2, key_flag::OW | key_flag::INSERT)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"]),
    Command::new("psetex", 4, flag::WRITE | flag::DENYOOM, set::psetex).acl(acl::STRING)
        .doc(Group::String, "2.6.0", "Set the value and expiration in milliseconds of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .quick(),
    Command::new("set", -3, flag::WRITE | flag::DENYOOM, set::set).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Set the string value of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE | key_flag::VARIABLE_FLAGS).notes("RW and ACCESS due to the optional `GET` argument")])
        .flags_fn(set::key_flags)
        .quick(),
    Command::new("setex", 4, flag::WRITE | flag::DENYOOM, set::setex).acl(acl::STRING)
        .doc(Group::String, "2.0.0", "Set the value and expiration of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .quick(),
    Command::new("setnx", 3, flag::WRITE | flag::DENYOOM | flag::FAST, set::setnx).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Set the value of a key, only if the key does not exist", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::INSERT)]),
    Command::new("setrange", 4, flag::WRITE | flag::DENYOOM, string::setrange).acl(acl::STRING)
        .doc(Group::String, "2.2.0", "Overwrite part of a string at key starting at the specified offset", "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("strlen", 2, flag::READONLY | flag::FAST, string::strlen).acl(acl::STRING)
        .doc(Group::String, "2.2.0", "Get the length of the value stored in a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("substr", 4, flag::READONLY, string::getrange).acl(acl::STRING)
        .doc(Group::String, "1.0.0", "Get a substring of the string stored at a key", "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .quick(),
];
