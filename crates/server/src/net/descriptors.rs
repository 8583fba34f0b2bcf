//! The limit of open files, and how many clients it allows.

use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use stillframe_engine::log;

/// Descriptors that are not clients with one worker: files, listeners, epoll, the store's. As in Redis.
const RESERVED: u64 = 32;
/// What each further worker has: its epoll and its mailbox.
const RESERVED_PER_WORKER: u64 = 2;

/// The limit of open files is too low for `maxclients`, and may not be raised far enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    wanted_files: u64,
    /// The highest limit that is allowed.
    allowed_files: u64,
    reserved_files: u64,
    reason: Errno,
}

impl TooFew {
    /// Clients that the highest allowed limit has room for, if any.
    pub fn allowed_clients(&self) -> Option<u64> {
        self.allowed_files.checked_sub(self.reserved_files).filter(|count| *count > 0)
    }

    /// Redis's lines in the log.
    pub fn log(&self) {
        log::warning(format!(
            "You requested maxclients of {} requiring at least {} max file descriptors.",
            self.wanted_files - self.reserved_files,
            self.wanted_files
        ));
        log::warning(format!(
            "Server can't set maximum open files to {} because of OS error: {}.",
            self.wanted_files,
            error_text(self.reason)
        ));
        log::warning(format!(
            "Current maximum open files is {}. maxclients has been reduced to {} to compensate for low ulimit. If you \
             need higher maxclients increase 'ulimit -n'.",
            self.allowed_files,
            self.allowed_clients().unwrap_or(0)
        ));
    }
}

/// The limit does not even suffice for the server itself.
#[derive(thiserror::Error, Debug)]
#[error(
    "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please increase your open file limit \
     to at least {wanted}. Exiting."
)]
pub struct NotEnough {
    limit: u64,
    wanted: u64,
}

/// The system's text without the number that Rust appends.
fn error_text(error: Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Makes the limit of open files suffice for `maxclients`, or leaves it as it is.
///
/// # Errors
/// The system does not allow it.
pub fn make_room(maxclients: usize, worker_count: usize) -> Result<(), TooFew> {
    let reserved_files = RESERVED + RESERVED_PER_WORKER * (worker_count as u64).saturating_sub(1);
    let wanted_files = maxclients as u64 + reserved_files;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|c| *c < wanted_files) else { return Ok(()) };
    // Redis lowers the hard limit to what it sets; then a higher `maxclients` would be refused for ever.
    let hard = limit.maximum.map(|m| m.max(wanted_files));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted_files), maximum: hard }) {
        Ok(()) => {
            log::notice(format!(
                "Increased maximum number of open files to {wanted_files} (it was originally set to {current})."
            ));
            Ok(())
        }
        Err(reason) => {
            let allowed_files = limit.maximum.map_or(current, |m| m.clamp(current, wanted_files));
            Err(TooFew { wanted_files, allowed_files, reserved_files, reason })
        }
    }
}

/// At the start: returns the `maxclients` that there is room for, with the limit raised as far as it may be.
///
/// # Errors
/// There is no room for a single client.
pub fn make_room_at_start(maxclients: usize, worker_count: usize) -> Result<usize, NotEnough> {
    let Err(too_few) = make_room(maxclients, worker_count) else { return Ok(maxclients) };
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(too_few.allowed_files);
    let Some(count) = too_few.allowed_clients() else {
        return Err(NotEnough { limit: present, wanted: too_few.wanted_files });
    };
    too_few.log();
    if present < too_few.allowed_files {
        // What fails now is met again when a connection is accepted, and logged there.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(too_few.allowed_files), ..limit });
    }
    Ok(count as usize)
}
