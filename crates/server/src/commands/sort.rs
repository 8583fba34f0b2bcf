//! `SORT`. Lists and sets are not stored yet, so there is nothing to sort but absent keys.

use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, Begin, CmdError, CmdResult, Find, Group, KeySpec};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("sort", -2, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, sort).acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "1.0.0", "Sort the elements in a list, set or sorted set", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }, KeySpec { notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array", flags: key_flag::OW | key_flag::UPDATE, begin: Begin::Unknown, find: Find::Unknown }])
        .keys_fn(sort_keys),
    Command::new("sort_ro", -2, flag::READONLY | flag::MOVABLEKEYS, sort_ro).acl(acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS)
        .doc(Group::Generic, "7.0.0", "Sort the elements in a list, set or sorted set. Read-only variant of SORT.", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec { notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort", flags: key_flag::RO | key_flag::ACCESS, begin: Begin::Unknown, find: Find::Unknown }])
        .keys_fn(sort_keys),
];

pub fn sort(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let store_index = parse(args, true)?;
    check_absent(ctx, args)?;
    let Some(index) = store_index else {
        ctx.reply.array(0);
        return Ok(());
    };
    let (db, target) = (ctx.db(), ctx.key(args, index));
    ctx.worker.remove(db, &target)?;
    ctx.reply.int(0);
    Ok(())
}

pub fn sort_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    parse(args, false)?;
    check_absent(ctx, args)?;
    ctx.reply.array(0);
    Ok(())
}

fn check_absent(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let found = ctx.worker.entry(ctx.client.db, &key)?.is_some();
    ctx.looked_up(&key, found);
    if found {
        Err(errors::WRONG_TYPE.into())
    } else {
        Ok(())
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

/// Checks the options; returns the index of `STORE`'s argument.
fn parse(args: &Args<'_>, can_store: bool) -> Result<Option<usize>, CmdError> {
    let mut store_index = None;
    let mut index = 2;
    while index < args.len() {
        let option = Opt::at(args, index).filter(|option| can_store || *option != Opt::Store);
        let option = option.ok_or(errors::SYNTAX)?;
        match option {
            Opt::Limit => drop((integer(args.at(index + 1))?, integer(args.at(index + 2))?)),
            Opt::Store => store_index = Some(index + 1),
            Opt::Order | Opt::Pattern => {}
        }
        index += option.arg_count();
    }
    Ok(store_index)
}

/// The keys of a `SORT`: what is sorted, and where the result goes. The last `STORE` counts.
pub fn sort_keys(args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
    give(1, key_flag::RO | key_flag::ACCESS);
    let mut store_index = None;
    let mut index = 2;
    while index < args.len() {
        // What is no option is passed over: the command itself refuses it.
        let option = Opt::at(args, index);
        if option == Some(Opt::Store) {
            store_index = Some(index + 1);
        }
        index += option.map_or(1, Opt::arg_count);
    }
    if let Some(index) = store_index {
        give(index, key_flag::OW | key_flag::UPDATE);
    }
}
