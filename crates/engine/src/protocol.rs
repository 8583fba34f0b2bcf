//! RESP: requests in, replies out, and the error texts that several commands share.

pub mod args;
pub mod collected;
pub mod errors;
pub mod need;
pub mod reply;
pub mod request;
