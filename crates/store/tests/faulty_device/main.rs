//! The store on a device that fails: what was saved is there, whatever happens, and what was not written is never
//! served. Replay a failure with `STILLFRAME_SEED=<seed>`.

mod crashes;
mod damage;
mod lost;
mod model;

#[test]
fn on_array() {
    stillframe_testkit::run_suite_on_array(&[]);
}
