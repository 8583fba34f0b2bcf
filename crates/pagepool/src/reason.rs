//! Why something cannot be read: in words, with the error of the system that is the cause, if one is.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use rustix::io::Errno;

struct Said {
    text: Box<str>,
    cause: Option<io::Error>,
}

/// A reason that many can have: each page that a failed read was for.
#[derive(Clone)]
pub struct Reason(Arc<Said>);

/// The error of the system that is behind an error, as one of its own: an `io::Error` cannot be cloned.
fn cause_of(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let mut error = error;
    loop {
        if let Some(number) = error.downcast_ref::<Errno>() {
            return Some(io::Error::from(*number));
        }
        if let Some(cause) = error.downcast_ref::<io::Error>() {
            return Some(match cause.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(cause.kind(), cause.to_string()),
            });
        }
        error = error.source()?;
    }
}

impl Reason {
    /// What an error says, with its cause.
    pub fn of(error: &(dyn Error + 'static)) -> Reason {
        Reason(Arc::new(Said { text: error.to_string().into(), cause: cause_of(error) }))
    }

    /// The same cause in other words.
    #[must_use]
    pub fn said_as(self, text: String) -> Reason {
        Reason(Arc::new(Said { text: text.into(), cause: cause_of(&self) }))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason(Arc::new(Said { text: text.into(), cause: None }))
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Reason {
        Reason::from(text.to_owned())
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl AsRef<str> for Reason {
    fn as_ref(&self) -> &str {
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        **self == **other
    }
}

impl Eq for Reason {}

impl Error for Reason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_the_error_of_the_system() {
        let denied =
            Reason::of(&io::Error::from_raw_os_error(13)).said_as("page 7 cannot be read".to_owned());
        assert_eq!(denied.to_string(), "page 7 cannot be read");
        let cause = Reason::of(&denied).source().and_then(|cause| cause.downcast_ref()).map(io::Error::kind);
        assert_eq!(cause, Some(io::ErrorKind::PermissionDenied));
        assert!(Reason::from("in words alone").source().is_none());
    }
}
