//! What a command is: its row in the table, its arguments, its result.

use std::borrow::Cow;
use std::ops::Index;

use stillframe_store::{DbId, Key, OpError};

use crate::ctx::Ctx;

/// Command flags, as `COMMAND INFO` shows them.
pub mod flag {
    pub const WRITE: u32 = 1 << 0;
    pub const READONLY: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 6;
    pub const BLOCKING: u32 = 1 << 7;
    pub const LOADING: u32 = 1 << 8;
    pub const STALE: u32 = 1 << 9;
    pub const SKIP_MONITOR: u32 = 1 << 10;
    pub const SKIP_SLOWLOG: u32 = 1 << 11;
    pub const ASKING: u32 = 1 << 12;
    pub const FAST: u32 = 1 << 13;
    pub const NO_AUTH: u32 = 1 << 14;
    pub const NO_ASYNC_LOADING: u32 = 1 << 18;
    pub const NO_MULTI: u32 = 1 << 19;
    pub const MOVABLEKEYS: u32 = 1 << 20;
    pub const ALLOW_BUSY: u32 = 1 << 21;

    /// Names in the order in which Redis lists them.
    pub const NAMES: &[(u32, &str)] = &[
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (ASKING, "asking"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (MOVABLEKEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// ACL categories. Those that follow from the flags are added by [`Command::acl_categories`].
pub mod acl {
    pub const KEYSPACE: u32 = 1 << 0;
    pub const READ: u32 = 1 << 1;
    pub const WRITE: u32 = 1 << 2;
    pub const SET: u32 = 1 << 3;
    pub const SORTEDSET: u32 = 1 << 4;
    pub const LIST: u32 = 1 << 5;
    pub const HASH: u32 = 1 << 6;
    pub const STRING: u32 = 1 << 7;
    pub const BITMAP: u32 = 1 << 8;
    pub const HYPERLOGLOG: u32 = 1 << 9;
    pub const GEO: u32 = 1 << 10;
    pub const STREAM: u32 = 1 << 11;
    pub const PUBSUB: u32 = 1 << 12;
    pub const ADMIN: u32 = 1 << 13;
    pub const FAST: u32 = 1 << 14;
    pub const SLOW: u32 = 1 << 15;
    pub const BLOCKING: u32 = 1 << 16;
    pub const DANGEROUS: u32 = 1 << 17;
    pub const CONNECTION: u32 = 1 << 18;
    pub const TRANSACTION: u32 = 1 << 19;
    pub const SCRIPTING: u32 = 1 << 20;

    /// Names in the order in which Redis lists them.
    pub const NAMES: &[(u32, &str)] = &[
        (KEYSPACE, "keyspace"),
        (READ, "read"),
        (WRITE, "write"),
        (SET, "set"),
        (SORTEDSET, "sortedset"),
        (LIST, "list"),
        (HASH, "hash"),
        (STRING, "string"),
        (BITMAP, "bitmap"),
        (HYPERLOGLOG, "hyperloglog"),
        (GEO, "geo"),
        (STREAM, "stream"),
        (PUBSUB, "pubsub"),
        (ADMIN, "admin"),
        (FAST, "fast"),
        (SLOW, "slow"),
        (BLOCKING, "blocking"),
        (DANGEROUS, "dangerous"),
        (CONNECTION, "connection"),
        (TRANSACTION, "transaction"),
        (SCRIPTING, "scripting"),
    ];
}

/// What a command does with a key (`COMMAND INFO`'s key specifications).
pub mod key_flag {
    pub const RO: u32 = 1 << 0;
    pub const RW: u32 = 1 << 1;
    pub const OW: u32 = 1 << 2;
    pub const RM: u32 = 1 << 3;
    pub const ACCESS: u32 = 1 << 4;
    pub const UPDATE: u32 = 1 << 5;
    pub const INSERT: u32 = 1 << 6;
    pub const DELETE: u32 = 1 << 7;
    pub const NOT_KEY: u32 = 1 << 8;
    pub const INCOMPLETE: u32 = 1 << 9;
    pub const VARIABLE_FLAGS: u32 = 1 << 10;

    pub const NAMES: &[(u32, &str)] = &[
        (RO, "RO"),
        (RW, "RW"),
        (OW, "OW"),
        (RM, "RM"),
        (ACCESS, "access"),
        (UPDATE, "update"),
        (INSERT, "insert"),
        (DELETE, "delete"),
        (NOT_KEY, "not_key"),
        (INCOMPLETE, "incomplete"),
        (VARIABLE_FLAGS, "variable_flags"),
    ];
}

/// The group of a command in `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Bitmap,
    Connection,
    Generic,
    Server,
    String,
    Transactions,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Group::Bitmap => "bitmap",
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::Server => "server",
            Group::String => "string",
            Group::Transactions => "transactions",
        }
    }
}

/// Where a key specification starts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    Index(i32),
    Unknown,
}

/// Which arguments from there on are keys.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// `last` counts from the first key, or from the end of the arguments if negative.
    Range {
        last: i32,
        step: i32,
        limit: i32,
    },
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    pub notes: &'static str,
    /// [`key_flag`]
    pub flags: u32,
    pub begin: Begin,
    pub find: Find,
}

impl KeySpec {
    pub const fn range(first: i32, last: i32, step: i32, flags: u32) -> KeySpec {
        KeySpec { notes: "", flags, begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 } }
    }

    pub const fn notes(mut self, notes: &'static str) -> KeySpec {
        self.notes = notes;
        self
    }
}

pub type CmdResult = Result<(), CmdError>;
pub type Handler = fn(&mut Ctx<'_>, &Args<'_>) -> CmdResult;

/// Gives the argument indices of a command's keys and their [`key_flag`]s, where the specifications alone
/// cannot tell (`SORT ... STORE`).
pub type KeysFn = fn(&Args<'_>, &mut dyn FnMut(usize, u32));

/// Gives the [`key_flag`]s of a command's key where they depend on the arguments (`SET ... GET`).
pub type FlagsFn = fn(&Args<'_>) -> u32;

/// Gives the keys that a command touches outside the selected database (`MOVE`, `COPY ... DB`), so that they
/// are locked with the others: `(selected, args, give)`.
pub type OtherKeysFn = fn(DbId, &Args<'_>, &mut dyn FnMut(DbId, usize));

/// What a command touches beside the keys that it names: what has to hold before it may begin (invariant C3).
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// Nothing.
    Keys,
    /// Counters of databases.
    Counters,
    /// Keys that it does not name. Alone it asks for their pages as it meets them; in a transaction all must be there.
    Walk,
    /// Databases, which it empties.
    Flush,
    /// Databases, which it exchanges: what else a transaction names is then on other pages.
    Swap,
    /// Any page.
    Data,
    /// As the arguments say.
    Of(fn(&Args<'_>) -> Scope),
}

/// A row of the command table.
pub struct Command {
    /// Lower case; a subcommand is `container|name`.
    pub name: &'static str,
    /// Number of arguments, the name included; negative: at least that many.
    pub arity: i32,
    /// [`flag`]
    pub flags: u32,
    /// [`acl`], without those that follow from the flags.
    pub explicit_acl: u32,
    pub group: Group,
    pub since: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub key_specs: &'static [KeySpec],
    pub keys_fn: Option<KeysFn>,
    pub flags_fn: Option<FlagsFn>,
    pub other_keys: Option<OtherKeysFn>,
    pub scope: Scope,
    /// It looks at its one key, or changes it, in several operations of the store.
    pub has_steps: bool,
    pub tips: &'static [&'static str],
    /// Its rows follow it in the table.
    pub is_container: bool,
    /// Its time is measured on its own, not as a share of the batch: it may take long (O(n) and the like).
    pub may_be_slow: bool,
    pub run: Handler,
}

impl Command {
    pub const fn new(name: &'static str, arity: i32, flags: u32, run: Handler) -> Command {
        Command {
            name,
            arity,
            flags,
            explicit_acl: 0,
            group: Group::Generic,
            since: "1.0.0",
            summary: "",
            complexity: "",
            key_specs: &[],
            keys_fn: None,
            flags_fn: None,
            other_keys: None,
            scope: Scope::Keys,
            has_steps: false,
            tips: &[],
            is_container: false,
            may_be_slow: flags & flag::FAST == 0,
            run,
        }
    }

    /// A command whose first argument names one of the rows that follow it.
    pub const fn container(name: &'static str, arity: i32, flags: u32) -> Command {
        let mut command = Command::new(name, arity, flags, unreachable_container);
        command.is_container = true;
        command
    }

    /// What a container does without a subcommand, where that is not an error.
    pub const fn alone(mut self, run: Handler) -> Command {
        self.run = run;
        self
    }

    pub const fn acl(mut self, explicit: u32) -> Command {
        self.explicit_acl = explicit;
        self
    }

    pub const fn doc(
        mut self,
        group: Group,
        since: &'static str,
        summary: &'static str,
        complexity: &'static str,
    ) -> Command {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self.complexity = complexity;
        self
    }

    pub const fn keys(mut self, specs: &'static [KeySpec]) -> Command {
        self.key_specs = specs;
        self
    }

    pub const fn keys_fn(mut self, keys_fn: KeysFn) -> Command {
        self.keys_fn = Some(keys_fn);
        self
    }

    pub const fn flags_fn(mut self, flags_fn: FlagsFn) -> Command {
        self.flags_fn = Some(flags_fn);
        self
    }

    pub const fn other_keys(mut self, other_keys: OtherKeysFn) -> Command {
        self.other_keys = Some(other_keys);
        self
    }

    pub const fn scope(mut self, scope: Scope) -> Command {
        self.scope = scope;
        self
    }

    pub const fn in_steps(mut self) -> Command {
        self.has_steps = true;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Command {
        self.tips = tips;
        self
    }

    /// For commands without the `fast` flag that take no longer than a `GET`, like `SET`.
    pub const fn quick(mut self) -> Command {
        self.may_be_slow = false;
        self
    }

    /// What this call touches beside its keys; never [`Scope::Of`].
    pub fn scope_of(&self, args: &Args<'_>) -> Scope {
        match self.scope {
            Scope::Of(of) => of(args),
            scope => scope,
        }
    }

    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Explicit and implied categories.
    pub fn acl_categories(&self) -> u32 {
        let mut categories = self.explicit_acl;
        if self.is(flag::WRITE) {
            categories |= acl::WRITE;
        }
        if self.is(flag::READONLY) && categories & acl::SCRIPTING == 0 {
            categories |= acl::READ;
        }
        if self.is(flag::ADMIN) {
            categories |= acl::ADMIN | acl::DANGEROUS;
        }
        if self.is(flag::BLOCKING) {
            categories |= acl::BLOCKING;
        }
        categories | if self.is(flag::FAST) { acl::FAST } else { acl::SLOW }
    }

    pub fn arity_fits(&self, arg_count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        arg_count == wanted || (self.arity < 0 && arg_count > wanted)
    }

    /// Index of the first key argument, if it is at a fixed place.
    pub fn first_key(&self) -> Option<usize> {
        match self.key_specs.first()?.begin {
            Begin::Index(index) => Some(index as usize),
            Begin::Unknown => None,
        }
    }

    /// First, last and step of the keys, as `COMMAND INFO` shows them; zeros without keys.
    pub fn key_range(&self) -> (i32, i32, i32) {
        let range = |spec: &KeySpec| match (spec.begin, spec.find) {
            (Begin::Index(first), Find::Range { last, step, .. }) => {
                Some((first, if last >= 0 { first + last } else { last }, step))
            }
            _ => None,
        };
        let mut ranges = self.key_specs.iter().filter_map(range);
        let Some((first, mut last, step)) = ranges.next() else { return (0, 0, 0) };
        // Ranges that follow one another are shown as one.
        for (next_first, next_last, next_step) in ranges {
            if next_step == 1 && next_first == last + 1 {
                last = next_last;
            }
        }
        (first, last, step)
    }

    /// Calls `give` with the argument index and [`key_flag`]s of each key of a call. The arity fits.
    pub fn for_each_key(&self, args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
        if let Some(keys_fn) = self.keys_fn {
            return keys_fn(args, give);
        }
        for spec in self.key_specs {
            let (Begin::Index(first), Find::Range { last, step, .. }) = (spec.begin, spec.find) else {
                continue;
            };
            let last = if last >= 0 { first + last } else { args.len() as i32 + last };
            let mut index = first;
            while index <= last && (index as usize) < args.len() {
                give(index as usize, spec.flags);
                index += step;
            }
        }
    }
}

fn unreachable_container(_: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    Err("ERR syntax error".into())
}

/// Place of an argument in its buffer, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgRange {
    pub start: u32,
    pub len: u32,
}

/// The arguments of a command, the name first; slices of the connection's input buffer.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buf: &'a [u8],
    ranges: &'a [ArgRange],
    /// A key that an earlier stage has hashed (and prefetched), with its index.
    hashed: Option<(u32, Key<'static>)>,
}

impl<'a> Args<'a> {
    pub fn new(buf: &'a [u8], ranges: &'a [ArgRange]) -> Args<'a> {
        Args { buf, ranges, hashed: None }
    }

    pub fn with_hashed(mut self, index: usize, key: Key<'static>) -> Args<'a> {
        self.hashed = Some((index as u32, key));
        self
    }

    pub(crate) fn hashed_key(&self, index: usize) -> Option<Key<'a>> {
        match self.hashed {
            Some((at, key)) if at as usize == index => Some(key.attach(self.at(index))),
            _ => None,
        }
    }

    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes from the first argument's start to the last one's end.
    pub fn buffer_span(&self) -> usize {
        let first = self.ranges.first().map_or(0, |r| r.start);
        self.ranges.last().map_or(0, |r| (r.start - first) as usize + r.len as usize)
    }

    /// An argument with the lifetime of the buffer, which outlives `Args` itself.
    pub fn at(&self, index: usize) -> &'a [u8] {
        let ArgRange { start, len } = self.ranges[index];
        &self.buf[start as usize..start as usize + len as usize]
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.at(index))
    }

    /// The arguments from `start` on, as arguments of their own.
    pub fn tail(&self, start: usize) -> Args<'a> {
        Args::new(self.buf, &self.ranges[start.min(self.ranges.len())..])
    }

    /// The arguments from `start` on.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        (start..self.len()).map(|i| self.at(i))
    }

    /// Whether an argument is this word, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CmdError {
    /// A fault parks the command until its pages are in memory; the others become error replies.
    Store(OpError),
    /// The whole reply, code first, without the `-`: `ERR syntax error`.
    Reply(Cow<'static, [u8]>),
}

impl From<OpError> for CmdError {
    fn from(error: OpError) -> Self {
        CmdError::Store(error)
    }
}

impl From<stillframe_store::Fault> for CmdError {
    fn from(fault: stillframe_store::Fault) -> Self {
        CmdError::Store(fault.into())
    }
}

impl From<&'static str> for CmdError {
    fn from(text: &'static str) -> Self {
        CmdError::Reply(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for CmdError {
    fn from(text: String) -> Self {
        CmdError::Reply(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for CmdError {
    fn from(text: Vec<u8>) -> Self {
        CmdError::Reply(Cow::Owned(text))
    }
}
