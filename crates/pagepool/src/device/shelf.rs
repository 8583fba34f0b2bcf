//! A directory of numbered devices.

use std::fmt;
use std::sync::Arc;

use super::seam::{Device, DeviceError};

/// The number of a device on a shelf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShelfNumber(pub u32);

impl fmt::Display for ShelfNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

/// A directory of numbered devices. What it changes is durable when it returns: the name, not the content of the device.
pub trait Shelf: Send + Sync {
    /// What error messages call it; for a directory its path.
    fn name(&self) -> &str;

    /// What error messages call the device of that number, whether there is one or not.
    fn device_name(&self, number: ShelfNumber) -> String;

    /// The numbers of all devices, ascending. What has no such name is left out.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self) -> Result<Vec<ShelfNumber>, DeviceError>;

    /// Makes an empty device. There must be none of that number.
    ///
    /// # Errors
    /// Those of the system; there may or may not be an empty device then.
    fn create(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError>;

    /// Opens a device.
    ///
    /// # Errors
    /// [`DeviceError::is_missing`], and those of the system.
    fn open(&self, number: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError>;

    /// Gives a device, which nobody has open, another number, of which there must be none, and opens it.
    ///
    /// # Errors
    /// Those of the system; it has one number or the other then.
    fn renumber(&self, from: ShelfNumber, to: ShelfNumber) -> Result<Arc<dyn Device>, DeviceError>;

    /// Removes a device.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, number: ShelfNumber) -> Result<(), DeviceError>;
}
