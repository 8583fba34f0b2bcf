//! How two replies to the same command are compared.
//!
//! Equal means byte for byte. The exemptions are these, and no others (`docs/guide/compatibility.md` says why):
//!
//! | command | compared |
//! |---|---|
//! | `KEYS` | as sets |
//! | `ACL CAT category`, `COMMAND LIST` with a filter | as sets |
//! | `HKEYS`, `HVALS`, `HGETALL` | as multisets, of pairs |
//! | `SMEMBERS`, `SINTER`, `SUNION`, `SDIFF`, `SPOP` | as sets |
//! | `HRANDFIELD`, `SRANDMEMBER`, `ZRANDMEMBER` | the shape, and how many there are |
//! | `HSCAN`, `SSCAN`, `ZSCAN` | as `SCAN` |
//! | `SCAN` | a single call: the shape; a whole iteration: as sets, and no key twice |
//! | `RANDOMKEY` | both null, or the subject's key is one that the oracle has |
//! | `TTL PTTL EXPIRETIME PEXPIRETIME` | within the time that the sequence may have taken |
//! | `DUMP` | the oracle restores the subject's payload to the same value |
//! | `OBJECT IDLETIME`, `MEMORY USAGE` | both null, or both integers |
//! | `MEMORY STATS`, `MEMORY MALLOC-STATS`, `DEBUG OBJECT` | the type, and of `DEBUG OBJECT` the encoding |
//! | `XPENDING`, `XINFO` | without times, and nodes of the radix tree |
//! | `XADD` with an ID of the clock, `MINID ~` | not generated |
//! | `OBJECT REFCOUNT`, `DEBUG OBJECT` in a transaction | the type |
//! | `TIME`, `LASTSAVE` | the type |
//! | `DBSIZE`, `MEMORY USAGE`, `DEBUG OBJECT`, `SCAN ... TYPE none` after `SET ... EXAT` or `PXAT` | not generated |
//! | unknown command or option names of Redis after 7.0 | not generated |

use std::mem::Discriminant;

use stillframe_testkit::Reply;

/// See the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Exact,
    Unordered,
    /// Fields and values in any order, as a map or flat.
    Pairs,
    /// Arrays of as many items, each of the same shape.
    Counted,
    ScanStep,
    RandomKey,
    /// Integers that may differ by at most this much, if neither is negative.
    Within(i64),
    Dump,
    DebugObject,
    /// What tells of times is left out.
    Timeless,
    Shape,
}

/// The comparison for a command; `args[0]` is its name.
pub fn mode_of(args: &[Vec<u8>]) -> Mode {
    let word = |i: usize| args.get(i).map(|a| a.to_ascii_uppercase()).unwrap_or_default();
    match word(0).as_slice() {
        b"KEYS" | b"HKEYS" | b"HVALS" => Mode::Unordered,
        b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF" | b"SPOP" => Mode::Unordered,
        b"HGETALL" => Mode::Pairs,
        b"HRANDFIELD" | b"SRANDMEMBER" | b"ZRANDMEMBER" => Mode::Counted,
        b"ACL" if word(1) == b"CAT" && args.len() == 3 => Mode::Unordered,
        b"COMMAND" if word(1) == b"LIST" && args.len() == 5 => Mode::Unordered,
        b"SCAN" | b"HSCAN" | b"SSCAN" | b"ZSCAN" => Mode::ScanStep,
        b"RANDOMKEY" => Mode::RandomKey,
        b"TTL" | b"EXPIRETIME" => Mode::Within(3),
        b"PTTL" | b"PEXPIRETIME" => Mode::Within(3000),
        b"DUMP" => Mode::Dump,
        b"XPENDING" | b"XINFO" => Mode::Timeless,
        b"TIME" | b"LASTSAVE" => Mode::Shape,
        b"OBJECT" if word(1) == b"IDLETIME" => Mode::Shape,
        b"MEMORY" if matches!(word(1).as_slice(), b"USAGE" | b"STATS" | b"MALLOC-STATS") => Mode::Shape,
        b"DEBUG" if word(1) == b"OBJECT" => Mode::DebugObject,
        _ => Mode::Exact,
    }
}

/// The comparison for a command that is run by `EXEC`.
pub fn mode_inside(args: &[Vec<u8>]) -> Mode {
    match mode_of(args) {
        Mode::Exact if args.get(1).is_some_and(|w| w.eq_ignore_ascii_case(b"REFCOUNT")) => Mode::Shape,
        Mode::DebugObject => Mode::Shape,
        mode => mode,
    }
}

/// Whether two replies agree. What needs a second look at the oracle ([`Mode::Dump`], [`Mode::RandomKey`])
/// is only compared in shape here; the runner does the rest.
pub fn agree(mode: Mode, oracle: &Reply, subject: &Reply) -> bool {
    if oracle == subject {
        return true;
    }
    if oracle.is_error() || subject.is_error() {
        return false;
    }
    match mode {
        Mode::Exact => false,
        Mode::Unordered => sorted(oracle).is_some() && sorted(oracle) == sorted(subject),
        Mode::Pairs => pairs(oracle).is_some() && pairs(oracle) == pairs(subject),
        Mode::Counted => match (oracle.try_items(), subject.try_items()) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| shape(a) == shape(b)),
            _ => shape(oracle) == shape(subject),
        },
        Mode::ScanStep => matches!(
            (oracle.try_items(), subject.try_items()),
            (Some([Reply::Bulk(_), a]), Some([Reply::Bulk(_), b]))
                if a.try_items().is_some() && b.try_items().is_some()
        ),
        Mode::Within(limit) => match (oracle.integer(), subject.integer()) {
            (Some(a), Some(b)) => a >= 0 && b >= 0 && a.abs_diff(b) <= limit as u64,
            _ => false,
        },
        Mode::RandomKey | Mode::Dump | Mode::Shape => shape(oracle) == shape(subject),
        Mode::Timeless => timeless(oracle) == timeless(subject),
        Mode::DebugObject => debug_object(oracle).is_some() && debug_object(oracle) == debug_object(subject),
    }
}

/// A reply with zeros in the place of times: what is named so, and the third or second part of a pending entry.
fn timeless(reply: &Reply) -> Reply {
    const TIMES: [&[u8]; 3] = [b"idle", b"seen-time", b"radix-tree-nodes"];
    let zero = Reply::Int(0);
    match reply {
        Reply::Map(pairs) => {
            let timeless_pair = |(name, value): &(Reply, Reply)| match name {
                Reply::Bulk(text) if TIMES.contains(&&text[..]) => (name.clone(), zero.clone()),
                _ => (name.clone(), timeless(value)),
            };
            Reply::Map(pairs.iter().map(timeless_pair).collect())
        }
        Reply::Array(items) => {
            let mut made: Vec<Reply> = items.iter().map(timeless).collect();
            for index in 1..made.len() {
                if matches!(&made[index - 1], Reply::Bulk(name) if TIMES.contains(&&name[..])) {
                    made[index] = zero.clone();
                }
            }
            match &made[..] {
                [Reply::Bulk(_), Reply::Bulk(_), Reply::Int(_), Reply::Int(_)] => made[2] = zero,
                [Reply::Bulk(_), Reply::Int(_), Reply::Int(_)] => made[1] = zero,
                _ => {}
            }
            Reply::Array(made)
        }
        other => other.clone(),
    }
}

fn sorted(reply: &Reply) -> Option<Vec<&Reply>> {
    let mut items: Vec<_> = reply.try_items()?.iter().collect();
    items.sort();
    Some(items)
}

/// The pairs of a map, or of an array of fields and values in turn, in one order.
fn pairs(reply: &Reply) -> Option<(bool, Vec<(&Reply, &Reply)>)> {
    let (is_map, mut pairs): (bool, Vec<(&Reply, &Reply)>) = match reply {
        Reply::Map(pairs) => (true, pairs.iter().map(|(field, value)| (field, value)).collect()),
        other => (false, other.try_items()?.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()),
    };
    pairs.sort();
    Some((is_map, pairs))
}

fn shape(reply: &Reply) -> (Discriminant<Reply>, Option<u8>) {
    let tag = match reply {
        Reply::Scalar(tag, _) => Some(*tag),
        _ => None,
    };
    (std::mem::discriminant(reply), tag)
}

/// Reference count and encoding out of `DEBUG OBJECT`'s line; addresses and clocks differ.
fn debug_object(reply: &Reply) -> Option<Vec<String>> {
    let Reply::Simple(text) = reply else { return None };
    let text = String::from_utf8_lossy(text).into_owned();
    let field = |name: &str| text.split(' ').find(|w| w.starts_with(name)).map(str::to_owned);
    Some(vec![text.split(':').next()?.to_owned(), field("refcount:")?, field("encoding:")?])
}
