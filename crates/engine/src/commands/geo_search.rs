//! Searches for places in sorted sets, by their distance from one. What they find is given, or stored in another sorted set.

use std::ops::ControlFlow;

use stillframe_store::{Key, RangeLimit, ScoreBound, ScoredRange, ValueType};

use super::geo::{place, reply_distance, reply_place, unit_m};
use super::sorted_set_range::store_members;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::geo::{place_of, sort_first, GeoPoint, Search, Shape};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::double;

const O_CIRCLE: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.";
const O_SHAPE: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape";

const SOURCE: KeySpec = KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS);
const TARGET: u32 = key_flag::OW | key_flag::UPDATE;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("georadius", -6, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::OneOperation, georadius).acl(acl::GEO).event("georadiusstore")
        .doc(Group::Geo, "3.2.0", "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a point", O_CIRCLE)
        .keys(&[SOURCE, KeySpec::after("STORE", 6, TARGET), KeySpec::after("STOREDIST", 6, TARGET)]),
    Command::new("georadius_ro", -6, flag::READONLY, Touch::Steps, georadius_ro).acl(acl::GEO)
        .doc(Group::Geo, "3.2.10", "A read-only variant for GEORADIUS", O_CIRCLE)
        .keys(&[SOURCE]),
    Command::new("georadiusbymember", -5, flag::WRITE | flag::DENYOOM | flag::MOVABLEKEYS, Touch::OneOperation, georadiusbymember).acl(acl::GEO).event("georadiusstore")
        .doc(Group::Geo, "3.2.0", "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a member", O_CIRCLE)
        .keys(&[SOURCE, KeySpec::after("STORE", 5, TARGET), KeySpec::after("STOREDIST", 5, TARGET)]),
    Command::new("georadiusbymember_ro", -5, flag::READONLY, Touch::Steps, georadiusbymember_ro).acl(acl::GEO)
        .doc(Group::Geo, "3.2.10", "A read-only variant for GEORADIUSBYMEMBER", O_CIRCLE)
        .keys(&[SOURCE]),
    Command::new("geosearch", -7, flag::READONLY, Touch::Steps, geosearch).counting().acl(acl::GEO)
        .doc(Group::Geo, "6.2.0", "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.", O_SHAPE)
        .keys(&[SOURCE]),
    Command::new("geosearchstore", -8, flag::WRITE | flag::DENYOOM, Touch::OneOperation, geosearchstore).acl(acl::GEO).event("geosearchstore")
        .doc(Group::Geo, "6.2.0", "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle, and store the result in another key.", O_SHAPE)
        .keys(&[KeySpec::range(1, 0, 1, TARGET), KeySpec::range(2, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

/// Where a command takes the centre and the size from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// `key longitude latitude radius unit`
    Place {
        may_store: bool,
    },
    /// `key member radius unit`
    Member {
        may_store: bool,
    },
    /// The options say.
    Search,
    SearchStore,
}

impl Form {
    fn key_index(self) -> usize {
        match self {
            Form::SearchStore => 2,
            _ => 1,
        }
    }

    /// Where the options begin.
    fn options_index(self) -> usize {
        match self {
            Form::Place { .. } => 6,
            Form::Member { .. } => 5,
            Form::Search | Form::SearchStore => self.key_index() + 1,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }

    /// Whether options may name a target.
    fn may_store(self) -> bool {
        matches!(self, Form::Place { may_store: true } | Form::Member { may_store: true })
    }
}

/// The order in which members are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    NearestFirst,
    FarthestFirst,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Center {
    Given(GeoPoint),
    /// That of a member; `None`: there is no sorted set that it could be in.
    OfMember(Option<GeoPoint>),
}

impl Center {
    fn place(self) -> Option<GeoPoint> {
        match self {
            Center::Given(place) => Some(place),
            Center::OfMember(place) => place,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Size {
    shape: Shape,
    unit_m: f64,
}

/// Looks up the place of the member at an argument; `None`: there is no sorted set.
type LookUp<'l> = dyn FnMut(usize) -> Result<Option<GeoPoint>, CmdError> + 'l;

/// What a search asks for.
#[derive(Default)]
struct Options {
    center: Option<Center>,
    size: Option<Size>,
    order: Option<Order>,
    count: Option<usize>,
    /// The first that are found will do.
    takes_any: bool,
    has_distance: bool,
    has_score: bool,
    has_place: bool,
    /// Where the name of the target is.
    target_index: Option<usize>,
    /// Scores of the target are distances.
    stores_distances: bool,
}

fn size_at(args: &Args<'_>, index: usize, error: &'static str) -> Result<f64, CmdError> {
    double::parse(args.at(index)).ok_or(error.into())
}

/// Radius and unit.
fn circle(args: &Args<'_>, index: usize) -> Result<Size, CmdError> {
    let radius = size_at(args, index, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    Ok(Size { shape: Shape::Circle { radius }, unit_m: unit_m(args.at(index + 1))? })
}

/// Width, height and unit.
fn rectangle(args: &Args<'_>, index: usize) -> Result<Size, CmdError> {
    let width = size_at(args, index, "ERR need numeric width")?;
    let height = size_at(args, index + 1, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    Ok(Size { shape: Shape::Box { width, height }, unit_m: unit_m(args.at(index + 2))? })
}

impl Options {
    fn parse(args: &Args<'_>, form: Form, look_up: &mut LookUp<'_>) -> Result<Options, CmdError> {
        let mut options = Options::default();
        match form {
            Form::Place { .. } => {
                options.center = Some(Center::Given(place(args, 2)?));
                options.size = Some(circle(args, 4)?);
            }
            Form::Member { .. } => {
                let place = look_up(2)?;
                options.center = Some(Center::OfMember(place));
                // Without a sorted set nobody looks at it.
                options.size = place.map(|_| circle(args, 3)).transpose()?;
            }
            Form::SearchStore => options.target_index = Some(1),
            Form::Search => {}
        }
        let mut index = form.options_index();
        while index < args.len() {
            index += match options.take_word(args, form, index) {
                true => 1,
                false => options.take_values(args, form, index, look_up)?,
            };
        }
        options.check(args, form)?;
        Ok(options)
    }

    /// Whether an argument is an option without values.
    fn take_word(&mut self, args: &Args<'_>, form: Form, index: usize) -> bool {
        match () {
            () if args.is(index, "WITHDIST") => self.has_distance = true,
            () if args.is(index, "WITHHASH") => self.has_score = true,
            () if args.is(index, "WITHCOORD") => self.has_place = true,
            () if args.is(index, "ANY") => self.takes_any = true,
            () if args.is(index, "ASC") => self.order = Some(Order::NearestFirst),
            () if args.is(index, "DESC") => self.order = Some(Order::FarthestFirst),
            () if form == Form::SearchStore && args.is(index, "STOREDIST") => self.stores_distances = true,
            () => return false,
        }
        true
    }

    /// Takes an option with values; how many arguments it is.
    fn take_values(
        &mut self,
        args: &Args<'_>,
        form: Form,
        index: usize,
        look_up: &mut LookUp<'_>,
    ) -> Result<usize, CmdError> {
        let is = |word: &str, value_count: usize| args.is(index, word) && index + value_count < args.len();
        let is_box = self.size.is_some_and(|size| matches!(size.shape, Shape::Box { .. }));
        let is_of_member = matches!(self.center, Some(Center::OfMember(_)));
        let is_search = form.is_search();
        if is("COUNT", 1) {
            let count = integer(args.at(index + 1))?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            self.count = Some(count.ok_or("ERR COUNT must be > 0")?);
            return Ok(2);
        }
        if form.may_store() && (is("STORE", 1) || is("STOREDIST", 1)) {
            self.target_index = Some(index + 1);
            self.stores_distances = args.is(index, "STOREDIST");
            return Ok(2);
        }
        if is_search && is("FROMMEMBER", 1) && (self.center.is_none() || is_of_member) {
            self.center = Some(Center::OfMember(look_up(index + 1)?));
            return Ok(2);
        }
        if is_search && is("FROMLONLAT", 2) && !is_of_member {
            self.center = Some(Center::Given(place(args, index + 1)?));
            return Ok(3);
        }
        if is_search && is("BYRADIUS", 2) && !is_box {
            self.size = Some(circle(args, index + 1)?);
            return Ok(3);
        }
        if is_search && is("BYBOX", 3) && (self.size.is_none() || is_box) {
            self.size = Some(rectangle(args, index + 1)?);
            return Ok(4);
        }
        Err(errors::SYNTAX.into())
    }

    fn check(&self, args: &Args<'_>, form: Form) -> CmdResult {
        if self.target_index.is_some() && self.detail_count() > 0 {
            let what = if form.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let error = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(error.into());
        }
        let exactly_one = |of: &str| {
            let name = String::from_utf8_lossy(args.at(0));
            CmdError::from(format!("ERR exactly one of {of} can be specified for {name}"))
        };
        if form.is_search() && self.center.is_none() {
            return Err(exactly_one("FROMMEMBER or FROMLONLAT"));
        }
        if form.is_search() && self.size.is_none() {
            return Err(exactly_one("BYRADIUS and BYBOX"));
        }
        if self.takes_any && self.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        Ok(())
    }

    /// How much is given with each member.
    fn detail_count(&self) -> usize {
        [self.has_distance, self.has_score, self.has_place].into_iter().filter(|is_given| *is_given).count()
    }

    /// The nearest are meant where so many are wanted, and not any.
    fn order(&self) -> Option<Order> {
        let nearest = (self.count.is_some() && !self.takes_any).then_some(Order::NearestFirst);
        self.order.or(nearest)
    }

    fn search(&self) -> Option<Search> {
        let Size { shape, unit_m } = self.size?;
        Some(Search { center: self.center?.place()?, shape, unit_m })
    }
}

/// A member that a search is for.
struct Found {
    member: Vec<u8>,
    score: f64,
    place: GeoPoint,
    distance_m: f64,
}

/// The members that a search is for, cell by cell, until there are `enough`.
fn find(ctx: &mut Ctx<'_>, key: &Key<'_>, search: &Search, enough: usize) -> Result<Vec<Found>, CmdError> {
    let mut found = Vec::new();
    for (min, max) in search.ranges() {
        let range = ScoredRange::Scores { min: ScoreBound::Included(min), max: ScoreBound::Excluded(max) };
        let take = |member: &[u8], score: f64| {
            let place = place_of(score);
            if let Some(distance_m) = search.distance_to(place) {
                found.push(Found { member: member.to_vec(), score, place, distance_m });
            }
            match found.len() >= enough {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        ctx.worker.sorted_set_at(ctx.client.db, key).range(&range, false, RangeLimit::NONE, |_| (), take)?;
        if found.len() >= enough {
            break;
        }
    }
    Ok(found)
}

fn run(ctx: &mut Ctx<'_>, args: &Args<'_>, form: Form) -> CmdResult {
    let key = ctx.key(args, form.key_index());
    let entry = ctx.worker.entry(ctx.client.db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    if let Some(entry) = &entry {
        entry.must_be(ValueType::SortedSet)?;
    }
    let mut look_up = |index: usize| {
        if entry.is_none() {
            return Ok(None);
        }
        let (member, mut place) = ([args.at(index)].into_iter(), None);
        let take = |_, score: Option<f64>| place = score.map(place_of);
        ctx.worker.sorted_set_at(ctx.client.db, &key).scores(member, take)?;
        Ok(Some(place.ok_or("ERR could not decode requested zset member")?))
    };
    let options = Options::parse(args, form, &mut look_up)?;
    let most = options.count.unwrap_or(usize::MAX);
    let mut found = match options.search().filter(|_| entry.is_some()) {
        Some(search) => find(ctx, &key, &search, if options.takes_any { most } else { usize::MAX })?,
        None => Vec::new(),
    };
    match options.order() {
        Some(Order::NearestFirst) => {
            sort_first(&mut found, most, |a, b| a.distance_m.total_cmp(&b.distance_m))
        }
        Some(Order::FarthestFirst) => {
            sort_first(&mut found, most, |a, b| b.distance_m.total_cmp(&a.distance_m))
        }
        None => {}
    }
    found.truncate(most);
    let unit_m = options.size.map_or(1.0, |size| size.unit_m);
    match options.target_index {
        Some(index) => store(ctx, args, index, found, options.stores_distances.then_some(unit_m)),
        None => {
            reply_found(ctx, &options, &found, unit_m);
            Ok(())
        }
    }
}

/// Stores members with their scores, or with their distances in a unit.
fn store(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    target_index: usize,
    found: Vec<Found>,
    distance_unit_m: Option<f64>,
) -> CmdResult {
    let score = |found: &Found| distance_unit_m.map_or(found.score, |unit_m| found.distance_m / unit_m);
    let named = |found: Found| {
        let score = score(&found);
        (found.member, score)
    };
    let members: Vec<_> = found.into_iter().map(named).collect();
    let change_count = members.len() as u64;
    store_members(ctx, args, target_index, members, change_count)
}

fn reply_found(ctx: &mut Ctx<'_>, options: &Options, found: &[Found], unit_m: f64) {
    let (reply, detail_count) = (&mut ctx.reply, options.detail_count());
    reply.array(found.len());
    for Found { member, score, place, distance_m } in found {
        if detail_count > 0 {
            reply.array(1 + detail_count);
        }
        reply.bulk(member);
        if options.has_distance {
            reply_distance(reply, distance_m / unit_m);
        }
        if options.has_score {
            reply.int(*score as i64);
        }
        if options.has_place {
            reply_place(reply, *place);
        }
    }
}

pub fn georadius(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::Place { may_store: true })
}

pub fn georadius_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::Place { may_store: false })
}

pub fn georadiusbymember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::Member { may_store: true })
}

pub fn georadiusbymember_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::Member { may_store: false })
}

pub fn geosearch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::Search)
}

pub fn geosearchstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    run(ctx, args, Form::SearchStore)
}
