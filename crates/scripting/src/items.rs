//! Values on their way into tables that are built in place.

use mlua::{Either, Error, Lua, Result, Value};

/// A value on its way into a table: text as it is, all else as a value. While the bound of memory is in force text would cost more.
pub(crate) type Item<'t> = Either<&'t str, Value>;

/// A string as an item.
///
/// # Errors
/// No memory.
pub(crate) fn string_item<'t>(lua: &Lua, bytes: &'t [u8]) -> Result<Item<'t>> {
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(Value::String(lua.create_string(bytes)?)),
    })
}

/// An array of what `next` gives until it ends, with room for so many from the beginning.
///
/// # Errors
/// The first of `next`, or no memory.
pub(crate) fn sequence<'t>(
    lua: &Lua,
    room: usize,
    next: impl FnMut() -> Result<Option<Item<'t>>>,
) -> Result<Value> {
    let mut items = Items { next, room, failed: None };
    let table = lua.create_sequence_from(&mut items)?;
    items.failed.map_or(Ok(Value::Table(table)), Err)
}

/// A table of the fields that `next` gives until it ends. Without room for them: that would change their order.
///
/// # Errors
/// The first of `next`, or no memory.
pub(crate) fn fields<'t>(
    lua: &Lua,
    next: impl FnMut() -> Result<Option<(Item<'t>, Item<'t>)>>,
) -> Result<Value> {
    let mut items = Items { next, room: 0, failed: None };
    let table = lua.create_table_from(&mut items)?;
    items.failed.map_or(Ok(Value::Table(table)), Err)
}

/// Items for what can take no errors: they end at the first one.
struct Items<N> {
    next: N,
    /// For how many there is to be room; fewer come if one fails.
    room: usize,
    failed: Option<Error>,
}

impl<T, N: FnMut() -> Result<Option<T>>> Iterator for Items<N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        (self.next)().unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.room, None)
    }
}

/// Whether a table can have it as a key.
pub(crate) fn is_key(item: &Item<'_>) -> bool {
    match item {
        Either::Right(Value::Number(number)) => !number.is_nan(),
        Either::Right(value) => !value.is_nil(),
        Either::Left(_) => true,
    }
}
