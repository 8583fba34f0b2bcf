//! Unions, intersections and differences of sorted sets.

use std::collections::HashMap;
use std::ops::ControlFlow;

use stillframe_store::{Given, RangeLimit, ScoredRange, ValueType};

use super::sorted_set_range::store_members;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::double;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("zdiff", -3, flag::READONLY | flag::MOVABLEKEYS, Touch::Steps, zdiff).counting().acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "6.2.0", "Subtract multiple sorted sets", "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zdiffstore", -4, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::OneOperation, zdiffstore).acl(acl::SORTEDSET).event("zdiffstore")
        .doc(Group::SortedSet, "6.2.0", "Subtract multiple sorted sets and store the resulting sorted set in a new key", "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::counted(2, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zinter", -3, flag::READONLY | flag::MOVABLEKEYS, Touch::Steps, zinter).counting().acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "6.2.0", "Intersect multiple sorted sets", "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zintercard", -3, flag::READONLY | flag::MOVABLEKEYS, Touch::Steps, zintercard).counting().acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "7.0.0", "Intersect multiple sorted sets and return the cardinality of the result", "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zinterstore", -4, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::OneOperation, zinterstore).acl(acl::SORTEDSET).event("zinterstore")
        .doc(Group::SortedSet, "2.0.0", "Intersect multiple sorted sets and store the resulting sorted set in a new key", "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::counted(2, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zunion", -3, flag::READONLY | flag::MOVABLEKEYS, Touch::Steps, zunion).counting().acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "6.2.0", "Add multiple sorted sets", "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zunionstore", -4, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::OneOperation, zunionstore).acl(acl::SORTEDSET).event("zunionstore")
        .doc(Group::SortedSet, "2.0.0", "Add multiple sorted sets and store the resulting sorted set in a new key", "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::counted(2, key_flag::RO | key_flag::ACCESS)]),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the scores of one member in several sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, old: f64, new: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_if_nan(old + new),
            Aggregate::Min => {
                if new < old {
                    new
                } else {
                    old
                }
            }
            Aggregate::Max => {
                if new > old {
                    new
                } else {
                    old
                }
            }
        }
    }
}

/// What is no number, as infinity times zero, counts as zero.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() {
        0.0
    } else {
        score
    }
}

/// Which command it is.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    operation: Operation,
    /// Where the number of keys is.
    count_index: usize,
    /// The number of members is wanted, not the members.
    counts: bool,
}

impl Form {
    fn stores(&self) -> bool {
        self.count_index == 2
    }
}

/// An input.
struct Source {
    key_index: usize,
    weight: f64,
    len: u64,
    /// It is a set, each of whose members has the score 1.
    is_set: bool,
}

struct Options {
    aggregate: Aggregate,
    has_scores: bool,
    limit: u64,
}

/// The inputs and what is wanted of them, with errors in the order in which Redis finds them.
fn parse(ctx: &mut Ctx<'_>, args: &Args<'_>, form: Form) -> Result<(Vec<Source>, Options), CmdError> {
    let count = integer(args.at(form.count_index))?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{}' command", form.name).into());
    }
    let first = form.count_index + 1;
    let count = usize::try_from(count).ok().filter(|count| *count <= args.len() - first);
    let Some(count) = count else { return Err(errors::SYNTAX.into()) };
    let mut sources = Vec::with_capacity(count);
    for key_index in first..first + count {
        let key = ctx.key(args, key_index);
        let entry = ctx.worker.entry(ctx.client.db, &key)?;
        ctx.looked_up(&key, entry.is_some());
        let mut is_set = false;
        let len = match entry {
            None => 0,
            Some(entry) if entry.value_type == ValueType::Set => {
                is_set = true;
                ctx.worker.set_at(ctx.client.db, &key).len()?
            }
            Some(entry) => {
                entry.must_be(ValueType::SortedSet)?;
                ctx.worker.sorted_set_at(ctx.client.db, &key).len()?
            }
        };
        sources.push(Source { key_index, weight: 1.0, len, is_set });
    }
    let options = parse_options(args, form, first + count, &mut sources)?;
    Ok((sources, options))
}

fn parse_options(
    args: &Args<'_>,
    form: Form,
    mut index: usize,
    sources: &mut [Source],
) -> Result<Options, CmdError> {
    let mut options = Options { aggregate: Aggregate::Sum, has_scores: false, limit: 0 };
    let weighs = form.operation != Operation::Difference && !form.counts;
    while index < args.len() {
        let left = args.len() - index;
        if weighs && left > sources.len() && args.is(index, "WEIGHTS") {
            for source in sources.iter_mut() {
                index += 1;
                source.weight = double::parse(args.at(index)).ok_or("ERR weight value is not a float")?;
            }
        } else if weighs && left >= 2 && args.is(index, "AGGREGATE") {
            index += 1;
            let named = [("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];
            let named = named.into_iter().find(|(name, _)| args.is(index, name));
            options.aggregate = named.ok_or(errors::SYNTAX)?.1;
        } else if !form.stores() && !form.counts && args.is(index, "WITHSCORES") {
            options.has_scores = true;
        } else if form.counts && left >= 2 && args.is(index, "LIMIT") {
            index += 1;
            let limit = parse_i64(args.at(index)).and_then(|limit| u64::try_from(limit).ok());
            options.limit = limit.ok_or("ERR LIMIT can't be negative")?;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    Ok(options)
}

/// Gives the members of an input, with their scores, to `f` until it breaks.
fn for_each_member(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    source: &Source,
    mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>,
) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, source.key_index));
    if source.is_set {
        ctx.worker.set_at(db, &key).for_each(|_| (), |member| f(member, 1.0))?;
        return Ok(());
    }
    ctx.worker.sorted_set_at(db, &key).range(&ScoredRange::ALL, false, RangeLimit::NONE, |_| (), f)?;
    Ok(())
}

/// The scores that an input has for some members.
fn scores_of(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    source: &Source,
    members: &[(Vec<u8>, f64)],
) -> Result<Vec<Option<f64>>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, source.key_index));
    let mut scores = Vec::with_capacity(members.len());
    let names = members.iter().map(|(member, _)| &member[..]);
    if source.is_set {
        ctx.worker.set_at(db, &key).contains(names, |_, is_there| scores.push(is_there.then_some(1.0)))?;
        return Ok(scores);
    }
    ctx.worker.sorted_set_at(db, &key).scores(names, |_, score| scores.push(score))?;
    Ok(scores)
}

type Members = Vec<(Vec<u8>, f64)>;

fn members_of(ctx: &mut Ctx<'_>, args: &Args<'_>, source: &Source) -> Result<Members, CmdError> {
    let mut members = Vec::with_capacity(usize::try_from(source.len).unwrap_or(0).min(1 << 20));
    for_each_member(ctx, args, source, |member, score| {
        members.push((member.to_vec(), score));
        ControlFlow::Continue(())
    })?;
    Ok(members)
}

fn union(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    sources: &[Source],
    aggregate: Aggregate,
) -> Result<Members, CmdError> {
    let mut all: HashMap<Vec<u8>, f64> = HashMap::new();
    for source in sources {
        for_each_member(ctx, args, source, |member, score| {
            let score = zero_if_nan(source.weight * score);
            match all.get_mut(member) {
                Some(old) => *old = aggregate.of(*old, score),
                None => drop(all.insert(member.to_vec(), score)),
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(all.into_iter().collect())
}

/// Of the smallest input the members that all others have, too.
fn intersection(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    sources: &[Source],
    aggregate: Aggregate,
) -> Result<Members, CmdError> {
    let Some((smallest, others)) = sources.split_first().filter(|(smallest, _)| smallest.len > 0) else {
        return Ok(Vec::new());
    };
    let mut members = members_of(ctx, args, smallest)?;
    members.iter_mut().for_each(|(_, score)| *score = zero_if_nan(smallest.weight * *score));
    for source in others {
        let scores = scores_of(ctx, args, source, &members)?;
        let mut scores = scores.into_iter();
        members.retain_mut(|(_, score)| match scores.next().flatten() {
            Some(other) => {
                *score = aggregate.of(*score, other * source.weight);
                true
            }
            None => false,
        });
    }
    Ok(members)
}

/// The members of the first input that no other has.
fn difference(ctx: &mut Ctx<'_>, args: &Args<'_>, sources: &[Source]) -> Result<Members, CmdError> {
    let Some((first, others)) = sources.split_first() else { return Ok(Vec::new()) };
    let mut members = members_of(ctx, args, first)?;
    for source in others.iter().filter(|source| source.len > 0) {
        let scores = scores_of(ctx, args, source, &members)?;
        let mut scores = scores.into_iter();
        members.retain(|_| scores.next().flatten().is_none());
    }
    Ok(members)
}

fn combine(ctx: &mut Ctx<'_>, args: &Args<'_>, form: Form) -> CmdResult {
    let (mut sources, options) = parse(ctx, args, form)?;
    if form.operation != Operation::Difference {
        sources.sort_by_key(|source| source.len);
    }
    let mut members = match form.operation {
        Operation::Union => union(ctx, args, &sources, options.aggregate)?,
        Operation::Intersection => intersection(ctx, args, &sources, options.aggregate)?,
        Operation::Difference => difference(ctx, args, &sources)?,
    };
    if form.stores() {
        return store_members(ctx, args, 1, members, 1);
    }
    if form.counts {
        let count = members.len() as u64;
        ctx.reply.int(if options.limit > 0 { count.min(options.limit) } else { count } as i64);
        return Ok(());
    }
    members.sort_unstable_by(|a, b| {
        a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.0.cmp(&b.0))
    });
    ctx.reply.members(members.len(), options.has_scores);
    for (member, score) in &members {
        ctx.reply.member(Given::Here(member), *score, options.has_scores);
    }
    Ok(())
}

fn form(name: &'static str, operation: Operation, count_index: usize) -> Form {
    Form { name, operation, count_index, counts: false }
}

pub fn zunion(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zunion", Operation::Union, 1))
}

pub fn zinter(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zinter", Operation::Intersection, 1))
}

pub fn zdiff(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zdiff", Operation::Difference, 1))
}

pub fn zintercard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, Form { counts: true, ..form("zintercard", Operation::Intersection, 1) })
}

pub fn zunionstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zunionstore", Operation::Union, 2))
}

pub fn zinterstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zinterstore", Operation::Intersection, 2))
}

pub fn zdiffstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    combine(ctx, args, form("zdiffstore", Operation::Difference, 2))
}
