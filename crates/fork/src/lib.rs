//! What user space needs of the `async_fork` kernel module: its binary interface, its device, its cgroup file, and
//! what a machine says about why the module cannot be loaded or is not used. `stillframe-fork` is the tool on top.
#![forbid(unsafe_code)]

pub mod abi;
pub mod cgroup;
pub mod control;
pub mod doctor;
pub mod error;
pub mod explain;
pub mod finding;
pub mod kernel;
pub mod load;
pub mod processes;
pub mod restore;
pub mod root;
pub mod status;
pub mod unit;
pub mod version;
