//! `SORT`: the elements of a list, a set or a sorted set, by themselves or by what other keys have.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use stillframe_store::{End, Faults, OpError, RangeLimit, ScoredRange, ValueType};

use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, Begin, CmdError, CmdResult, Find, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::double;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("sort", -2, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::Of(sort_touch), sort).reading().beyond_keys().event("sortstore").acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "1.0.0", "Sort the elements in a list, set or sorted set", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }, KeySpec { notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array", flags: key_flag::OW | key_flag::UPDATE, begin: Begin::Unknown, find: Find::Unknown }])
        .keys_fn(sort_keys),
    Command::new("sort_ro", -2, flag::READONLY | flag::MOVABLEKEYS, Touch::Of(sort_ro_touch), sort_ro).beyond_keys().acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "7.0.0", "Sort the elements in a list, set or sorted set. Read-only variant of SORT.", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }]),
];

/// Pages of other keys that are waited for together.
const PAGES_TOGETHER: usize = 256;

/// What a `SORT` asks for.
struct Sorting<'k> {
    is_descending: bool,
    is_alpha: bool,
    /// First element that is wanted, and how many; all that follow if it is negative.
    limit: (i64, i64),
    /// Index of the argument of `STORE`.
    store_index: Option<usize>,
    by: Option<&'k [u8]>,
    get: Vec<&'k [u8]>,
}

impl Sorting<'_> {
    /// Without a place for the element in it, a pattern says that nothing is to be sorted.
    fn is_left_alone(&self) -> bool {
        self.by.is_some_and(|pattern| !pattern.contains(&b'*'))
    }
}

/// An element with what it is sorted by.
struct Sorted {
    element: Vec<u8>,
    score: f64,
    text: Option<Vec<u8>>,
}

type Values = Vec<Option<Vec<u8>>>;

/// What patterns lead to and is not in memory: it is waited for together.
#[derive(Default)]
struct Missed(Faults);

impl Missed {
    /// `None`: pages are missing, and others are looked for all the same.
    fn look<R>(&mut self, looked: Result<R, CmdError>) -> Result<Option<R>, CmdError> {
        match looked {
            Ok(found) => Ok(Some(found)),
            Err(CmdError::Store(OpError::Fault(fault))) if fault.page_count() > 0 => {
                self.0.add(fault);
                match self.0.page_count() < PAGES_TOGETHER {
                    true => Ok(None),
                    false => self.end().map(|()| None),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn end(&mut self) -> CmdResult {
        self.0.take().map_or(Ok(()), |fault| Err(fault.into()))
    }
}

pub fn sort(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let sorting = parse(args, true)?;
    let values = sorted_values(ctx, args, &sorting)?;
    match sorting.store_index {
        None => reply_values(ctx, &values),
        Some(index) => store_values(ctx, args, index, values)?,
    }
    Ok(())
}

pub fn sort_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let sorting = parse(args, false)?;
    let values = sorted_values(ctx, args, &sorting)?;
    reply_values(ctx, &values);
    Ok(())
}

fn reply_values(ctx: &mut Ctx<'_>, values: &Values) {
    ctx.reply.array(values.len());
    for value in values {
        match value {
            Some(value) => ctx.reply.bulk(value),
            None => ctx.reply.null(),
        }
    }
}

fn store_values(ctx: &mut Ctx<'_>, args: &Args<'_>, index: usize, values: Values) -> CmdResult {
    let (db, target) = (ctx.db(), ctx.key(args, index));
    if values.is_empty() {
        ctx.worker.remove(db, &target)?;
    } else {
        let items: Vec<&[u8]> = values.iter().map(|value| value.as_deref().unwrap_or(b"")).collect();
        let before = ctx.worker.change_count();
        ctx.worker.make_way(db, &target, items.iter().map(|item| item.len()))?;
        ctx.worker.list_at(db, &target).push(End::Right, &items, false)?;
        ctx.count_as(before, items.len() as u64);
    }
    ctx.reply.int(values.len() as i64);
    Ok(())
}

/// The elements to be sorted, in the order in which they come, and whether that is one of a set.
fn elements_of(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    sorting: &Sorting<'_>,
) -> Result<(Vec<Vec<u8>>, bool), CmdError> {
    let (db, key, mut elements) = (ctx.client.db, ctx.key(args, 1), Vec::new());
    let entry = ctx.worker.entry(db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    let mut push = |element: &[u8]| {
        elements.push(element.to_vec());
        ControlFlow::Continue(())
    };
    match entry.map(|entry| entry.value_type) {
        None => {}
        Some(ValueType::List) => drop(ctx.worker.list_at(db, &key).range(0, -1, |_| (), push)?),
        Some(ValueType::Set) => {
            ctx.worker.set_at(db, &key).for_each(|_| (), push)?;
            return Ok((elements, true));
        }
        Some(ValueType::SortedSet) => {
            let (all, is_downwards) = (ScoredRange::ALL, sorting.is_left_alone() && sorting.is_descending);
            let each = |member: &[u8], _| push(member);
            ctx.worker.sorted_set_at(db, &key).range(&all, is_downwards, RangeLimit::NONE, |_| (), each)?;
        }
        Some(_) => return Err(errors::WRONG_TYPE.into()),
    }
    Ok((elements, false))
}

/// What the command gives: elements, or what is got for each.
fn sorted_values(ctx: &mut Ctx<'_>, args: &Args<'_>, sorting: &Sorting<'_>) -> Result<Values, CmdError> {
    let (elements, is_set) = elements_of(ctx, args, sorting)?;
    // What is stored is to be the same each time, but a set has no order.
    let is_forced = is_set && sorting.is_left_alone() && sorting.store_index.is_some();
    let is_alpha = sorting.is_alpha || is_forced;
    let by = sorting.by.filter(|_| !is_forced);
    let elements = match sorting.is_left_alone() && !is_forced {
        true => elements,
        false => {
            let mut sorted = Vec::with_capacity(elements.len());
            let mut missed = Missed::default();
            for element in elements {
                sorted.extend(missed.look(rated(ctx, element, by, is_alpha))?);
            }
            missed.end()?;
            sorted.sort_by(|a, b| match sorting.is_descending {
                true => compare(b, a, is_alpha),
                false => compare(a, b, is_alpha),
            });
            sorted.into_iter().map(|sorted| sorted.element).collect()
        }
    };
    let wanted = range_of(sorting.limit, elements.len());
    let (mut values, mut missed) = (Values::new(), Missed::default());
    for element in elements.into_iter().skip(wanted.start).take(wanted.len()) {
        if sorting.get.is_empty() {
            values.push(Some(element));
            continue;
        }
        for pattern in &sorting.get {
            values.extend(missed.look(looked_up(ctx, pattern, &element))?);
        }
    }
    missed.end()?;
    Ok(values)
}

fn range_of((start, count): (i64, i64), len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(start).unwrap_or(0).min(len);
    let end = usize::try_from(count).map_or(len, |count| start.saturating_add(count).min(len));
    start..end
}

/// An element with what it is sorted by.
fn rated(ctx: &mut Ctx<'_>, element: Vec<u8>, by: Option<&[u8]>, is_alpha: bool) -> Result<Sorted, CmdError> {
    let text = match by {
        Some(pattern) => looked_up(ctx, pattern, &element)?,
        None => Some(element.clone()),
    };
    let score = match &text {
        Some(text) if !is_alpha => {
            double::parse_loosely(text).ok_or("ERR One or more scores can't be converted into double")?
        }
        _ => 0.0,
    };
    Ok(Sorted { element, score, text })
}

fn compare(a: &Sorted, b: &Sorted, is_alpha: bool) -> Ordering {
    match is_alpha {
        true => a.text.cmp(&b.text),
        false => a.score.total_cmp(&b.score).then_with(|| a.element.cmp(&b.element)),
    }
}

/// What a pattern leads to for an element: `#` to itself, others to a string, or with `->` to a field of a hash.
fn looked_up(ctx: &mut Ctx<'_>, pattern: &[u8], element: &[u8]) -> Result<Option<Vec<u8>>, CmdError> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let rest = &pattern[star + 1..];
    let arrow = rest.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < rest.len());
    let (suffix, field) = match arrow {
        Some(at) => (&rest[..at], Some(&rest[at + 2..])),
        None => (rest, None),
    };
    let name = [&pattern[..star], element, suffix].concat();
    let (db, key) = (ctx.client.db, ctx.worker.key(&name));
    let entry = ctx.worker.entry(db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    let mut found = None;
    match (entry.map(|entry| entry.value_type), field) {
        (Some(ValueType::Hash), Some(field)) => {
            let take = |_, value: Option<&[u8]>| found = value.map(<[u8]>::to_vec);
            ctx.worker.hash_at(db, &key).get([field].into_iter(), take)?;
        }
        (Some(ValueType::String), None) => found = ctx.worker.get(db, &key, |value| value.to_vec())?,
        _ => {}
    }
    Ok(found)
}

/// Whether patterns lead to other keys.
fn has_patterns(args: &Args<'_>) -> bool {
    let is_pattern = |index: usize| (args.is(index, "BY") || args.is(index, "GET")) && index + 1 < args.len();
    (2..args.len()).any(|index| is_pattern(index) && args.at(index + 1).contains(&b'*'))
}

/// To store the elements takes two operations: what was there makes way, and they come.
fn sort_touch(args: &Args<'_>) -> Touch {
    let may_store = (2..args.len()).any(|index| args.is(index, "STORE"));
    match has_patterns(args) {
        true => Touch::Walk,
        false if may_store => Touch::Steps,
        false => Touch::OneOperation,
    }
}

/// What the key is, and then its elements.
fn sort_ro_touch(args: &Args<'_>) -> Touch {
    match has_patterns(args) {
        true => Touch::Walk,
        false => Touch::Steps,
    }
}

/// The options of `SORT`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opt {
    Order,
    Limit,
    Store,
    Pattern,
}

impl Opt {
    /// The option that begins at an argument and has all of its own.
    fn at(args: &Args<'_>, index: usize) -> Option<Opt> {
        let is_one_of = |names: &[&str]| names.iter().any(|name| args.is(index, name));
        let option = match () {
            () if is_one_of(&["ASC", "DESC", "ALPHA"]) => Opt::Order,
            () if is_one_of(&["LIMIT"]) => Opt::Limit,
            () if is_one_of(&["STORE"]) => Opt::Store,
            () if is_one_of(&["BY", "GET"]) => Opt::Pattern,
            () => return None,
        };
        (index + option.arg_count() <= args.len()).then_some(option)
    }

    /// With its name.
    fn arg_count(self) -> usize {
        match self {
            Opt::Order => 1,
            Opt::Store | Opt::Pattern => 2,
            Opt::Limit => 3,
        }
    }
}

fn parse<'k>(args: &Args<'k>, can_store: bool) -> Result<Sorting<'k>, CmdError> {
    let mut sorting = Sorting {
        is_descending: false,
        is_alpha: false,
        limit: (0, -1),
        store_index: None,
        by: None,
        get: Vec::new(),
    };
    let mut index = 2;
    while index < args.len() {
        let option = Opt::at(args, index).filter(|option| can_store || *option != Opt::Store);
        let option = option.ok_or(errors::SYNTAX)?;
        match option {
            Opt::Limit => sorting.limit = (integer(args.at(index + 1))?, integer(args.at(index + 2))?),
            Opt::Store => sorting.store_index = Some(index + 1),
            Opt::Order if args.is(index, "ALPHA") => sorting.is_alpha = true,
            Opt::Order => sorting.is_descending = args.is(index, "DESC"),
            Opt::Pattern if args.is(index, "BY") => sorting.by = Some(args.at(index + 1)),
            Opt::Pattern => sorting.get.push(args.at(index + 1)),
        }
        index += option.arg_count();
    }
    Ok(sorting)
}

/// The keys of a `SORT`: what is sorted, and where the result goes. The last `STORE` counts.
pub fn sort_keys(args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
    give(1, key_flag::RO | key_flag::ACCESS);
    let mut store_index = None;
    let mut index = 2;
    while index < args.len() {
        // What is no option is passed over: the command itself refuses it.
        let option = Opt::at(args, index);
        index += match option {
            // Redis looks at the argument of `STORE` as well: it may be another `STORE`.
            Some(Opt::Store) => {
                store_index = Some(index + 1);
                1
            }
            option => option.map_or(1, Opt::arg_count),
        };
    }
    if let Some(index) = store_index {
        give(index, key_flag::OW | key_flag::UPDATE);
    }
}
