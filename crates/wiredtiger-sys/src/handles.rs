//! Safe handles.

use std::ffi::{c_int, c_void, CStr, CString};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use crate::ffi::*;

/// What the library says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The transaction is to be rolled back, and may be tried again: it conflicts with another one.
    Rollback,
    /// Anything else, in words.
    Other(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Rollback => f.write_str("a conflict with another transaction"),
            Error::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: X2: it takes nothing and returns a number.
    if code == unsafe { sf_wt_rollback_code() } {
        return Err(Error::Rollback);
    }
    // SAFETY: X2: the text is the library's, for any number, and lasts at least until the next call of this thread.
    let text = unsafe { CStr::from_ptr(wiredtiger_strerror(code)) };
    Err(Error::Other(text.to_string_lossy().into_owned()))
}

/// Whether there was one.
fn check_found(code: c_int) -> Result<bool> {
    // SAFETY: X2: it takes nothing and returns a number.
    if code == unsafe { sf_wt_notfound_code() } {
        return Ok(false);
    }
    check(code).map(|()| true)
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Other("a name has a zero byte".to_owned()))
}

fn handle<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| Error::Other("no handle".to_owned()))
}

/// A database that is open. Closed when it is dropped.
pub struct Connection(NonNull<RawConnection>);

// SAFETY: X2: the library's connections are made to be used by all threads.
unsafe impl Send for Connection {}
// SAFETY: X2: as above.
unsafe impl Sync for Connection {}

impl Connection {
    /// Opens the database in `dir`, which exists, with the library's own words of configuration.
    ///
    /// # Errors
    /// Those of the library.
    pub fn open(dir: &Path, config: &str) -> Result<Connection> {
        let (dir, config) = (c_string(&dir.to_string_lossy())?, c_string(config)?);
        let mut connection = null_mut();
        // SAFETY: X2: strings that end with a zero, and a place for the handle.
        check(unsafe { sf_wt_open(dir.as_ptr(), config.as_ptr(), &mut connection) })?;
        Ok(Connection(handle(connection)?))
    }

    #[must_use]
    pub fn version() -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: X2: three places for numbers; the text that it returns is not looked at.
        unsafe { wiredtiger_version(&mut major, &mut minor, &mut patch) };
        format!("{major}.{minor}.{patch}")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: X2: sessions borrow the connection, so none is left. A failure to close cannot be told here.
        unsafe { sf_wt_close(self.0.as_ptr()) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// A thread's access, with a cursor for each of some tables.
pub struct Session<'c> {
    session: NonNull<RawSession>,
    /// Closed with the session.
    cursors: Vec<NonNull<RawCursor>>,
    /// Sessions stay in their thread: a raw pointer does.
    _connection: PhantomData<(&'c Connection, *mut ())>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: X2: the session is open, and nobody else has it or its cursors. It rolls back what is under way.
        unsafe { sf_wt_close_session(self.session.as_ptr()) };
    }
}

impl<'c> Session<'c> {
    /// Opens a session with cursors on tables that exist.
    ///
    /// # Errors
    /// Those of the library.
    pub fn open(connection: &'c Connection, uris: &[String]) -> Result<Session<'c>> {
        let mut raw = null_mut();
        // SAFETY: X2: a connection that is open, and a place for the handle.
        check(unsafe { sf_wt_open_session(connection.0.as_ptr(), &mut raw) })?;
        let mut session = Session { session: handle(raw)?, cursors: Vec::new(), _connection: PhantomData };
        for uri in uris {
            let cursor = session.open_cursor(uri, None)?;
            session.cursors.push(cursor);
        }
        Ok(session)
    }

    fn open_cursor(&self, uri: &str, config: Option<&CStr>) -> Result<NonNull<RawCursor>> {
        let (uri, mut cursor) = (c_string(uri)?, null_mut());
        let config = config.map_or(null(), CStr::as_ptr);
        // SAFETY: X2: a session that is open, strings that end with a zero or none, and a place for the handle.
        check(unsafe { sf_wt_open_cursor(self.session.as_ptr(), uri.as_ptr(), config, &mut cursor) })?;
        handle(cursor)
    }

    /// Makes a table if there is none.
    ///
    /// # Errors
    /// Those of the library.
    pub fn create(&mut self, uri: &str, config: &str) -> Result<()> {
        let (uri, config) = (c_string(uri)?, c_string(config)?);
        // SAFETY: X2: a session that is open, and strings that end with a zero.
        check(unsafe { sf_wt_create(self.session.as_ptr(), uri.as_ptr(), config.as_ptr()) })
    }

    /// Makes all that has been committed durable.
    ///
    /// # Errors
    /// Those of the library.
    pub fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: X2: a session that is open.
        check(unsafe { sf_wt_checkpoint(self.session.as_ptr()) })
    }

    /// # Errors
    /// Those of the library.
    pub fn begin(&mut self) -> Result<()> {
        // SAFETY: X2: a session that is open.
        check(unsafe { sf_wt_begin(self.session.as_ptr()) })
    }

    /// After an error nothing of the transaction stays.
    ///
    /// # Errors
    /// Those of the library.
    pub fn commit(&mut self) -> Result<()> {
        // SAFETY: X2: a session that is open.
        check(unsafe { sf_wt_commit(self.session.as_ptr()) })
    }

    /// # Errors
    /// Those of the library.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: X2: a session that is open.
        check(unsafe { sf_wt_rollback(self.session.as_ptr()) })
    }

    fn cursor(&self, table: usize) -> *mut RawCursor {
        self.cursors[table].as_ptr()
    }

    /// Shows the value of a key to `found`. Whether there is one.
    ///
    /// # Errors
    /// Those of the library.
    pub fn get(&mut self, table: usize, key: &[u8], found: impl FnOnce(&[u8])) -> Result<bool> {
        let cursor = self.cursor(table);
        // SAFETY: X2: a cursor that is open; the key lasts until the search is over.
        let is_there = check_found(unsafe { sf_wt_search(cursor, key.as_ptr().cast(), key.len()) })?;
        if is_there {
            found(value_at(cursor)?);
        }
        reset(cursor)?;
        Ok(is_there)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Those of the library.
    pub fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        insert(self.cursor(table), key, value)
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// Those of the library.
    pub fn remove(&mut self, table: usize, key: &[u8]) -> Result<()> {
        // SAFETY: X2: a cursor that is open; the key lasts until the call is over.
        let removed = unsafe { sf_wt_remove(self.cursor(table), key.as_ptr().cast(), key.len()) };
        check_found(removed).map(drop)
    }

    /// Shows rows with keys of `from` up to, not including, `to`, in one direction, as long as `wants_more`.
    ///
    /// # Errors
    /// Those of the library.
    pub fn scan(
        &mut self,
        table: usize,
        (from, to): (&[u8], &[u8]),
        direction: Direction,
        mut wants_more: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let cursor = self.cursor(table);
        let mut is_there = match direction {
            Direction::Up => seek(cursor, from, |order| order < 0, direction)?,
            Direction::Down => seek(cursor, to, |order| order >= 0, direction)?,
        };
        while is_there {
            let key = key_at(cursor)?;
            if key < from || key >= to || !wants_more(key, value_at(cursor)?) {
                break;
            }
            is_there = step(cursor, direction)?;
        }
        reset(cursor)
    }
}

/// Goes to a key or the one next to it, and a step further if `is_before` says that it is on the wrong side.
fn seek(
    cursor: *mut RawCursor,
    key: &[u8],
    is_before: impl Fn(c_int) -> bool,
    direction: Direction,
) -> Result<bool> {
    let mut order = 0;
    // SAFETY: X2: a cursor that is open; the key lasts until the search is over, and there is a place for a number.
    let found = unsafe { sf_wt_search_near(cursor, key.as_ptr().cast(), key.len(), &mut order) };
    match check_found(found)? {
        true if is_before(order) => step(cursor, direction),
        is_there => Ok(is_there),
    }
}

fn step(cursor: *mut RawCursor, direction: Direction) -> Result<bool> {
    // SAFETY: X2: a cursor that is open.
    check_found(match direction {
        Direction::Up => unsafe { sf_wt_next(cursor) },
        Direction::Down => unsafe { sf_wt_prev(cursor) },
    })
}

/// A cursor that stays somewhere keeps its page in memory, and its thread's picture of the data as it was.
fn reset(cursor: *mut RawCursor) -> Result<()> {
    // SAFETY: X2: a cursor that is open.
    check(unsafe { sf_wt_reset(cursor) })
}

fn insert(cursor: *mut RawCursor, key: &[u8], value: &[u8]) -> Result<()> {
    // SAFETY: X2: a cursor that is open; key and value last until the call is over, and the library keeps copies.
    check(unsafe { sf_wt_insert(cursor, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) })
}

/// The key where a cursor is, until it is moved.
fn key_at<'s>(cursor: *mut RawCursor) -> Result<&'s [u8]> {
    let (mut start, mut length): (*const c_void, usize) = (null(), 0);
    // SAFETY: X2: a cursor that is open and somewhere, and places for the answer.
    check(unsafe { sf_wt_key(cursor, &mut start, &mut length) })?;
    Ok(bytes_at(start, length))
}

/// The value where a cursor is, until it is moved.
fn value_at<'s>(cursor: *mut RawCursor) -> Result<&'s [u8]> {
    let (mut start, mut length): (*const c_void, usize) = (null(), 0);
    // SAFETY: X2: a cursor that is open and somewhere, and places for the answer.
    check(unsafe { sf_wt_value(cursor, &mut start, &mut length) })?;
    Ok(bytes_at(start, length))
}

fn bytes_at<'s>(start: *const c_void, length: usize) -> &'s [u8] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: X3: as long as the cursor is not moved. Its callers, all in this file, move it only after the last use.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// Fills an empty table that nobody else has a cursor on.
pub struct Bulk<'s> {
    cursor: NonNull<RawCursor>,
    _session: PhantomData<&'s mut ()>,
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        // SAFETY: X2: the cursor is open, and nobody else has it. Without `finish` the rows do not count.
        unsafe { sf_wt_close_cursor(self.cursor.as_ptr()) };
    }
}

impl<'s> Bulk<'s> {
    /// # Errors
    /// The table is not empty, or in use; those of the library.
    pub fn open(session: &'s mut Session<'_>, uri: &str) -> Result<Bulk<'s>> {
        let cursor = session.open_cursor(uri, Some(c"bulk"))?;
        Ok(Bulk { cursor, _session: PhantomData })
    }

    /// Adds a row; keys ascend.
    ///
    /// # Errors
    /// Those of the library.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        insert(self.cursor.as_ptr(), key, value)
    }

    /// # Errors
    /// Those of the library: the rows are not there then.
    pub fn finish(self) -> Result<()> {
        let cursor = self.cursor.as_ptr();
        std::mem::forget(self);
        // SAFETY: X2: the cursor is open, and nobody else has it; it is not closed again.
        check(unsafe { sf_wt_close_cursor(cursor) })
    }
}
