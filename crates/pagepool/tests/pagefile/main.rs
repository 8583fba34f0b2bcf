//! The page file against a model: what was committed is there, whatever fails, and damage is never served.

mod crash;
mod damage;
mod files;
mod fuzz;
mod locations;
mod model;
mod space;
mod waits;
mod witness;
mod write_back;
