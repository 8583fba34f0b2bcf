//! What is known of a command: its row in the table.

use stillframe_store::{DbId, Reach};

use crate::command::flags::{acl, flag, key_flag};
use crate::command::touch::Touch;
use crate::protocol::args::Args;
use crate::text::number::{c_int, parse_i64};

/// The group of a command in `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    HyperLogLog,
    List,
    Pubsub,
    Scripting,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

impl Group {
    #[cfg(test)]
    pub const ALL: [Group; 16] = [
        Group::String,
        Group::Hash,
        Group::List,
        Group::Set,
        Group::SortedSet,
        Group::Stream,
        Group::Geo,
        Group::HyperLogLog,
        Group::Generic,
        Group::Bitmap,
        Group::Transactions,
        Group::Scripting,
        Group::Pubsub,
        Group::Connection,
        Group::Server,
        Group::Cluster,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Group::Bitmap => "bitmap",
            Group::Cluster => "cluster",
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::HyperLogLog => "hyperloglog",
            Group::List => "list",
            Group::Pubsub => "pubsub",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::String => "string",
            Group::Transactions => "transactions",
        }
    }
}

/// Where a key specification starts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    Index(i32),
    /// After this word, which may be anywhere from an index on.
    Keyword {
        word: &'static str,
        from: i32,
    },
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
    /// The first argument there is the number of those that follow.
    Counted,
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

    /// As many keys as the argument at `index` says, behind it.
    pub const fn counted(index: i32, flags: u32) -> KeySpec {
        KeySpec { notes: "", flags, begin: Begin::Index(index), find: Find::Counted }
    }

    /// The key after a word, from an index on.
    pub const fn after(word: &'static str, from: i32, flags: u32) -> KeySpec {
        let find = Find::Range { last: 0, step: 1, limit: 0 };
        KeySpec { notes: "", flags, begin: Begin::Keyword { word, from }, find }
    }

    /// The keys after a word, from an index on, and as many other arguments behind them: a row that has this says by a function,
    /// too, which arguments are keys.
    pub const fn halved(word: &'static str, from: i32, flags: u32) -> KeySpec {
        let find = Find::Range { last: -1, step: 1, limit: 2 };
        KeySpec { notes: "", flags, begin: Begin::Keyword { word, from }, find }
    }

    /// Gives the argument indices of the keys of a call.
    fn for_each(&self, args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
        let first = match self.begin {
            Begin::Index(index) => index,
            Begin::Keyword { word, from } => {
                // Of several the command takes one: any of them may be that.
                let words = (from as usize + 1..args.len()).filter(|index| args.is(*index - 1, word));
                return words.for_each(|index| give(index, self.flags));
            }
            Begin::Unknown => return,
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, .. } if last >= 0 => (first, first + last, step),
            Find::Range { last, step, .. } => (first, args.len() as i32 + last, step),
            Find::Counted => {
                let count = args.get(first as usize).and_then(parse_i64).unwrap_or(0);
                let rest = args.len() as i64 - i64::from(first) - 1;
                // A number that cannot be is refused by the command.
                (first + 1, first + if (1..=rest).contains(&count) { count as i32 } else { 0 }, 1)
            }
            Find::Unknown => return,
        };
        let mut index = first;
        while index <= last && (index as usize) < args.len() {
            give(index as usize, self.flags);
            index += step;
        }
    }

    /// First, last and step of the keys of a call, as Redis tells them; `None`: the call is malformed.
    fn told(&self, args: &Args<'_>) -> Option<(usize, usize, usize)> {
        let Begin::Index(index) = self.begin else { return None };
        let (first, last, step) = match self.find {
            Find::Range { last, step, .. } if last >= 0 => (i64::from(index), i64::from(index + last), step),
            Find::Range { last, step, .. } => (i64::from(index), args.len() as i64 + i64::from(last), step),
            Find::Counted => {
                let count = args.get(index as usize).and_then(parse_i64).filter(|count| *count >= 0)?;
                // Redis keeps it in 32 bits.
                (i64::from(index) + 1, i64::from(index) + i64::from(count as i32), 1)
            }
            Find::Unknown => return None,
        };
        let is_within = first <= last && last < args.len() as i64;
        is_within.then_some((first as usize, last as usize, step as usize))
    }

    pub const fn notes(mut self, notes: &'static str) -> KeySpec {
        self.notes = notes;
        self
    }
}

/// Gives the argument indices of a command's keys and their [`key_flag`]s, where the specifications alone
/// cannot tell (`SORT ... STORE`).
pub type KeysFn = fn(&Args<'_>, &mut dyn FnMut(usize, u32));

/// Gives the [`key_flag`]s of a command's key where they depend on the arguments (`SET ... GET`).
pub type FlagsFn = fn(&Args<'_>) -> u32;

/// Gives the keys that a command touches outside the selected database (`MOVE`, `COPY ... DB`), so that they
/// are locked with the others: `(selected, args, give)`.
pub type OtherKeysFn = fn(DbId, &Args<'_>, &mut dyn FnMut(DbId, usize));

/// How far a command reaches into the value of the key at an argument index.
pub type ReachFn = fn(&Args<'_>, usize) -> Reach;

/// Whether the argument at an index is a secret.
pub type SecretFn = fn(&Args<'_>, usize) -> bool;

/// A row of the command table. `H` is the command function: what it works with is known further up.
pub struct Row<H> {
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
    pub reach: Option<ReachFn>,
    pub touch: Touch,
    /// It comes to pages beyond those of its keys and strings, which only a look at it finds. They would be read in place.
    pub goes_beyond_keys: bool,
    pub tips: &'static [&'static str],
    /// What keyspace notifications call the value that it stores, if that is not `set`.
    pub event: Option<&'static str>,
    /// Its first argument names one of the rows that follow it.
    pub is_container: bool,
    /// The argument that names the first element which it looks for in the hash or the set at its first key.
    pub element: Option<usize>,
    /// Which arguments, by their indices, are values that can go to their place as their bytes come, before the command runs.
    pub receives: Option<fn(usize) -> bool>,
    /// Those of them that are names, which are looked for by their hash.
    pub receives_names: Option<fn(usize) -> bool>,
    /// Which arguments, by their indices, are secrets: monitors and the slow log do not show them.
    pub secret: Option<SecretFn>,
    /// What it does before, part by part, with large values of which pages may be missing: others are served meanwhile.
    pub ahead: Option<H>,
    /// Before `EXEC`, too: it leaves the values as they are, and the command takes what has been made of them.
    pub is_ahead_of_exec: bool,
    /// Whether a key of a wrong type, of which it has counted nothing, counts as found by a read; `None`: if it only reads.
    pub is_reading: Option<bool>,
    /// Its time is measured on its own, not as a share of the batch: it may take long (O(n) and the like).
    pub may_be_slow: bool,
    pub run: H,
}

impl<H: Copy> Row<H> {
    pub const fn new(name: &'static str, arity: i32, flags: u32, touch: Touch, run: H) -> Row<H> {
        Row {
            name,
            arity,
            flags,
            touch,
            explicit_acl: 0,
            group: Group::Generic,
            since: "1.0.0",
            summary: "",
            complexity: "",
            key_specs: &[],
            keys_fn: None,
            flags_fn: None,
            other_keys: None,
            reach: None,
            goes_beyond_keys: false,
            tips: &[],
            event: None,
            is_container: false,
            element: None,
            receives: None,
            receives_names: None,
            secret: None,
            ahead: None,
            is_ahead_of_exec: false,
            is_reading: None,
            may_be_slow: flags & flag::FAST == 0 || flags & flag::BLOCKING != 0,
            run,
        }
    }

    /// What a container does without a subcommand, where that is not an error.
    pub const fn alone(mut self, run: H) -> Row<H> {
        self.run = run;
        self
    }

    pub const fn acl(mut self, explicit: u32) -> Row<H> {
        self.explicit_acl = explicit;
        self
    }

    pub const fn doc(
        mut self,
        group: Group,
        since: &'static str,
        summary: &'static str,
        complexity: &'static str,
    ) -> Row<H> {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self.complexity = complexity;
        self
    }

    pub const fn keys(mut self, specs: &'static [KeySpec]) -> Row<H> {
        self.key_specs = specs;
        self
    }

    pub const fn keys_fn(mut self, keys_fn: KeysFn) -> Row<H> {
        self.keys_fn = Some(keys_fn);
        self
    }

    pub const fn secret(mut self, secret: SecretFn) -> Row<H> {
        self.secret = Some(secret);
        self
    }

    pub const fn flags_fn(mut self, flags_fn: FlagsFn) -> Row<H> {
        self.flags_fn = Some(flags_fn);
        self
    }

    pub const fn other_keys(mut self, other_keys: OtherKeysFn) -> Row<H> {
        self.other_keys = Some(other_keys);
        self
    }

    /// Where that is not the whole of each value (commands on strings and bitmaps), or nothing (others).
    pub const fn reaching(mut self, reach: ReachFn) -> Row<H> {
        self.reach = Some(reach);
        self
    }

    /// For commands on keys whose group does not say so.
    pub const fn beyond_keys(mut self) -> Row<H> {
        self.goes_beyond_keys = true;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Row<H> {
        self.tips = tips;
        self
    }

    pub const fn event(mut self, event: &'static str) -> Row<H> {
        self.event = Some(event);
        self
    }

    pub const fn element(mut self, index: usize) -> Row<H> {
        self.element = Some(index);
        self
    }

    /// For commands without the `fast` flag that take no longer than a `GET`, like `SET`.
    pub const fn quick(mut self) -> Row<H> {
        self.may_be_slow = false;
        self
    }

    pub const fn ahead(mut self, ahead: H) -> Row<H> {
        self.ahead = Some(ahead);
        self
    }

    /// The same, before `EXEC`, too.
    pub const fn ahead_of_exec(mut self, ahead: H) -> Row<H> {
        self.is_ahead_of_exec = true;
        self.ahead(ahead)
    }

    /// It writes, and looks its keys up as a read does.
    pub const fn reading(mut self) -> Row<H> {
        self.is_reading = Some(true);
        self
    }

    /// It counts the keys that it looks up itself, those of a wrong type included.
    pub const fn counting(mut self) -> Row<H> {
        self.is_reading = Some(false);
        self
    }

    pub const fn receives(mut self, is_value: fn(usize) -> bool) -> Row<H> {
        self.receives = Some(is_value);
        self
    }

    pub const fn receives_names(mut self, is_name: fn(usize) -> bool) -> Row<H> {
        self.receives_names = Some(is_name);
        self
    }

    /// How far this call reaches into the value of the key at an argument index.
    pub fn reach_of(&self, args: &Args<'_>, index: usize) -> Reach {
        match (self.reach, self.group) {
            (Some(reach), _) => reach(args, index),
            (None, Group::String | Group::Bitmap) => Reach::WHOLE,
            (None, _) => Reach::Nothing,
        }
    }

    /// Whether a look at this call finds pages that its keys do not tell of. What goes over large values does so beside them.
    pub fn is_looked_at(&self, args: &Args<'_>) -> bool {
        let has_elements =
            matches!(self.group, Group::Hash | Group::List | Group::Set | Group::SortedSet | Group::Geo);
        match self.touch_of(args) {
            Touch::Parts => false,
            Touch::Walk => true,
            _ => has_elements || self.goes_beyond_keys,
        }
    }

    /// How this call touches the data; never [`Touch::Of`].
    pub fn touch_of(&self, args: &Args<'_>) -> Touch {
        match self.touch {
            Touch::Of(of) => of(args),
            touch => touch,
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
        match self.key_specs.first().filter(|spec| spec.flags & key_flag::NOT_KEY == 0)?.begin {
            Begin::Index(index) => {
                let counted = matches!(self.key_specs.first()?.find, Find::Counted);
                Some(index as usize + usize::from(counted))
            }
            Begin::Keyword { .. } | Begin::Unknown => None,
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

    /// Whether calls may have keys.
    pub fn has_keys(&self) -> bool {
        self.keys_fn.is_some() || self.key_specs.iter().any(|spec| spec.flags & key_flag::NOT_KEY == 0)
    }

    /// The keys of a call with their [`key_flag`]s, as Redis tells them (`COMMAND GETKEYS`); `None`: the call is malformed.
    pub fn told_keys(&self, args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
        let mut keys = Vec::new();
        let are_fixed = self.key_specs.iter().all(|spec| matches!(spec.begin, Begin::Index(_)));
        if self.keys_fn.is_some() || !are_fixed {
            self.for_each_key(args, &mut |index, flags| keys.push((index, flags)));
            return Some(keys);
        }
        for spec in self.key_specs.iter().filter(|spec| spec.flags & key_flag::NOT_KEY == 0) {
            let Some((first, last, step)) = spec.told(args) else { return self.loosely_counted(args) };
            keys.extend((first..=last).step_by(step).map(|index| (index, spec.flags)));
        }
        Some(keys)
    }

    /// The keys of a call whose number of keys is no plain number: Redis reads it as C's `atoi` does then, tells the key that is
    /// stored to last, and of all of them no flags.
    fn loosely_counted(&self, args: &Args<'_>) -> Option<Vec<(usize, u32)>> {
        let counted = self.key_specs.iter().find(|spec| matches!(spec.find, Find::Counted))?;
        let Begin::Index(index) = counted.begin else { return None };
        let index = index as usize;
        let count = usize::try_from(c_int(args.get(index)?)).ok().filter(|count| *count > 0)?;
        if count >= args.len() - index {
            return None;
        }
        let others = self.key_specs.iter().filter(|spec| !matches!(spec.find, Find::Counted));
        let stored = others.filter_map(|spec| Some((spec.told(args)?.0, 0)));
        Some((index + 1..=index + count).map(|index| (index, 0)).chain(stored).collect())
    }

    /// Calls `give` with the argument index and [`key_flag`]s of each key of a call. The arity fits.
    pub fn for_each_key(&self, args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
        if let Some(keys_fn) = self.keys_fn {
            return keys_fn(args, give);
        }
        for spec in self.key_specs.iter().filter(|spec| spec.flags & key_flag::NOT_KEY == 0) {
            spec.for_each(args, give);
        }
    }
}
