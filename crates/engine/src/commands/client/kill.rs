//! `CLIENT KILL`: closing connections.

use std::sync::atomic::Ordering;

use crate::command::{CmdError, CmdResult};
use crate::dispatch::ctx::Ctx;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::clients::{client_flag, ClientInfo};
use crate::state::mailbox::Message;
use crate::state::session::Ending;
use crate::text::number;

/// Which clients are meant; all conditions must hold.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    of_type: Option<ClientType>,
    max_age_seconds: Option<u64>,
    spares_self: bool,
}

impl Filter<'_> {
    fn fits(&self, client: &ClientInfo, own_id: u64) -> bool {
        self.id.is_none_or(|id| id == client.id)
            && self.addr.is_none_or(|addr| addr == client.addr.as_bytes())
            && self.laddr.is_none_or(|laddr| laddr == client.laddr.as_bytes())
            && self.max_age_seconds.is_none_or(|age| client.connected_at.elapsed().as_secs() >= age)
            && self.of_type.is_none_or(|of_type| of_type.fits(client))
            && !(self.spares_self && client.id == own_id)
    }
}

fn read_filter<'a>(args: &Args<'a>) -> Result<Filter<'a>, CmdError> {
    let mut filter = Filter { spares_self: true, ..Filter::default() };
    for at in (2..args.len()).step_by(2) {
        let Some(value) = args.get(at + 1) else { return Err(errors::SYNTAX.into()) };
        if args.is(at, "id") {
            match number::parse_i64(value) {
                Some(id @ 1..) => filter.id = Some(id as u64),
                _ => return Err("ERR client-id should be greater than 0".into()),
            }
        } else if args.is(at, "maxage") {
            match number::parse_i64(value) {
                Some(age @ 1..) => filter.max_age_seconds = Some(age as u64),
                Some(_) => return Err("ERR maxage should be greater than 0".into()),
                None => return Err("ERR maxage is not an integer or out of range".into()),
            }
        } else if args.is(at, "type") {
            filter.of_type = Some(ClientType::by_name(value)?);
        } else if args.is(at, "addr") {
            filter.addr = Some(value);
        } else if args.is(at, "laddr") {
            filter.laddr = Some(value);
        } else if args.is(at, "user") {
            if value != b"default" {
                return Err([b"ERR No such user '", errors::printed(value), b"'"].concat().into());
            }
        } else if args.is(at, "skipme") && args.is(at + 1, "yes") {
            filter.spares_self = true;
        } else if args.is(at, "skipme") && args.is(at + 1, "no") {
            filter.spares_self = false;
        } else {
            return Err(errors::SYNTAX.into());
        }
    }
    Ok(filter)
}

/// Closes a client: this one after its reply, others by a message to their worker.
fn close(ctx: &mut Ctx<'_>, client: &ClientInfo) {
    if client.id == ctx.client.id {
        ctx.client.ending = Ending::AfterReply;
    } else if !client.is_killed.swap(true, Ordering::AcqRel) {
        ctx.server.send(client, Message::Kill);
    }
}

pub fn kill(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let is_old_form = args.len() == 3;
    let filter =
        if is_old_form { Filter { addr: Some(args.at(2)), ..Filter::default() } } else { read_filter(args)? };
    let mut count = 0;
    for client in ctx.server.clients.all() {
        if filter.fits(&client, ctx.client.id) && !client.is_killed.load(Ordering::Acquire) {
            close(ctx, &client);
            count += 1;
        }
    }
    match (is_old_form, count) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => ctx.reply.ok(),
        (false, _) => ctx.reply.int(count),
    }
    Ok(())
}

/// The types of clients that Redis knows.
#[derive(Clone, Copy)]
pub(super) enum ClientType {
    Normal,
    Pubsub,
    /// There is none here.
    Replication,
}

impl ClientType {
    pub fn by_name(name: &[u8]) -> Result<ClientType, CmdError> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(ClientType::Normal),
            b"pubsub" => Ok(ClientType::Pubsub),
            b"slave" | b"replica" | b"master" => Ok(ClientType::Replication),
            _ => Err([b"ERR Unknown client type '", errors::printed(name), b"'"].concat().into()),
        }
    }

    pub fn fits(self, client: &ClientInfo) -> bool {
        let listens = client.published.flags.load(Ordering::Relaxed) & client_flag::PUBSUB != 0;
        match self {
            ClientType::Normal => !listens,
            ClientType::Pubsub => listens,
            ClientType::Replication => false,
        }
    }
}
