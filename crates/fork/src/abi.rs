//! `kernel/include/uapi/async_fork.h` in Rust. The test below parses the header itself and compares every constant,
//! every field, its order and its size, so that the two cannot drift apart.

use std::collections::HashMap;

pub use crate::version::{MODULE, STATISTICS_BYTES, VERSION};

use crate::error::{ForkError, Result};
use crate::explain::{reason_name, refusal_name};

pub const DEVICE: &str = "/dev/async_fork";
pub const PROC_FILE: &str = "/proc/async_fork";
/// What the module knows of single processes; root's.
pub const PROCESSES_FILE: &str = "/proc/async_fork_processes";
pub const CGROUP_FILE: &str = "memory.async_fork";
pub const THREADS_MAX: u32 = 64;
pub const REASON_COUNT: usize = 20;
pub const REFUSAL_COUNT: usize = 8;
/// Bucket i counts interruptions of at least 2^i and less than 2^(i+1) ns.
pub const BUCKET_COUNT: usize = 40;
pub const CONTROL_BYTES: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StrategyCode {
    /// The process's own setting is forgotten: its cgroup decides.
    Inherit = 0,
    Default = 1,
    Async = 2,
    Odf = 3,
}

/// `struct async_fork_control`: the strategy of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    pub pid: i32,
    pub strategy: StrategyCode,
    /// 1 to [`THREADS_MAX`] with [`StrategyCode::Async`], else 0.
    pub copy_threads: u32,
}

impl Control {
    /// In the order of the header's fields: size, version, pid, strategy, copy_threads, reserved.
    pub fn to_bytes(self) -> [u8; CONTROL_BYTES] {
        let words = [
            (CONTROL_BYTES as u32).to_ne_bytes(),
            VERSION.to_ne_bytes(),
            self.pid.to_ne_bytes(),
            (self.strategy as u32).to_ne_bytes(),
            self.copy_threads.to_ne_bytes(),
            [0; 4],
        ];
        let mut bytes = [0; CONTROL_BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes
    }
}

/// One counter or an array of counters.
trait Counters: Sized {
    const COUNT: usize;
    fn take(words: &mut dyn Iterator<Item = u64>) -> Option<Self>;
    fn values(&self) -> Vec<u64>;
}

impl Counters for u64 {
    const COUNT: usize = 1;
    fn take(words: &mut dyn Iterator<Item = u64>) -> Option<Self> {
        words.next()
    }
    fn values(&self) -> Vec<u64> {
        vec![*self]
    }
}

impl<const N: usize> Counters for [u64; N] {
    const COUNT: usize = N;
    fn take(words: &mut dyn Iterator<Item = u64>) -> Option<Self> {
        let mut array = [0; N];
        for place in &mut array {
            *place = words.next()?;
        }
        Some(array)
    }
    fn values(&self) -> Vec<u64> {
        self.to_vec()
    }
}

macro_rules! statistics {
    ($($name:ident: $type:ty,)*) => {
        /// `struct async_fork_statistics` without its first two fields, size and version. The header says what each
        /// counter means; times are in nanoseconds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Statistics {
            $(pub $name: $type,)*
        }

        impl Statistics {
            /// Names and numbers of counters, in the order of the header.
            pub const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($name), <$type as Counters>::COUNT),)*];

            fn take(words: &mut dyn Iterator<Item = u64>) -> Option<Self> {
                Some(Self { $($name: Counters::take(words)?,)* })
            }

            /// All counters by name.
            pub fn fields(&self) -> Vec<(&'static str, Vec<u64>)> {
                vec![$((stringify!($name), Counters::values(&self.$name)),)*]
            }
        }
    };
}

statistics! {
    forks_seen: u64,
    forks_async: u64,
    forks_odf: u64,
    forks_refused: [u64; REFUSAL_COUNT],
    sessions_live: u64,
    odf_mms_live: u64,
    tables_deferred: u64,
    tables_copied: [u64; REASON_COUNT],
    tables_shared: u64,
    tables_unshared: [u64; REASON_COUNT],
    tables_last_owner: u64,
    tables_detached: u64,
    tables_rolled_back: u64,
    sessions_failed: u64,
    children_killed: u64,
    migration_waits: u64,
    gup_retries: u64,
    numa_skips: u64,
    oom_reaper_skips: u64,
    rmap_refused: u64,
    bad_pmd_caught: u64,
    fork_ns_last: u64,
    fork_ns_max: u64,
    fork_ns_total: u64,
    child_copy_ns_last: u64,
    child_copy_ns_max: u64,
    child_copy_ns_total: u64,
    sync_ns_max: u64,
    sync_ns_total: u64,
    sync_histogram: [u64; BUCKET_COUNT],
}

const HEADER_BYTES: usize = 8;
const _: () = assert!(CONTROL_BYTES == 6 * 4);
const _: () = {
    let mut counters = 0;
    let mut i = 0;
    while i < Statistics::FIELDS.len() {
        counters += Statistics::FIELDS[i].1;
        i += 1;
    }
    assert!(HEADER_BYTES + 8 * counters == STATISTICS_BYTES);
};

impl Statistics {
    /// What a read of the device at offset 0 returned.
    ///
    /// # Errors
    /// The module has another version of the interface, or returned fewer bytes than it said.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let word =
            |at: usize| -> Option<u32> { Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
        let (Some(size), Some(version)) = (word(0), word(4)) else {
            return Err(ForkError::ShortStatistics { bytes: bytes.len() });
        };
        if version != VERSION || size as usize != STATISTICS_BYTES {
            return Err(ForkError::Version { version, size });
        }
        let counters = bytes.get(HEADER_BYTES..STATISTICS_BYTES).unwrap_or_default();
        let mut words = counters.chunks_exact(8).filter_map(|c| Some(u64::from_ne_bytes(c.try_into().ok()?)));
        Self::take(&mut words).ok_or(ForkError::ShortStatistics { bytes: bytes.len() })
    }

    /// The same from the text of [`PROC_FILE`], which everybody may read: "name value" lines, an element of an array as
    /// name_ELEMENT. What is missing is zero.
    ///
    /// # Errors
    /// The module has another version of the interface.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let values: HashMap<&str, u64> =
            lines.filter_map(|(n, v)| Some((n, v.trim().parse().ok()?))).collect();
        let version = values.get("version").copied().unwrap_or(0) as u32;
        if version != VERSION {
            return Err(ForkError::Version { version, size: text.len() as u32 });
        }
        let element = |field: &str, i: usize| match field {
            "forks_refused" => refusal_name(i),
            "sync_histogram" => (1u64 << i).to_string(),
            _ => reason_name(i),
        };
        let mut words = Self::FIELDS.iter().flat_map(|(field, count)| {
            let value = |name: &str| values.get(name).copied().unwrap_or(0);
            let words: Vec<u64> = match count {
                1 => vec![value(field)],
                _ => (0..*count).map(|i| value(&format!("{field}_{}", element(field, i)))).collect(),
            };
            words
        });
        Self::take(&mut words).ok_or(ForkError::ShortStatistics { bytes: text.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{REASONS, REFUSALS};

    const HEADER: &str = include_str!("../../../kernel/include/uapi/async_fork.h");

    fn without_comments() -> String {
        let mut text = String::new();
        let mut rest = HEADER;
        while let Some((before, after)) = rest.split_once("/*") {
            text.push_str(before);
            rest = after.split_once("*/").expect("a comment ends").1;
        }
        text + rest
    }

    fn braces<'a>(text: &'a str, opening: &str) -> &'a str {
        let after = text.split_once(opening).unwrap_or_else(|| panic!("{opening} in the header")).1;
        after.split_once('}').expect("closed").0
    }

    /// (name, value) of an enum's members; those without a value count on from the last.
    fn enum_members(name: &str) -> Vec<(String, u64)> {
        let text = without_comments();
        let mut next = 0;
        let mut members = Vec::new();
        for member in braces(&text, &format!("enum {name} {{")).split(',').map(str::trim) {
            if member.is_empty() {
                continue;
            }
            let (name, value) = match member.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim().parse().unwrap()),
                None => (member, next),
            };
            next = value + 1;
            members.push((name.to_owned(), value));
        }
        members
    }

    fn constant(name: &str) -> u64 {
        let text = without_comments();
        if let Some(rest) = text.split_once(&format!("#define {name} ")) {
            return rest.1.lines().next().unwrap().trim().parse().unwrap();
        }
        let enums = ["async_fork_reason", "async_fork_refusal"];
        let mut members = enums.iter().flat_map(|e| enum_members(e));
        members.find(|m| m.0 == name).unwrap_or_else(|| panic!("{name} in the header")).1
    }

    /// (type, name, number of elements) of a struct's members.
    fn struct_members(name: &str) -> Vec<(String, String, u64)> {
        let text = without_comments();
        let members = braces(&text, &format!("struct {name} {{")).split(';').map(str::trim);
        let parse = |member: &str| {
            let (kind, declarator) = member.split_once(char::is_whitespace).unwrap();
            let (name, count) = match declarator.trim().split_once('[') {
                Some((name, count)) => (name, constant(count.trim_end_matches(']'))),
                None => (declarator.trim(), 1),
            };
            (kind.to_owned(), name.to_owned(), count)
        };
        members.filter(|m| !m.is_empty()).map(parse).collect()
    }

    #[test]
    fn the_header_has_the_same_constants() {
        assert_eq!(constant("ASYNC_FORK_VERSION"), u64::from(VERSION));
        assert_eq!(constant("ASYNC_FORK_THREADS_MAX"), u64::from(THREADS_MAX));
        assert_eq!(constant("ASYNC_FORK_BUCKETS"), BUCKET_COUNT as u64);
        assert_eq!(constant("ASYNC_FORK_REASONS"), REASON_COUNT as u64);
        assert_eq!(constant("ASYNC_FORK_REFUSALS"), REFUSAL_COUNT as u64);
        assert!(HEADER.contains(&format!("#define ASYNC_FORK_DEVICE \"{DEVICE}\"")));
        let strategies = enum_members("async_fork_strategy");
        let expected = [("INHERIT", 0u64), ("DEFAULT", 1), ("ASYNC", 2), ("ODF", 3)];
        let expected: Vec<_> = expected.iter().map(|(n, v)| (format!("ASYNC_FORK_{n}"), *v)).collect();
        assert_eq!(strategies, expected);
        assert_eq!(StrategyCode::Inherit as u32, 0);
        assert_eq!(StrategyCode::Default as u32, 1);
        assert_eq!(StrategyCode::Async as u32, 2);
        assert_eq!(StrategyCode::Odf as u32, 3);
    }

    #[test]
    fn every_reason_and_refusal_is_explained_under_its_number() {
        let names = |members: Vec<(String, u64)>, prefix: &str, last: &str| {
            let kept = members.into_iter().filter(|(name, _)| name != last);
            kept.map(|(name, value)| (name.strip_prefix(prefix).unwrap().to_lowercase(), value as usize))
                .collect::<Vec<_>>()
        };
        let reasons = names(enum_members("async_fork_reason"), "ASYNC_FORK_BY_", "ASYNC_FORK_REASONS");
        let ours: Vec<_> = REASONS.iter().enumerate().map(|(i, r)| (r.name.to_owned(), i)).collect();
        assert_eq!(ours, reasons);
        let refusals =
            names(enum_members("async_fork_refusal"), "ASYNC_FORK_REFUSED_", "ASYNC_FORK_REFUSALS");
        let ours: Vec<_> = REFUSALS.iter().enumerate().map(|(i, r)| (r.name.to_owned(), i)).collect();
        assert_eq!(ours, refusals);
    }

    #[test]
    fn the_header_has_the_same_fields() {
        let mut expected =
            vec![("__u32".to_owned(), "size".to_owned(), 1), ("__u32".to_owned(), "version".to_owned(), 1)];
        let fields = Statistics::FIELDS.iter();
        expected.extend(fields.map(|(name, count)| ("__u64".to_owned(), (*name).to_owned(), *count as u64)));
        assert_eq!(struct_members("async_fork_statistics"), expected);

        let control: Vec<_> =
            struct_members("async_fork_control").into_iter().map(|(k, n, _)| format!("{k} {n}")).collect();
        let ours = ["__u32 size", "__u32 version", "__s32 pid", "__u32 strategy", "__u32 copy_threads"];
        assert_eq!(control[..5], ours);
        assert_eq!(control[5..], ["__u32 reserved"]);
        for (name, bytes) in [("control", CONTROL_BYTES), ("statistics", STATISTICS_BYTES)] {
            assert!(HEADER.contains(&format!("sizeof(struct async_fork_{name}) == {bytes},")));
        }
    }

    #[test]
    fn control_is_laid_out_as_the_header_says() {
        let bytes = Control { pid: -2, strategy: StrategyCode::Async, copy_threads: 7 }.to_bytes();
        let word = |i: usize| u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!([word(0), word(1), word(2), word(3), word(4), word(5)], [24, 1, u32::MAX - 1, 2, 7, 0]);
    }

    #[test]
    fn the_text_has_the_same_numbers() {
        let text = "version 1\nforks_seen 7\nforks_refused_notifier 2\ntables_copied_fault 9\nsync_histogram_16384 3\n\
                    unknown 5\n";
        let s = Statistics::parse(text).unwrap();
        assert_eq!(
            (s.forks_seen, s.forks_refused[1], s.tables_copied[2], s.sync_histogram[14]),
            (7, 2, 9, 3)
        );
        assert_eq!(s.fields().iter().flat_map(|f| &f.1).sum::<u64>(), 21);
        assert!(matches!(Statistics::parse("version 2\n"), Err(ForkError::Version { version: 2, .. })));
        assert!(Statistics::parse("").is_err());
    }

    #[test]
    fn statistics_of_another_version_or_length_are_refused() {
        let mut bytes = vec![0u8; STATISTICS_BYTES];
        bytes[..4].copy_from_slice(&(STATISTICS_BYTES as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77u64.to_ne_bytes());
        bytes[STATISTICS_BYTES - 8..].copy_from_slice(&5u64.to_ne_bytes());
        let decoded = Statistics::decode(&bytes).unwrap();
        assert_eq!((decoded.forks_seen, decoded.sync_histogram[BUCKET_COUNT - 1]), (77, 5));
        assert!(matches!(Statistics::decode(&bytes[..600]), Err(ForkError::ShortStatistics { bytes: 600 })));
        assert!(matches!(Statistics::decode(&[]), Err(ForkError::ShortStatistics { bytes: 0 })));
        bytes[4] = 9;
        assert!(matches!(Statistics::decode(&bytes), Err(ForkError::Version { version: 9, .. })));
    }
}
