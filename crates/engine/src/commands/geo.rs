//! Places in sorted sets: put there and looked up.

use stillframe_store::ScoreRule;

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::geo::{distance_m, place_of, score_of, text_of, GeoPoint};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::Reply;
use crate::text::double;

use super::sorted_set::NOT_A_FLOAT;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("geoadd", -5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, geoadd).acl(acl::GEO)
        .doc(Group::Geo, "3.2.0", "Add one or more geospatial items in the geospatial index represented using a sorted set", "O(log(N)) for each item added, where N is the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("geodist", -4, flag::READONLY, Touch::OneOperation, geodist).acl(acl::GEO)
        .doc(Group::Geo, "3.2.0", "Returns the distance between two members of a geospatial index", "O(log(N))")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("geohash", -2, flag::READONLY, Touch::OneOperation, geohash).acl(acl::GEO)
        .doc(Group::Geo, "3.2.0", "Returns members of a geospatial index as standard geohash strings", "O(log(N)) for each member requested, where N is the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("geopos", -2, flag::READONLY, Touch::OneOperation, geopos).acl(acl::GEO)
        .doc(Group::Geo, "3.2.0", "Returns longitude and latitude of members of a geospatial index", "O(N) where N is the number of members requested.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

/// Metres of the unit that an argument names.
pub(super) fn unit_m(text: &[u8]) -> Result<f64, CmdError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = units.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes()));
    let (_, unit_m) = unit.ok_or("ERR unsupported unit provided. please use M, KM, FT, MI")?;
    Ok(unit_m)
}

/// The place whose longitude and latitude are at an argument and the next.
pub(super) fn place(args: &Args<'_>, index: usize) -> Result<GeoPoint, CmdError> {
    let degrees = |index: usize| double::parse(args.at(index)).ok_or(NOT_A_FLOAT);
    let (longitude, latitude) = (degrees(index)?, degrees(index + 1)?);
    let place = GeoPoint::on_map(longitude, latitude);
    place.ok_or_else(|| format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into())
}

/// Distances have four decimals, and are text in RESP3, too.
pub(super) fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

pub(super) fn reply_place(reply: &mut Reply<'_>, place: GeoPoint) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        reply.double_text(text.trim_end_matches('0').trim_end_matches('.'));
    }
}

pub fn geoadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (mut rule, mut counts_changed, mut first) = (ScoreRule::default(), false, 2);
    while first < args.len() {
        match () {
            () if args.is(first, "NX") => rule.only_new = true,
            () if args.is(first, "XX") => rule.only_present = true,
            () if args.is(first, "CH") => counts_changed = true,
            () => break,
        }
        first += 1;
    }
    let element_args = args.len() - first;
    if element_args == 0 || element_args % 3 != 0 || rule.only_new && rule.only_present {
        return Err(errors::SYNTAX.into());
    }
    let scored = (first..args.len()).step_by(3).map(|index| {
        let score = score_of(place(args, index)?);
        Ok((score, args.at(index + 2)))
    });
    let scored = scored.collect::<Result<Vec<_>, CmdError>>()?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let changes = ctx.worker.sorted_set_at(db, &key).put(&scored, &rule)?;
    let updated = if counts_changed { changes.updated } else { 0 };
    ctx.reply.int((changes.added + updated) as i64);
    Ok(())
}

pub fn geodist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() > 5 {
        return Err(errors::SYNTAX.into());
    }
    let unit_m = args.get(4).map_or(Ok(1.0), unit_m)?;
    let key = ctx.key(args, 1);
    let (members, mut places) = ([args.at(2), args.at(3)], [None; 2]);
    let found =
        ctx.worker.sorted_set_at(ctx.client.db, &key).scores(members.into_iter(), |index, score| {
            places[index] = score.map(place_of);
        })?;
    ctx.looked_up(&key, found);
    match places {
        [Some(a), Some(b)] => reply_distance(&mut ctx.reply, distance_m(a, b) / unit_m),
        _ => ctx.reply.null(),
    }
    Ok(())
}

pub fn geohash(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    for_each_score(ctx, args, |reply, score| match score {
        Some(score) => reply.bulk(&text_of(score)),
        None => reply.null(),
    })
}

pub fn geopos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    for_each_score(ctx, args, |reply, score| match score {
        Some(score) => reply_place(reply, place_of(score)),
        None => reply.null_array(),
    })
}

/// Replies with an array of what `f` makes of each member's score.
fn for_each_score(ctx: &mut Ctx<'_>, args: &Args<'_>, f: fn(&mut Reply<'_>, Option<f64>)) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    reply.array(args.len() - 2);
    let found = worker.sorted_set_at(client.db, &key).scores(args.from(2), |_, score| f(reply, score))?;
    ctx.looked_up(&key, found);
    Ok(())
}
