//! `SUBSCRIBE`, `PUBLISH`, and their kin.

use crate::command::{acl, flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::subscribed;
use crate::protocol::args::Args;
use crate::state::subscription::Kind;

const LISTENS: u32 = flag::PUBSUB | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::LISTENING;
const TELLS: u32 = flag::PUBSUB | flag::LOADING | flag::STALE;
const PUBLISHES: u32 = TELLS | flag::FAST | flag::MAY_REPLICATE;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("subscribe", -2, LISTENS, Touch::Nothing, |ctx, args| subscribe(ctx, args, Kind::Channel))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.0.0", "Listen for messages published to the given channels", "O(N) where N is the number of channels to subscribe to."),
    Command::new("unsubscribe", -1, LISTENS, Touch::Nothing, |ctx, args| unsubscribe(ctx, args, Kind::Channel))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.0.0", "Stop listening for messages posted to the given channels", "O(N) where N is the number of clients already subscribed to a channel."),
    Command::new("psubscribe", -2, LISTENS, Touch::Nothing, |ctx, args| subscribe(ctx, args, Kind::Pattern))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.0.0", "Listen for messages published to channels matching the given patterns", "O(N) where N is the number of patterns the client is already subscribed to."),
    Command::new("punsubscribe", -1, LISTENS, Touch::Nothing, |ctx, args| unsubscribe(ctx, args, Kind::Pattern))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.0.0", "Stop listening for messages posted to channels matching the given patterns", "O(N+M) where N is the number of patterns the client is already subscribed and M is the number of total patterns subscribed in the system (by any client)."),
    Command::new("ssubscribe", -2, LISTENS, Touch::Nothing, |ctx, args| subscribe(ctx, args, Kind::Shard))
        .acl(acl::PUBSUB)
        .keys(&[KeySpec::range(1, -1, 1, key_flag::NOT_KEY)])
        .doc(Group::Pubsub, "7.0.0", "Listen for messages published to the given shard channels", "O(N) where N is the number of shard channels to subscribe to."),
    Command::new("sunsubscribe", -1, LISTENS, Touch::Nothing, |ctx, args| unsubscribe(ctx, args, Kind::Shard))
        .acl(acl::PUBSUB)
        .keys(&[KeySpec::range(1, -1, 1, key_flag::NOT_KEY)])
        .doc(Group::Pubsub, "7.0.0", "Stop listening for messages posted to the given shard channels", "O(N) where N is the number of clients already subscribed to a shard channel."),
    Command::new("publish", 3, PUBLISHES, Touch::Nothing, |ctx, args| publish(ctx, args, false))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.0.0", "Post a message to a channel", "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client)."),
    Command::new("spublish", 3, PUBLISHES, Touch::Nothing, |ctx, args| publish(ctx, args, true))
        .acl(acl::PUBSUB)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::NOT_KEY)])
        .doc(Group::Pubsub, "7.0.0", "Post a message to a shard channel", "O(N) where N is the number of clients subscribed to the receiving shard channel."),
    Command::container("pubsub", -2, 0)
        .doc(Group::Pubsub, "2.8.0", "A container for Pub/Sub commands", "Depends on subcommand."),
    Command::new("pubsub|channels", -2, TELLS, Touch::Nothing, |ctx, args| channels(ctx, args, Kind::Channel))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.8.0", "List active channels", "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)"),
    Command::new("pubsub|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .doc(Group::Pubsub, "6.2.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("pubsub|numpat", 2, TELLS, Touch::Nothing, numpat)
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.8.0", "Get the count of unique patterns pattern subscriptions", "O(1)"),
    Command::new("pubsub|numsub", -2, TELLS, Touch::Nothing, |ctx, args| numsub(ctx, args, Kind::Channel))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "2.8.0", "Get the count of subscribers for channels", "O(N) for the NUMSUB subcommand, where N is the number of requested channels"),
    Command::new("pubsub|shardchannels", -2, TELLS, Touch::Nothing, |ctx, args| channels(ctx, args, Kind::Shard))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "7.0.0", "List active shard channels", "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels)."),
    Command::new("pubsub|shardnumsub", -2, TELLS, Touch::Nothing, |ctx, args| numsub(ctx, args, Kind::Shard))
        .acl(acl::PUBSUB)
        .doc(Group::Pubsub, "7.0.0", "Get the count of subscribers for shard channels", "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels"),
];

/// The reply to a subscription, or to its end; `None`: there was none to end.
fn tell(ctx: &mut Ctx<'_>, kind: Kind, word: &[u8], name: Option<&[u8]>) {
    let count = ctx.client.subscriptions.counted_with(kind);
    ctx.client.has_pushed = true;
    ctx.reply.push(3);
    ctx.reply.bulk(word);
    match name {
        Some(name) => ctx.reply.bulk(name),
        None => ctx.reply.null(),
    }
    ctx.reply.int(count as i64);
}

fn subscribe(ctx: &mut Ctx<'_>, args: &Args<'_>, kind: Kind) -> CmdResult {
    let listener = ctx.client.listen(ctx.peer);
    subscribed::hear(ctx, ctx.reply.out.len());
    for name in args.from(1) {
        ctx.server.pubsub.subscribe(&listener, &mut ctx.client.subscriptions, kind, name);
        tell(ctx, kind, kind.subscribed(), Some(name));
    }
    subscribed::hear_behind(ctx);
    Ok(())
}

fn unsubscribe(ctx: &mut Ctx<'_>, args: &Args<'_>, kind: Kind) -> CmdResult {
    let end = |ctx: &mut Ctx<'_>, name: &[u8]| {
        ctx.server.pubsub.unsubscribe(ctx.client.id, &mut ctx.client.subscriptions, kind, name);
        tell(ctx, kind, kind.unsubscribed(), Some(name));
    };
    if args.len() > 1 {
        args.from(1).for_each(|name| end(ctx, name));
        return Ok(());
    }
    let all = ctx.client.subscriptions.all(kind);
    all.iter().for_each(|name| end(ctx, name));
    if all.is_empty() {
        tell(ctx, kind, kind.unsubscribed(), None);
    }
    Ok(())
}

fn publish(ctx: &mut Ctx<'_>, args: &Args<'_>, is_shard: bool) -> CmdResult {
    // It may be sent because of what the client has just changed: that comes first.
    let need = ctx.server.reply_gate.running(ctx.worker.steps().worker());
    let count = ctx.server.pubsub.publish(is_shard, args.at(1), args.at(2), &need);
    ctx.reply.int(count as i64);
    Ok(())
}

fn channels(ctx: &mut Ctx<'_>, args: &Args<'_>, kind: Kind) -> CmdResult {
    if args.len() > 3 {
        return Err(subscribed::wrong_arguments(args));
    }
    let names = ctx.server.pubsub.names(kind, args.get(2));
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name));
    Ok(())
}

fn numsub(ctx: &mut Ctx<'_>, args: &Args<'_>, kind: Kind) -> CmdResult {
    ctx.reply.array(2 * (args.len() - 2));
    for name in args.from(2) {
        ctx.reply.bulk(name);
        ctx.reply.int(ctx.server.pubsub.listener_count(kind, name) as i64);
    }
    Ok(())
}

fn numpat(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.int(ctx.server.pubsub.name_count(Kind::Pattern) as i64);
    Ok(())
}

fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "PUBSUB",
        &[
            "CHANNELS [<pattern>]",
            "    Return the currently active channels matching a <pattern> (default: '*').",
            "NUMPAT",
            "    Return number of subscriptions to patterns.",
            "NUMSUB [<channel> ...]",
            "    Return the number of subscribers for the specified channels, excluding",
            "    pattern subscriptions(default: no channels).",
            "SHARDCHANNELS [<pattern>]",
            "    Return the currently active shard level channels matching a <pattern> (default: '*').",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return the number of subscribers for the specified shard level channel(s)",
        ],
    );
    Ok(())
}
