//! What a generator sends, whatever it is.

/// A stream of requests, encoded straight into a connection's output buffer.
pub trait Requests {
    /// Appends the next request.
    fn append_request(&mut self, out: &mut Vec<u8>);

    /// How many requests there are, if they come to an end.
    fn request_count(&self) -> Option<u64>;
}
