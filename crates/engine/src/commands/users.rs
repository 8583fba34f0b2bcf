//! `ACL`, as far as there is one: the default user, who may do everything.

use crate::command::operand;
use crate::command::{acl, flag, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("acl", -2, 0)
        .acl(0)
        .doc(Group::Server, "6.0.0", "A container for Access List Control commands ", "Depends on subcommand."),
    Command::new("acl|cat", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, cat)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the ACL categories or the commands inside a category", "O(1) since the categories and commands are a fixed set."),
    Command::new("acl|genpass", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, genpass)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Generate a pseudorandom secure password to use for ACL users", "O(1)"),
    Command::new("acl|getuser", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, getuser)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Get the rules for a specific ACL user", "O(N). Where N is the number of password, command and pattern rules that the user has."),
    Command::new("acl|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("acl|list", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, list)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the current ACL rules in ACL config file format", "O(N). Where N is the number of configured users."),
    Command::new("acl|load", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, no_file)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Reload the ACLs from the configured ACL file", "O(N). Where N is the number of configured users."),
    Command::new("acl|log", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, log)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List latest events denied because of ACLs in place", "O(N) with N being the number of entries shown."),
    Command::new("acl|save", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, no_file)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Save the current ACL rules in the configured ACL file", "O(N). Where N is the number of configured users."),
    Command::new("acl|users", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, users)
        .acl(0)
        .doc(Group::Server, "6.0.0", "List the username of all the configured ACL rules", "O(N). Where N is the number of configured users."),
    Command::new("acl|whoami", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, whoami)
        .acl(0)
        .doc(Group::Server, "6.0.0", "Return the name of the user associated to the current connection", "O(1)"),
];

const USER: &[u8] = b"default";
const BAD_GENPASS: &str =
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                           number up to 4096";

pub fn whoami(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.bulk(USER);
    Ok(())
}

pub fn users(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.array(1);
    ctx.reply.bulk(USER);
    Ok(())
}

pub fn list(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    // The password's hash is not shown; it would have to be Redis's SHA-256 to be of use.
    let password = if ctx.config.settings.requirepass.is_empty() { "nopass " } else { "" };
    ctx.reply.array(1);
    ctx.reply.bulk(format!("user default on {password}~* &* +@all").as_bytes());
    Ok(())
}

pub fn getuser(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.at(2) != USER {
        ctx.reply.null();
        return Ok(());
    }
    let has_password = !ctx.config.settings.requirepass.is_empty();
    let reply = &mut ctx.reply;
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(if has_password { 1 } else { 2 });
    reply.bulk(b"on");
    if !has_password {
        reply.bulk(b"nopass");
    }
    reply.bulk(b"passwords");
    reply.array(0);
    for (field, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

pub fn cat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(name) = args.get(2) else {
        ctx.reply.array(acl::NAMES.len());
        acl::NAMES.iter().for_each(|(_, name)| ctx.reply.bulk(name.as_bytes()));
        return Ok(());
    };
    if args.len() > 3 {
        return Err("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.".into());
    }
    let Some((category, _)) =
        acl::NAMES.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name))
    else {
        return Err([b"ERR Unknown category '", errors::printed(name), b"'"].concat().into());
    };
    let rows: Vec<_> =
        ctx.registry.rows().iter().filter(|row| row.acl_categories() & category != 0).collect();
    ctx.reply.array(rows.len());
    rows.iter().for_each(|row| ctx.reply.bulk(row.name.as_bytes()));
    Ok(())
}

pub fn genpass(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let bits = match args.get(2) {
        None => 256,
        Some(text) => match number::parse_i64(text) {
            Some(bits @ 1..=4096) if args.len() == 3 => bits as usize,
            _ => return Err(BAD_GENPASS.into()),
        },
    };
    let mut bytes = vec![0; bits.div_ceil(8)];
    let random = std::fs::File::open("/dev/urandom");
    random
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| format!("ERR /dev/urandom: {error}"))?;
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    ctx.reply.bulk(&digits.as_bytes()[..bits.div_ceil(4)]);
    Ok(())
}

/// Failed logins are not recorded.
pub fn log(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() == 3 && args.is(2, "reset") {
        ctx.reply.ok();
        return Ok(());
    }
    if let Some(count) = args.get(2) {
        operand::integer(count)?;
    }
    ctx.reply.array(0);
    Ok(())
}

pub fn no_file(_ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    Err("ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
         SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order \
         to store users in the Redis configuration."
        .into())
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "ACL",
        &[
            "CAT [<category>]",
            "    List all commands that belong to <category>, or all command categories",
            "    when no category is specified.",
            "GETUSER <username>",
            "    Get the user's details.",
            "GENPASS [<bits>]",
            "    Generate a secure 256-bit user password. The optional `bits` argument can",
            "    be used to specify a different size.",
            "LIST",
            "    Show users details in config file format.",
            "LOG [<count> | RESET]",
            "    Show the ACL log entries.",
            "USERS",
            "    List all the registered usernames.",
            "WHOAMI",
            "    Return the current connection username.",
        ],
    );
    Ok(())
}
