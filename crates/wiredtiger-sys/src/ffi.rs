//! The functions of `shim.c`, and two of the library's own.

use std::ffi::{c_char, c_int, c_void};

/// Handles of the library's; only it knows what is in them.
#[repr(C)]
pub struct RawConnection {
    _private: [u8; 0],
}
#[repr(C)]
pub struct RawSession {
    _private: [u8; 0],
}
#[repr(C)]
pub struct RawCursor {
    _private: [u8; 0],
}

extern "C" {
    pub fn sf_wt_open(
        dir: *const c_char,
        config: *const c_char,
        connection: *mut *mut RawConnection,
    ) -> c_int;
    pub fn sf_wt_close(connection: *mut RawConnection) -> c_int;
    pub fn sf_wt_open_session(connection: *mut RawConnection, session: *mut *mut RawSession) -> c_int;
    pub fn sf_wt_close_session(session: *mut RawSession) -> c_int;
    pub fn sf_wt_create(session: *mut RawSession, uri: *const c_char, config: *const c_char) -> c_int;
    pub fn sf_wt_open_cursor(
        session: *mut RawSession,
        uri: *const c_char,
        config: *const c_char,
        cursor: *mut *mut RawCursor,
    ) -> c_int;
    pub fn sf_wt_close_cursor(cursor: *mut RawCursor) -> c_int;
    pub fn sf_wt_begin(session: *mut RawSession) -> c_int;
    pub fn sf_wt_commit(session: *mut RawSession) -> c_int;
    pub fn sf_wt_rollback(session: *mut RawSession) -> c_int;
    pub fn sf_wt_checkpoint(session: *mut RawSession) -> c_int;
    pub fn sf_wt_search(cursor: *mut RawCursor, key: *const c_void, key_bytes: usize) -> c_int;
    pub fn sf_wt_search_near(
        cursor: *mut RawCursor,
        key: *const c_void,
        key_bytes: usize,
        order: *mut c_int,
    ) -> c_int;
    pub fn sf_wt_next(cursor: *mut RawCursor) -> c_int;
    pub fn sf_wt_prev(cursor: *mut RawCursor) -> c_int;
    pub fn sf_wt_reset(cursor: *mut RawCursor) -> c_int;
    pub fn sf_wt_key(cursor: *mut RawCursor, key: *mut *const c_void, key_bytes: *mut usize) -> c_int;
    pub fn sf_wt_value(cursor: *mut RawCursor, value: *mut *const c_void, value_bytes: *mut usize) -> c_int;
    pub fn sf_wt_insert(
        cursor: *mut RawCursor,
        key: *const c_void,
        key_bytes: usize,
        value: *const c_void,
        value_bytes: usize,
    ) -> c_int;
    pub fn sf_wt_remove(cursor: *mut RawCursor, key: *const c_void, key_bytes: usize) -> c_int;
    pub fn sf_wt_rollback_code() -> c_int;
    pub fn sf_wt_notfound_code() -> c_int;
    pub fn wiredtiger_strerror(error: c_int) -> *const c_char;
    pub fn wiredtiger_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
}
